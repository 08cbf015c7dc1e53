// TensorBoard's files: TFRecords with correct checksums, which hold correct Events.
#include <bit>
#include <cstring>
#include <fstream>
#include <iterator>
#include <optional>

#include <gtest/gtest.h>

#include <tandem/core/base/checksum.h>
#include <tandem/core/base/error.h>
#include <tandem/train/event_file.h>

#include "event_reader.h"
#include "seed.h"
#include "temporary_directory.h"

namespace tandem::testing {
using namespace engine;
namespace {

// RFC 3720, B.4.
TEST(EventFiles, SumsAreCrc32c) {
  EXPECT_EQ(0xe3069283u, crc32c("123456789"));
  EXPECT_EQ(0x8a9136aau, crc32c(std::string(32, '\0')));
  EXPECT_EQ(0x62a8ab43u, crc32c(std::string(32, '\xff')));
}

TEST(EventFiles, HoldTheScalarsThatWereWritten) {
  const TemporaryDirectory directory;
  auto rng = generator("scalars");
  std::vector<ReadScalar> written;
  EventFile file(directory.path(), 0);
  for (int i = 0; i < 100; ++i) {
    const std::int64_t step = i < 50 ? i : std::int64_t{1} << draw_int(rng, 6, 62);
    written.push_back({"tag " + std::string(static_cast<std::size_t>(draw_int(rng, 0, 300)), 'x'), step,
                       static_cast<float>(draw_real(rng, -1e6, 1e6))});
    file.scalar(written.back().tag, step, written.back().value);
  }
  const ReadEvents read = read_events(file.path());
  EXPECT_EQ("brain.Event:2", read.version);
  EXPECT_EQ(written, read.scalars);
  EXPECT_TRUE(read.starts.empty());
}

TEST(EventFiles, OfAResumedRunAreNewAndReplaceRepeatedSteps) {
  const TemporaryDirectory directory;
  std::vector<std::string> made;
  for (const std::int64_t first : {0, 7, 0, 9}) made.push_back(EventFile(directory.path(), first).path());
  EXPECT_EQ(made, event_files(directory.path())) << "files must be in the order of their creation";
  EXPECT_TRUE(read_events(made[0]).starts.empty());
  EXPECT_EQ((std::vector<std::int64_t>{0}), read_events(made[2]).starts);
  EXPECT_EQ((std::vector<std::int64_t>{9}), read_events(made[3]).starts);
}

// Their names hold other times: no file can be named after the largest number.
TEST(EventFiles, SortAfterThoseOfOtherProgramsIfPossible) {
  const TemporaryDirectory directory;
  const std::string prefix = "events.out.tfevents.";
  for (const char* name : {"4000000000.other", "99999999999999999999.other", "none"})
    std::ofstream(directory.file(prefix + name)) << "";
  const std::string made = EventFile(directory.path(), 0).path();
  EXPECT_TRUE(made.starts_with(directory.file(prefix + "4000000001."))) << made;
}

TEST(EventFiles, ThatCannotBeWrittenAreAnError) { EXPECT_THROW(EventFile("/dev/null/nowhere", 0), Error); }

}  // namespace
}  // namespace tandem::testing
