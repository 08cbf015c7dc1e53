#include "cli.h"

#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

namespace tandem::testing {

const std::string kTrain = TANDEM_BIN "/train_cifar --synthetic-train 640 --synthetic-test 100 -b 64 ";
const std::vector<Ending> kEndings{{"INT", "interrupted", 130}, {"TERM", "terminated", 143}};
const std::string kTandem = TANDEM_BIN "/tandem ";

Ended run(const std::string& command) {
  const TemporaryDirectory words;
  const std::string out = words.file("out"), err = words.file("err");
  const int status = std::system(("{ " + command + "\n} >" + out + " 2>" + err).c_str());
  return {WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), read_file(out), read_file(err)};
}

::testing::AssertionResult succeeds(const std::string& command) {
  const Ended e = run(command);
  if (e.status == 0) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << command << " ended with status " << e.status << ":\n"
                                       << e.out << e.err;
}

void expect_refused(const std::string& command, const std::vector<std::string>& words) {
  SCOPED_TRACE(command);
  const Ended e = run(command);
  EXPECT_EQ(1, e.status) << e.err;
  const std::string program = command.starts_with(kTandem) ? "tandem: " : "train_cifar: ";
  EXPECT_TRUE(e.err.starts_with(program)) << e.err;
  EXPECT_TRUE(e.err.ends_with('\n') && e.err.find("\n\n") == std::string::npos)
      << "the message is not one paragraph: " << e.err;
  expect_words(e.err, words);
}

std::string Cli::write(const std::string& name, const std::string& text) const {
  write_file(file(name), text);
  return file(name);
}

nlohmann::json Cli::read(const std::string& name) const { return read_json(file(name)); }

std::vector<nlohmann::json> Cli::metrics(const std::string& output) const {
  return read_json_lines(file(output + "/metrics.jsonl"));
}

}  // namespace tandem::testing
