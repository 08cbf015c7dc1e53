// Checkpoints that are damaged after they are written: all damage is found, and the previous checkpoint is
// used.
#include <filesystem>

#include <gtest/gtest.h>

#include <tandem/core/base/error.h>
#include <tandem/train/checkpoint_manifest.h>

#include "checkpoint_files.h"
#include "expect_error.h"
#include "faulty_files.h"
#include "seed.h"
#include "temporary_directory.h"
#include "test_files.h"

namespace tandem::testing {
using namespace engine;
namespace {

namespace fs = std::filesystem;

class DamagedCheckpoints : public ::testing::Test {
 protected:
  void SetUp() override {
    for (const int step : {10, 20}) store_.save(step, checkpoint_files(step), 0.5 + step);
  }
  /// Step 20 is known to be damaged, and step 10 is used.
  void expect_passed_over(const std::string& what) const {
    std::vector<std::string> damaged;
    const auto newest = newest_checkpoint(parent_.path(), damaged);
    ASSERT_TRUE(newest) << what;
    EXPECT_EQ(10, newest->step) << what;
    ASSERT_EQ(1u, damaged.size()) << what;
    EXPECT_NE(std::string::npos, damaged[0].find("step-20")) << what << ": " << damaged[0];
  }
  std::string of_20(const std::string& name) const { return parent_.file("step-20/" + name); }
  TemporaryDirectory parent_;
  FaultyFiles files_{Fault::none, -1};  // does not wait for the disk
  CheckpointStore store_{parent_.path(), {}, files_};
};

TEST_F(DamagedCheckpoints, AManifestCutAnywhereIsFound) {
  const std::string manifest = read_file(of_20(kManifest));
  for (std::size_t n = 0; n < manifest.size(); ++n) {
    write_file(of_20(kManifest), manifest.substr(0, n));
    expect_passed_over("manifest of " + std::to_string(n) + " bytes");
  }
  write_file(of_20(kManifest), manifest + " ");
  expect_passed_over("a byte more");
}

TEST_F(DamagedCheckpoints, EveryFlippedBitOfTheManifestIsFound) {
  const std::string manifest = read_file(of_20(kManifest));
  ASSERT_NE(std::string::npos, manifest.find("\"score\": 20.5"));
  for (std::size_t bit = 0; bit < 8 * manifest.size(); ++bit) {
    write_file(of_20(kManifest), with_flipped_bit(manifest, bit));
    expect_passed_over("bit " + std::to_string(bit % 8) + " of byte " + std::to_string(bit / 8));
  }
  write_file(of_20(kManifest), manifest);
  EXPECT_EQ(20, newest_step(parent_.path()));
}

TEST_F(DamagedCheckpoints, AThousandFlippedBitsOfTheFilesAreFound) {
  auto rng = generator("flips");
  for (int i = 0; i < 1000; ++i) {
    const std::string file = of_20(i % 2 ? "model" : "optimizer"), before = read_file(file);
    const int bit = draw_int(rng, 0, 8 * static_cast<int>(before.size()) - 1);
    write_file(file, with_flipped_bit(before, static_cast<std::size_t>(bit)));
    expect_passed_over(file + " bit " + std::to_string(bit % 8) + " of byte " + std::to_string(bit / 8));
    write_file(file, before);
  }
  EXPECT_EQ(20, newest_step(parent_.path()));
}

TEST_F(DamagedCheckpoints, FilesCutAnywhereMissingOrReplacedAreFound) {
  const std::string model = read_file(of_20("model"));
  for (std::size_t n = 0; n < model.size(); n += 7) {
    fs::resize_file(of_20("model"), n);
    expect_passed_over("model of " + std::to_string(n) + " bytes");
    write_file(of_20("model"), model);
  }
  for (const std::string name : {"model", "optimizer", "empty", kManifest}) {
    fs::rename(of_20(name), parent_.file("away"));
    expect_passed_over("no " + name);
    fs::create_directory(of_20(name));
    expect_passed_over("a directory " + name);
    fs::remove(of_20(name));
    fs::rename(parent_.file("away"), of_20(name));
  }
  write_file(of_20("model"), read_file(parent_.file("step-10/model")));
  expect_passed_over("another step's model");
  fs::copy_file(parent_.file("step-10/manifest.json"), of_20(kManifest),
                fs::copy_options::overwrite_existing);
  expect_passed_over("another step's manifest");
}

TEST_F(DamagedCheckpoints, WithAStepUnlikeTheirNameAreFound) {
  fs::rename(parent_.file("step-10"), parent_.file("step-11"));
  expect_error([&] { read_checkpoint(parent_.file("step-11"), CheckpointCheck::sizes); },
               {"of step 10", "after step 11"});
  fs::rename(parent_.file("step-11"), parent_.file("elsewhere"));
  EXPECT_EQ(10, read_checkpoint(parent_.file("elsewhere"), CheckpointCheck::contents).step)
      << "a copy may have any name";
}

// As an attacker would write it, with correct checksums.
TEST_F(DamagedCheckpoints, MaliciousManifestsAreRefused) {
  const auto refuse = [](const std::string& text, const std::string& word) {
    expect_error([&] { manifest_from_json("manifest", text); }, {"manifest", word});
  };
  for (const std::string name : {"../model", "/etc/passwd", ".", "..", "", "manifest.json"})
    refuse(to_json({1, {}, {{name, 0, ""}}}), "cannot be the name of a file");
  refuse(to_json({1, {}, {{"a", 0, ""}, {"a", 0, ""}}}), "two files called 'a'");
  refuse(R"({"format": "tandem checkpoint 1", "step": 1, "files": []})", "this version of Tandem reads");
  refuse(std::string(1 << 19, '[') + std::string(1 << 19, ']'), "are nested");
  std::string objects;
  for (int i = 0; i < 100'000; ++i) objects += R"({"a":)";
  refuse(objects, "are nested");
  for (const char* step : {"-1", "1.5", "1e3", "99999999999999999999", "null", "\"1\"", "[1]"})
    refuse(R"({"format": "tandem checkpoint 2", "step": )" + std::string(step) + R"(, "files": []})",
           "\"step\"");
  write_file(of_20(kManifest), std::string((1 << 20) + 1, ' '));
  expect_passed_over("a manifest of more than a megabyte");
}

TEST_F(DamagedCheckpoints, DoNotCountAmongThoseKept) {
  fs::resize_file(of_20("model"), 5);
  store_.save(30, checkpoint_files(30));
  EXPECT_EQ((std::vector<std::int64_t>{10, 20, 30}), checkpoint_steps(parent_.path()));
  store_.remove_after(10);
  EXPECT_EQ((std::vector<std::int64_t>{10}), checkpoint_steps(parent_.path()));
}

TEST_F(DamagedCheckpoints, AreReplaced) {
  fs::resize_file(of_20("model"), 5);
  store_.save(20, checkpoint_files(20));
  EXPECT_EQ(20, newest_step(parent_.path()));
}

// A flipped bit leaves all sizes as they were. A resumed run checks each checkpoint that it keeps once.
TEST_F(DamagedCheckpoints, WithTheRightSizesDoNotCountEither) {
  std::string model = read_file(of_20("model"));
  model[7] = static_cast<char>(model[7] ^ 1);
  write_file(of_20("model"), model);
  CheckpointStore later(parent_.path(), {}, files_);
  later.save(30, checkpoint_files(30));
  EXPECT_EQ((std::vector<std::int64_t>{10, 20, 30}), checkpoint_steps(parent_.path()))
      << "step 10 is still needed";
  fs::resize_file(parent_.file("step-30/model"), 0);
  EXPECT_EQ(10, newest_step(parent_.path(), 2));
}

// The best checkpoint is kept only for its score; a damaged one stays, too, but is not taken for the best.
TEST_F(DamagedCheckpoints, TheBestIsChosenAmongIntactOnes) {
  CheckpointStore store(parent_.path(), {.last = 2, .best = true}, files_);
  std::string model = read_file(of_20("model"));
  model[7] = static_cast<char>(model[7] ^ 1);
  write_file(of_20("model"), model);
  for (const int step : {30, 40}) store.save(step, checkpoint_files(step), 0);
  EXPECT_EQ((std::vector<std::int64_t>{10, 20, 30, 40}), checkpoint_steps(parent_.path()));
}

// A failing save must not remove the checkpoint that it was to replace.
TEST_F(DamagedCheckpoints, StayUntilTheirSuccessorExists) {
  fs::resize_file(of_20("model"), 5);
  expect_error(
      [&] {
        store_.save(20, {{"bad", [](const Sink&) { throw Error("no such luck"); }}});
      },
      {"no such luck"});
  EXPECT_EQ(5u, fs::file_size(of_20("model")));
  EXPECT_EQ(10, newest_step(parent_.path(), 1));
}

}  // namespace
}  // namespace tandem::testing
