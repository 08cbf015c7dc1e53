#pragma once
#include <map>
#include <string>

#include "cli.h"

namespace tandem::testing {

/// Files of others, which must stay as they are.
class ForeignFiles : public Cli {
 protected:
  /// Makes a file that Tandem did not write.
  void put(const std::string& name, const std::string& text) {
    std::filesystem::create_directories(std::filesystem::path(file(name)).parent_path());
    write(name, text);
    foreign_[file(name)] = text;
  }
  /// Has a file that Tandem wrote stay too; of a directory, all.
  void keep(const std::string& name) {
    for (const auto& entry : std::filesystem::recursive_directory_iterator(file(name)))
      if (entry.is_regular_file()) foreign_[entry.path().string()] = read_file(entry.path().string());
  }
  void expect_untouched() const {
    for (const auto& [path, text] : foreign_) {
      ASSERT_TRUE(std::filesystem::exists(path)) << path;
      ASSERT_EQ(text, read_file(path)) << path;
    }
  }
  /// What a run leaves, for commands that read it: weights, a Program, times of layers and stages.
  void make_inputs() {
    ASSERT_TRUE(succeeds(kTrain + "--arch mlp --steps 1 --output " + file("in")));
    ASSERT_TRUE(succeeds(kTrain + "--arch mlp --steps 2 --parallel pipeline --stages 2 --simulate --output " +
                         file("predicted")));
  }
  std::map<std::string, std::string> foreign_;
};

}  // namespace tandem::testing
