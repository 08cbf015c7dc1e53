// Helpers for messages.
#include <gtest/gtest.h>

#include <tandem/core/base/error.h>

namespace tandem::testing {
namespace {

TEST(Messages, UsePlurals) {
  EXPECT_EQ("1 stage", counted(1, "stage"));
  EXPECT_EQ("0 stages", counted(0, "stage"));
  EXPECT_EQ("2 batches", counted(2, "batch"));
  EXPECT_EQ("3 micro-batches", counted(3, "micro-batch"));
  EXPECT_EQ("2 losses", counted(2, "loss"));
  EXPECT_EQ("2 epochs", counted(2, "epoch"));
  EXPECT_EQ("1 epoch", counted(1, "epoch"));
}

}  // namespace
}  // namespace tandem::testing
