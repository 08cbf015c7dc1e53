#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "expect_error.h"
#include "temporary_directory.h"
#include "test_files.h"

namespace tandem::testing {
/// The exit status and the output of a command.
struct Ended {
  int status = -1;  ///< exit status, or 128 + signal
  std::string out, err;
};
Ended run(const std::string& command);
/// Runs a command. True if it ends with status 0; otherwise the message says how it ended and what it
/// printed.
::testing::AssertionResult succeeds(const std::string& command);

/// Commands for short runs of the programs under test.
extern const std::string kTrain, kTandem;

/// How a run ends after a signal.
struct Ending {
  std::string signal, word;
  int status;
};
extern const std::vector<Ending> kEndings;

/// The command must end with status 1 and print one paragraph, "<program>: …", that contains all the words.
void expect_refused(const std::string& command, const std::vector<std::string>& words);

/// A test with its own directory.
class Cli : public ::testing::Test {
 protected:
  std::string file(const std::string& name) const { return directory_.file(name); }
  std::string write(const std::string& name, const std::string& text) const;
  nlohmann::json read(const std::string& name) const;
  /// The lines of metrics.jsonl in a run's directory, one per batch.
  std::vector<nlohmann::json> metrics(const std::string& output = "run") const;

  const TemporaryDirectory directory_;
};

}  // namespace tandem::testing
