// A Trainer's run that only the library saves continues in fresh objects, bit-identical to an uninterrupted
// run. Any other checkpoint is refused by the file's name.
#include <filesystem>
#include <limits>
#include <memory>
#include <optional>
#include <stdexcept>

#include <gtest/gtest.h>

#include <tandem/core/base/error.h>
#include <tandem/core/graph/state_dict.h>
#include <tandem/datasets/shuffled_dataset.h>
#include <tandem/nn/layers.h>
#include <tandem/nn/safetensors.h>
#include <tandem/ops/pointwise.h>
#include <tandem/train/checkpoint_writer.h>
#include <tandem/train/train_checkpoint.h>
#include <tandem/train/trainer.h>

#include "checkpoint_files.h"
#include "class_dataset.h"
#include "expect_error.h"
#include "seed.h"
#include "temporary_directory.h"
#include "test_files.h"
#include "training_run.h"

namespace tandem::testing {
using namespace engine;
namespace {

namespace fs = std::filesystem;

// It has everything that a file stores differently from a Session: statistics, and columns that PyTorch
// orders differently.
struct Net : nn::Module {
  explicit Net(std::int64_t classes = 3) : head(*this, "head", {.in = 16, .out = classes}) {}
  nn::Linear first{*this, "first", {.in = 4, .out = 16}};
  nn::BatchNorm norm{*this, "norm", {.channels = 16}};
  nn::Linear second{*this, "second", {.in = 16, .out = 16, .image = {2, 2, 4}}};
  nn::Dropout drop{*this, "drop", 0.3};
  nn::Linear head;
  Tensor forward(const Tensor& x) override { return head(drop(relu(second(relu(norm(first(x))))))); }
};

struct Setting {
  const char* name;
  Optimizer optimizer;
  std::vector<double> lr;
  std::int64_t every;  // in batches; an epoch has 3
};

const Setting kMomentum{"Momentum", SgdOptions{.momentum = 0.9}, {0.05}, 2};

/// 22 samples in batches of 8, the last one of 6; two and a half epochs.
TrainerOptions options(const Setting& s) {
  TrainerOptions o;
  o.batch_size = 8;
  o.epochs = 0;
  o.batches = 8;
  o.lr = s.lr;
  o.lr_schedule = [](const RunLength& run, double) { return cosine_lr(run.total); };
  o.seeds.clear();
  for (std::size_t m = 0; m < s.lr.size(); ++m) o.seeds.push_back(run_seed() + m);
  o.test = std::make_shared<ClassDataset>(13, run_seed());
  o.checkpoint_every = s.every;
  o.strategy.optimizer = s.optimizer;
  o.strategy.models = static_cast<int>(s.lr.size());
  return o;
}

DatasetPtr samples() {
  return std::make_shared<ShuffledDataset>(std::make_shared<ClassDataset>(22, run_seed()), 5);
}

struct Told {
  std::vector<std::vector<double>> losses;  // by batch, from `first` on
  std::vector<EpochResult> epochs;
  EpochResult end;
  StateDict state;
  std::int64_t first = 0;
};

/// Creates all objects itself; the second time they start differently, so equal results come from the
/// checkpoint.
Told fit(const Setting& s, const std::string& directory, const std::optional<Checkpoint>& from,
         std::int64_t interrupted_at = -1) {
  const int models = static_cast<int>(s.lr.size());
  Net net;
  std::vector<StateDict> first(s.lr.size());
  for (std::size_t m = 0; m < first.size(); ++m) {
    Net drawn;
    drawn.initialize(run_seed() + 10 * m + (from ? 100 : 0));
    first[m] = drawn.state();
  }
  net.initialize(run_seed() + 200);
  Trainer trainer(net, samples(), options(s));
  trainer.load(stack_states(first));
  CheckpointWriter writer(
      CheckpointStore(directory, {.last = 100}),
      [](std::int64_t batch, const std::string& why) { ADD_FAILURE() << batch << ": " << why; });
  trainer.add({.before_checkpoint = [&] { writer.wait(); },
               .checkpoint =
                   [&](const CheckpointResult& c) {
                     writer.save(c.progress.batch, checkpoint_files(net, c, models));
                   }});
  if (from) trainer.load(*from);
  Told told;
  told.first = trainer.progress().batch;
  trainer.add({.batch =
                   [&](const BatchResult& b) {
                     if (b.batch == interrupted_at) throw std::runtime_error("interrupted");
                     told.losses.push_back(b.loss);
                   },
               .end_epoch = [&](const EpochResult& e) { told.epochs.push_back(e); }});
  told.end = trainer.fit();
  told.state = trainer.session().state();
  return told;
}

/// All results of `rest` equal those of `whole` for the same batches.
void expect_same_run(const Told& whole, const Told& rest) {
  ASSERT_EQ(8u, whole.losses.size());
  const std::vector<std::vector<double>> tail(whole.losses.begin() + rest.first, whole.losses.end());
  EXPECT_EQ(tail, rest.losses);
  expect_same_state(whole.state, rest.state);
  EXPECT_EQ(whole.end.loss, rest.end.loss);
  EXPECT_EQ(whole.end.accuracy, rest.end.accuracy);
  ASSERT_LE(rest.epochs.size(), whole.epochs.size());
  for (std::size_t e = 1; e <= rest.epochs.size(); ++e) {
    EXPECT_EQ(whole.epochs[whole.epochs.size() - e].loss, rest.epochs[rest.epochs.size() - e].loss);
    EXPECT_EQ(whole.epochs[whole.epochs.size() - e].accuracy, rest.epochs[rest.epochs.size() - e].accuracy);
  }
}

class SavedTraining : public ::testing::TestWithParam<Setting> {
 protected:
  TemporaryDirectory directory_;
};

TEST_P(SavedTraining, ContinuesInFreshObjectsBitwise) {
  const Setting& s = GetParam();
  const Told whole = fit(s, directory_.file("whole"), {});
  const auto steps = checkpoint_steps(directory_.file("whole"));
  ASSERT_GE(steps.size(), 3u);
  for (const std::int64_t step : steps) {
    SCOPED_TRACE(step);
    const Checkpoint from =
        read_checkpoint(directory_.file("whole/" + checkpoint_name(step)), CheckpointCheck::contents);
    const Told rest = fit(s, directory_.file("rest" + std::to_string(step)), from);
    EXPECT_EQ(step, rest.first);
    expect_same_run(whole, rest);
  }
}

TEST_P(SavedTraining, ContinuesAfterAnInterruption) {
  const Setting& s = GetParam();
  const Told whole = fit(s, directory_.file("whole"), {});
  EXPECT_THROW(fit(s, directory_.file("run"), {}, /*interrupted_at=*/5), std::exception);
  std::vector<std::string> damaged;
  const auto newest = newest_checkpoint(directory_.file("run"), damaged);
  ASSERT_TRUE(newest) << "saved before batch 5";
  EXPECT_EQ(5 / s.every * s.every, newest->step);
  expect_same_run(whole, fit(s, directory_.file("run"), newest));
  for (const auto& entry : fs::directory_iterator(directory_.file("whole/step-8")))
    EXPECT_EQ(read_file(entry.path()),
              read_file(directory_.file("run/step-8/" + entry.path().filename().string())))
        << entry.path();
}

INSTANTIATE_TEST_SUITE_P(Settings, SavedTraining,
                         ::testing::Values(kMomentum, Setting{"AdamEachBatch", AdamOptions{}, {0.01}, 1},
                                           Setting{"TwoModelsAdamW",
                                                   AdamOptions{.weight_decay = 0.05, .decoupled = true},
                                                   {0.01, 0.003},
                                                   2}),
                         [](const auto& info) { return std::string(info.param.name); });

/// One checkpoint, after batch 4, the second batch of the second epoch.
class SavedRun : public ::testing::Test {
 protected:
  SavedRun() {
    fit(kMomentum, directory_.path(), {});
    saved_ = read_checkpoint(directory_.file("step-4"), CheckpointCheck::contents);
    run_ = read_file(saved_.file(kRunFile));
  }
  void write(const std::string& name, const std::string& bytes) const {
    write_file(saved_.file(name), bytes);
  }
  /// `run.json` with one part replaced.
  std::string with(const std::string& part, const std::string& other) const {
    std::string text = run_;
    const std::size_t at = text.find(part);
    EXPECT_NE(std::string::npos, at) << part << " is not in " << text;
    return text.replace(at, part.size(), other);
  }
  void expect_refused(const std::string& text, const std::string& why) const {
    write(kRunFile, text);
    expect_error([&] { read_progress(saved_); }, {saved_.file(kRunFile), why});
  }
  void load(TrainerOptions o, nn::Module& net) const {
    net.initialize(1);
    Trainer trainer(net, samples(), std::move(o));
    trainer.load(saved_);
  }
  /// A checkpoint's files in memory.
  static CheckpointResult result(Net& net) {
    net.initialize(1);
    return {.progress = {.batch = 1, .losses = {{1}, {0.5}}}, .state = net.state(), .accuracy = {}};
  }
  TemporaryDirectory directory_;
  Checkpoint saved_;
  std::string run_;
  Net net_;
};

TEST_F(SavedRun, IsReadAsItWasSaved) {
  CheckpointResult four;
  net_.initialize(run_seed());
  Trainer trainer(net_, samples(), options(kMomentum));
  trainer.add({.checkpoint = [&](const CheckpointResult& c) {
    if (c.progress.batch == 4) four = {c.progress, {}, {}};
  }});
  trainer.fit();
  const TrainProgress p = read_progress(saved_);
  EXPECT_EQ(4, p.batch);
  EXPECT_EQ(four.progress.losses.batches, p.losses.batches);
  EXPECT_EQ(four.progress.losses.sum, p.losses.sum);
  EXPECT_EQ(four.progress.best_accuracy, p.best_accuracy);
  EXPECT_EQ(four.progress.epochs_since_best, p.epochs_since_best);
  net_.initialize(7);
  const Tensor before = Tensor::from(net_.state().at("head.weight").values(), {3, 16});
  const auto model = read_model_state(net_, saved_), all = read_state(net_, saved_);
  EXPECT_EQ(before.values(), net_.state().at("head.weight").values()) << "the model is unchanged";
  EXPECT_EQ(net_.named_parameters().size(), model.size());
  for (const auto& [path, tensor] : model) EXPECT_EQ(tensor.values(), all.at(path).values()) << path;
  EXPECT_TRUE(all.contains("optimizer.momentum.head.weight"));
  EXPECT_FALSE(model.contains("optimizer.momentum.head.weight"));
}

TEST_F(SavedRun, WithTruncatedOrMissingProgressIsRefusedByName) {
  ASSERT_EQ(4, read_progress(saved_).batch);
  for (std::size_t n = 0; n + 2 < run_.size(); ++n) expect_refused(run_.substr(0, n), "run state");
  fs::remove(saved_.file(kRunFile));
  expect_error([&] { read_progress(saved_); }, {saved_.file(kRunFile), "cannot be read: No such file"});
  expect_error([&] { load(options(kMomentum), net_); }, {saved_.file(kRunFile), "No such file"});
}

TEST_F(SavedRun, WithAnyByteOfItsProgressChangedIsReadOrRefusedByName) {
  int refused = 0;
  auto rng = generator("bits of run.json");
  for (std::size_t byte = 0; byte < run_.size(); ++byte) {
    write(kRunFile, with_flipped_bit(run_, 8 * byte + static_cast<std::size_t>(draw_int(rng, 0, 7))));
    try {
      EXPECT_EQ(4, read_progress(saved_).batch);
    } catch (const Error& e) {
      EXPECT_NE(std::string::npos, std::string(e.what()).find(saved_.file(kRunFile))) << e.what();
      ++refused;
    }
  }
  EXPECT_GT(refused, 20) << "most of them are not JSON, or lack a field";
}

TEST_F(SavedRun, WithForeignProgressIsRefusedByName) {
  for (const char* foreign :
       {"{}", "[]", "null", "\"run\"", R"({"format": "tandem checkpoint 2", "step": 4})"})
    expect_refused(foreign, foreign[0] == '{' ? "\"losses\" is missing" : "an object is expected");
  expect_refused(with("\"batch\": 4", "\"batch\": 3"), "it is of batch 3, but the checkpoint is of 4");
  expect_refused(with("\"batch\": 4", "\"batch\": -4"), "an integer from 0");
  expect_refused(with("\"batch\": 4", "\"batch\": 4.0"), "an integer from 0");
  expect_refused(with("\"batch\": 4", "\"batch\": 4, \"batch\": 4"), "\"batch\" is given twice");
  expect_refused(with("\"sum\": [", "\"sum\": [1, "),
                 "sums of losses for 2 models, but numbers of batches for 1");
  expect_refused(with("\"sum\": [", "\"sum\": [\"a\", "), "a number from");
  expect_refused(with("\"not_finite\": 0", "\"not_finite\": 0, \"more\": 1"), "unknown key 'more'");
  expect_refused(with("\"best_accuracy\": ", "\"best_accuracy\": 1"), "a number from -1 to 1 is expected");
  write(kRunFile, run_);
  expect_error([&] { read_progress(saved_, 2); }, {saved_.file(kRunFile), "losses for 1 model, not for 2"});
}

// As train_cifar wrote it before the library did, without fields that did not exist yet.
TEST_F(SavedRun, OfAnOlderVersionIsRead) {
  write(kRunFile, R"({"batch": 4, "epoch": 1,
 "losses": {"batches": [1], "sum": [0.75], "not_finite": 0},
 "train_data": "a", "test_data": "b",
 "arguments": {"models": 1}}
)");
  const TrainProgress p = read_progress(saved_);
  EXPECT_EQ(std::vector{0.75}, p.losses.sum);
  EXPECT_EQ(-1, p.best_accuracy);
  EXPECT_EQ(0, p.rollbacks);
}

TEST_F(SavedRun, WithDamagedOrMissingStateIsRefusedByName) {
  for (const char* name : {"model.safetensors", "optimizer.safetensors"}) {
    const std::string whole = read_file(saved_.file(name));
    for (const std::size_t n : {std::size_t{0}, std::size_t{7}, whole.size() / 2, whole.size() - 1}) {
      write(name, whole.substr(0, n));
      expect_error([&] { load(options(kMomentum), net_); }, {saved_.file(name)});
    }
    fs::remove(saved_.file(name));
    expect_error([&] { load(options(kMomentum), net_); }, {saved_.file(name), "No such file"});
    write(name, whole);
  }
  load(options(kMomentum), net_);
  StateDict both = nn::SafetensorsFile(saved_.file("optimizer.safetensors")).read_all();
  both.emplace("head.bias", Tensor::zeros({DType::f32, {3}}));
  write_durably(Files::system(), saved_.file("optimizer.safetensors"),
                [&](const Sink& sink) { nn::write_safetensors(both, sink); });
  expect_error([&] { load(options(kMomentum), net_); },
               {saved_.file("optimizer.safetensors"), "'head.bias', which belongs to the model"});
  both.erase("head.bias");
  both.erase("optimizer.momentum.first.bias");
  write_durably(Files::system(), saved_.file("optimizer.safetensors"),
                [&](const Sink& sink) { nn::write_safetensors(both, sink); });
  expect_error([&] { load(options(kMomentum), net_); },
               {saved_.path, "state 'optimizer.momentum.first.bias' is missing"});
}

TEST_F(SavedRun, OfAnotherTrainingIsRefused) {
  const auto refused = [&](const Setting& s, const std::string& why) {
    expect_error([&] { load(options(s), net_); }, {saved_.path, why, "the options that it was saved with"});
  };
  refused({"Adam", AdamOptions{}, {0.01}, 2}, "no state 'optimizer.momentum.first.bias'");
  refused({"Plain", SgdOptions{}, {0.01}, 2}, "no state 'optimizer.momentum.first.bias'");
  expect_error(
      [&] {
        load(options({"Two", SgdOptions{.momentum = 0.9}, {0.1, 0.2}, 2}), net_);
      },
      {saved_.file(kRunFile), "losses for 1 model, not for 2"});
  const auto misfit = [&](nn::Module& other, const std::string& why) {
    expect_words(message_of([&] { load(options(kMomentum), other); }),
                 {saved_.file("model.safetensors"), why});
  };
  TrainerOptions shorter = options(kMomentum);
  shorter.batches = 3;
  expect_error([&] { load(std::move(shorter), net_); },
               {saved_.path, "4 batches are trained already, and the run ends after 3"});
  Net wider(4);
  misfit(wider, "mismatched: head.weight: f32[3, 16], the model's f32[4, 16]");
}

// Converted weights would silently be those of another run.
TEST_F(SavedRun, OfAnotherTypeIsRefused) {
  const nn::DtypeScope dtype(DType::f64);
  Net doubled;
  EXPECT_THROW(read_model_state(doubled, saved_), Error);
}

TEST_F(SavedRun, HoldsTheNotesOfItsProgram) {
  const CheckpointResult one = result(net_);
  const RunNotes notes{{"arguments", R"({"width": 16})"}, {"data", "\"drawn\""}};
  const Checkpoint noted =
      CheckpointStore(directory_.file("noted")).save(1, checkpoint_files(net_, one, 1, notes));
  EXPECT_EQ(1, read_progress(noted).batch);
  EXPECT_NE(std::string::npos,
            read_file(noted.file(kRunFile)).find("\"arguments\": {\"width\": 16},\n \"data\": \"drawn\"}"));
  for (const RunNotes& wrong : {RunNotes{{"batch", "5"}}, RunNotes{{"a", "1"}, {"a", "2"}}})
    expect_error([&] { checkpoint_files(net_, one, 1, wrong); }, {"is given twice"});
  EXPECT_THROW(checkpoint_files(net_, one, 1, {{"a", "{"}}), Error);
}

TEST_F(SavedRun, NeedsItsModelOnlyUntilItsFilesAreMade) {
  CheckpointResult one;
  std::vector<CheckpointFile> files;
  {
    Net gone;
    one = result(gone);
    for (auto& [path, tensor] : one.state) {  // a copy, as a Trainer makes it
      Tensor copy = Tensor::empty(tensor.type());
      std::copy_n(tensor.as<std::byte>(), tensor.type().bytes(), copy.as<std::byte>());
      tensor = copy;
    }
    files = checkpoint_files(gone, one);
  }
  const Checkpoint saved = CheckpointStore(directory_.file("gone")).save(1, files);
  expect_same_state(one.state, read_state(net_, saved));
  EXPECT_THROW(checkpoint_files(net_, one, 2), Error) << "the state is that of one model";
}

// It could not be read back: the save fails, and the previous checkpoint is the newest.
TEST_F(SavedRun, WithOverflowedSumsIsNotSaved) {
  CheckpointResult one = result(net_);
  one.progress.losses.sum = {std::numeric_limits<double>::infinity()};
  CheckpointStore store(directory_.file("overflowed"));
  EXPECT_THROW(store.save(1, checkpoint_files(net_, one)), Error);
  EXPECT_TRUE(checkpoint_steps(store.directory()).empty());
}

}  // namespace
}  // namespace tandem::testing
