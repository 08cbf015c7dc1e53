// Damaged or truncated files from outside: Programs, plans, profiles, and CIFAR files are read, or refused
// with an Error that names the file; nothing else happens.
#include <filesystem>
#include <functional>

#include <gtest/gtest.h>

#include <tandem/core/base/error.h>
#include <tandem/core/base/json_input.h>
#include <tandem/core/runtime/profile.h>
#include <tandem/core/schedule/program_json.h>
#include <tandem/datasets/cifar.h>
#include <tandem/memory/memory_policies.h>
#include <tandem/plan/plan_file.h>

#include "expect_error.h"
#include "seed.h"
#include "temporary_directory.h"
#include "test_files.h"

namespace tandem::testing {
using namespace engine;
namespace {

namespace fs = std::filesystem;

/// A kind of file, with a whole example.
struct Format {
  const char* name;
  std::string whole;
  std::function<void(const std::string& file)> read;
};

class OutsideFile : public ::testing::TestWithParam<Format> {
 protected:
  /// Whether the file is accepted. A refusal must be an Error that names the file in a message of bounded
  /// length.
  bool is_read(const std::string& bytes) const {
    write_file(file_, bytes);
    try {
      GetParam().read(file_);
      return true;
    } catch (const Error& e) {
      const std::string message = e.what();
      EXPECT_NE(std::string::npos, message.find(file_)) << message;
      EXPECT_LT(message.size(), 1000u) << message;
      return false;
    }
  }
  TemporaryDirectory directory_;
  const std::string file_ = directory_.file("outside.json");
};

TEST_P(OutsideFile, CutAnywhereIsRefused) {
  const std::string& whole = GetParam().whole;
  ASSERT_TRUE(is_read(whole));
  for (std::size_t n = 0; n < whole.size(); ++n) EXPECT_FALSE(is_read(whole.substr(0, n))) << n << " bytes";
}

TEST_P(OutsideFile, WithAnyBitFlippedIsReadOrRefused) {
  const std::string& whole = GetParam().whole;
  std::size_t refused = 0;
  for (std::size_t bit = 0; bit < 8 * whole.size(); ++bit) refused += !is_read(with_flipped_bit(whole, bit));
  EXPECT_GT(refused, whole.size()) << "most of them are not JSON, or name something unknown";
}

TEST_P(OutsideFile, WithAThousandRandomDamagesIsReadOrRefused) {
  auto rng = generator(GetParam().name);
  const std::string& whole = GetParam().whole;
  const auto at = [&] {
    return static_cast<std::size_t>(draw_int(rng, 0, static_cast<int>(whole.size()) - 1));
  };
  int refused = 0;
  for (int i = 0; i < 1000; ++i) {
    std::string damaged = whole;
    for (int k = draw_int(rng, 1, 4); k > 0; --k)
      if (draw_bool(rng, 0.5))
        damaged[at()] = "0123456789{}[]\",:-.eE \\ntf\xff"[draw_int(rng, 0, 26)];
      else
        damaged.replace(std::min(at(), damaged.size()), 8,
                        whole.substr(at(), static_cast<std::size_t>(draw_int(rng, 0, 40))));
    refused += !is_read(damaged);
  }
  EXPECT_GT(refused, 500);
}

TEST_P(OutsideFile, ThatIsTooDeepOrNotJsonIsRefused) {
  const std::string deep(1'000'000, '[');
  for (const std::string& bytes :
       {std::string(), deep, deep + std::string(deep.size(), ']'), "{\"a\":" + deep, std::string("\0", 1),
        std::string("\xff"), std::string("\xef\xbb\xbf"), std::string("null"), std::string("[]"),
        std::string("1e999"), "\"" + deep, "{\"" + deep, std::string("{\"lanes\": 1e400}"),
        std::string("{\"x\": 99999999999999999999999}")})
    EXPECT_FALSE(is_read(bytes)) << bytes.substr(0, 20);
  fs::remove(file_);
  fs::create_directory(file_);
  EXPECT_THROW(GetParam().read(file_), Error);
}

std::string program_text() {
  return R"({"devices": 2, "lanes": [{"device": 0, "kind": "compute"}, {"device": 1, "kind": "compute"}],
 "values": {"a": 128, "b": {"bytes": 64, "block": "g", "offset": 64}}, "blocks": {"g": {"bytes": 128, "slots": 2}},
 "states": {"w": {"device": 1, "bytes": 4096, "trained": true}},
 "instructions": [{"name": "F", "lane": 0, "seconds": 1.5, "writes": ["a"]},
  {"name": "G", "lane": 1, "writes": ["b"]},
  {"name": "U", "lane": 1, "lag": 1, "phase": "update", "reads": ["b", "w@1"], "writes": ["w"], "after": [{"step": "G", "back": 1}]}]})";
}

std::string memory_problem_text() {
  return R"({"graphs": [{"name": "g", "nodes": [
  {"name": "A", "phase": "forward", "run_ms": 1.5, "workspace_bytes": 16, "inputs": [1, 2], "outputs": [3]},
  {"name": "L", "phase": "forward", "run_ms": 1, "workspace_bytes": 0, "inputs": [3], "outputs": [4]},
  {"name": "dA", "phase": "backward", "run_ms": 2, "workspace_bytes": 0, "inputs": [1, 3], "outputs": [5]},
  {"name": "U", "phase": "update", "run_ms": 1, "workspace_bytes": 0, "inputs": [2, 5], "outputs": []}]}],
 "values": [{"id": 1, "bytes": 64, "kind": "input"}, {"id": 2, "bytes": 32, "kind": "parameter"},
  {"id": 3, "bytes": 640, "kind": "intermediate"}, {"id": 4, "bytes": 4, "kind": "output"},
  {"id": 5, "bytes": 32, "kind": "gradient"}],
 "link": {"bytes_per_ms": 100, "duplex": true}, "static_bytes": 32})";
}

std::vector<Format> formats() {
  return {
      {"Program", program_text(),
       [](const std::string& file) {
         try {
           program_from_json(read_text("Program", file));
         } catch (const Error& e) {
           throw Error(file + ": " + e.what());  // as the command does
         }
       }},
      {"Plan",
       R"({"cuts": ["block2"], "fusion_groups": [["head.weight", "head.bias"]], "swap": ["block0"], "recompute": []})",
       [](const std::string& file) {
         Strategy strategy;
         read_plan(file, strategy);
       }},
      // What is read can be planned.
      {"MemoryProblem", memory_problem_text(),
       [](const std::string& file) {
         const MemoryProblem problem = read_memory_problem(file);
         for (const char* policy : {"vdnn", "checkpoint", "mu-two+"}) {
           const CostedPlan made = memory_policy(policy).make(problem, 500);
           EXPECT_EQ(made.cost.peak_bytes, replay(problem, made.plan).peak_bytes);
         }
       }},
      {"Profile", R"({"1 matmul f32[2, 3]": 0.000125, "2 relu f32[4]": 1e-7, "1 copy": 0})",
       [](const std::string& file) { Profile::read(file); }}};
}

INSTANTIATE_TEST_SUITE_P(Formats, OutsideFile, ::testing::ValuesIn(formats()),
                         [](const auto& info) { return std::string(info.param.name); });

// CIFAR has no checksum: a changed pixel is not noticed, a changed label only if it is out of range.
class DamagedCifar : public ::testing::TestWithParam<bool> {
 protected:
  const bool hundred_ = GetParam();
  const std::size_t labels_ = hundred_ ? 2 : 1, record_ = labels_ + 3072;
  TemporaryDirectory directory_;
  const std::string file_ = directory_.file(hundred_ ? "train.bin" : "data_batch_1.bin");
};

TEST_P(DamagedCifar, IsReadOrRefusedByFileAndOffset) {
  auto rng = generator("damaged CIFAR");
  std::string whole(3 * record_, '\0');
  for (char& c : whole) c = static_cast<char>(draw_int(rng, 0, 9));
  int refused = 0;
  for (int i = 0; i < 1000; ++i) {
    const std::size_t bit = static_cast<std::size_t>(draw_int(rng, 0, 7)),
                      record = static_cast<std::size_t>(draw_int(rng, 0, 2)),
                      in_record =
                          static_cast<std::size_t>(i % 2 ? draw_int(rng, 0, static_cast<int>(labels_) - 1)
                                                         : draw_int(rng, 0, static_cast<int>(record_) - 1)),
                      at = record * record_ + in_record;
    const std::string flipped = with_flipped_bit(whole, 8 * at + bit);
    write_file(file_, flipped);
    const int limit = hundred_ ? (in_record == 0 ? 20 : 100) : 10;
    const bool bad = in_record < labels_ && static_cast<unsigned char>(flipped[at]) >= limit;
    if (bad) {
      expect_error([&] { load_cifar(directory_.path(), CifarSplit::train); },
                   {file_, "record " + std::to_string(record), "offset " + std::to_string(at) + ":"});
      BadSamples skipped(1);
      EXPECT_EQ(2, load_cifar(directory_.path(), CifarSplit::train, &skipped).size());
      EXPECT_EQ(1, skipped.count());
      ++refused;
    } else {
      const MemoryDataset data = load_cifar(directory_.path(), CifarSplit::train);
      EXPECT_EQ(3, data.size());
      for (std::size_t r = 0; r < 3; ++r) EXPECT_EQ(flipped[r * record_ + labels_ - 1], data.labels[r]);
    }
  }
  EXPECT_GT(refused, 100);
}

// One changed pixel makes other data: a resume must notice.
TEST_P(DamagedCifar, HasAnotherDigest) {
  auto rng = generator("digest");
  std::string whole(3 * record_, '\1');
  const auto digest = [&](const std::string& bytes) {
    write_file(file_, bytes);
    return load_cifar(directory_.path(), CifarSplit::train).digest();
  };
  const std::string before = digest(whole);
  EXPECT_EQ(before, digest(whole));
  for (int i = 0; i < 200; ++i) {
    const auto bit = 8 * labels_ + static_cast<std::size_t>(draw_int(rng, 0, 8 * 3072 - 1));
    EXPECT_NE(before, digest(with_flipped_bit(whole, bit))) << bit;
  }
}

INSTANTIATE_TEST_SUITE_P(Sets, DamagedCifar, ::testing::Bool(),
                         [](const auto& info) { return std::string(info.param ? "Cifar100" : "Cifar10"); });

}  // namespace
}  // namespace tandem::testing
