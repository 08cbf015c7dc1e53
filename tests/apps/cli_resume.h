#pragma once
#include <filesystem>

#include "cli.h"

namespace tandem::testing {
namespace fs = std::filesystem;
using nlohmann::json;

// An epoch has 7 batches: batch 10 is in the middle of the second.
inline const std::string kShort =
    TANDEM_BIN "/train_cifar --synthetic-train 448 --synthetic-test 50 -b 64 --threads 1 --steps 20 ";
inline const std::string kMpi = TANDEM_MPIRUN " -np 2 ";

/// Short runs that are compared with runs that stop and resume.
class Resume : public Cli {
 protected:
  Ended succeed(const std::string& command) const {
    Ended e = run(command);
    EXPECT_EQ(0, e.status) << command << ": " << e.err;
    return e;
  }
  /// Step and losses of every batch from `first` on.
  std::vector<std::pair<int, json>> losses(const std::string& output, int first = 0) const {
    std::vector<std::pair<int, json>> result;
    for (const json& j : metrics(output))
      if (j.at("step") >= first) result.emplace_back(j.at("step"), j.at("loss"));
    return result;
  }
  std::string checkpoint(const std::string& output, int step) const {
    return file(output + "/checkpoints/step-" + std::to_string(step));
  }
  void expect_same_checkpoint(const std::string& a, const std::string& b) const {
    for (const auto& entry : fs::directory_iterator(a)) {
      const auto name = entry.path().filename();
      if (name.extension() == ".safetensors") {
        EXPECT_TRUE(read_file(entry) == read_file(fs::path(b) / name)) << name << " of " << b;
      }
    }
  }
};

}  // namespace tandem::testing
