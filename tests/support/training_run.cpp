#include "training_run.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include <gtest/gtest.h>

#include <tandem/core/base/convert.h>
#include <tandem/core/base/error.h>
#include <tandem/core/base/rng.h>
#include <tandem/core/graph/kernel.h>
#include <tandem/core/graph/state_dict.h>
#include <tandem/core/graph/trace.h>
#include <tandem/dist/thread_comm.h>
#include <tandem/nn/layers.h>
#include <tandem/nn/models/convnet.h>
#include <tandem/nn/models/mlp.h>
#include <tandem/ops/loss.h>
#include <tandem/ops/pointwise.h>
#include <tandem/ops/shape.h>
#include <tandem/plan/build.h>
#include <tandem/plan/memory_budget.h>

#include "expect_error.h"

namespace tandem::testing {
using namespace engine;

void JobHost::fill(const HostInput& in) {
  const std::int64_t samples = job_.batch_size / in.rank.replicas / microbatches_;
  const std::int64_t first = (std::int64_t{in.rank.replica} * microbatches_ + in.microbatch) * samples;
  const std::int64_t elements = element_count(job_.sample);
  if (in.name == "images") {
    for (std::int64_t i = 0; i < samples * elements; ++i)
      in.set(i, pixel(job_, in.batch, first + i / elements, i % elements));
  } else if (in.name == kLabelsInput) {
    for (std::int64_t i = 0; i < samples; ++i) in.set(i, label(job_, in.batch, first + i));
  } else if (in.name == kLearningRateInput) {
    for (std::int64_t m = 0; m < in.type.elements(); ++m)
      in.set(m, job_.rate(static_cast<std::size_t>(in.models.first + m), in.batch));
  } else if (in.name == kSeedInput) {
    for (std::int64_t m = 0; m < in.type.elements(); ++m)
      in.as<std::int64_t>()[static_cast<std::size_t>(m)] =
          static_cast<std::int64_t>(job_.seeds.at(static_cast<std::size_t>(in.models.first + m)));
  } else {
    throw Error("no input called " + in.name);
  }
}

void JobHost::deliver(const HostResult& result) {
  if (result.rank.replica != 0) return;
  const std::lock_guard lock(mutex_);
  const auto at_batch = [&](auto& list) -> auto& {
    if (std::ssize(list) <= result.batch) list.resize(static_cast<std::size_t>(result.batch) + 1);
    return list[static_cast<std::size_t>(result.batch)];
  };
  if (result.name == kLossResult) {
    const auto first = static_cast<std::size_t>(result.models.first);
    std::vector<double>& all = at_batch(losses);
    const std::vector<double> values = result.values();
    all.resize(std::max(all.size(), first + values.size()));
    std::ranges::copy(values, all.begin() + static_cast<std::ptrdiff_t>(first));
  }
  if (result.name == kPredictionResult)
    at_batch(predictions) = prediction_errors(result, measured_, static_cast<int>(job_.seeds.size()));
}

namespace {
RngKey data_key(const Job& job, std::int64_t batch, std::string_view what) {
  return {job.data_seed, static_cast<std::uint64_t>(job.period > 0 ? batch % job.period : batch),
          fnv1a(what)};
}
}  // namespace

double pixel(const Job& job, std::int64_t batch, std::int64_t sample, std::int64_t element) {
  const RngKey key = data_key(job, batch, "pixels");
  return 2.0 * uniform(key, static_cast<std::uint64_t>(sample), static_cast<std::uint64_t>(element)) - 1;
}

std::int32_t label(const Job& job, std::int64_t batch, std::int64_t sample) {
  const RngKey key = data_key(job, batch, "labels");
  return static_cast<std::int32_t>(uniform(key, static_cast<std::uint64_t>(sample), 0) *
                                   static_cast<float>(job.classes));
}

Tensor images_of(const Job& job, std::int64_t batch) {
  Shape shape = job.sample;
  shape.insert(shape.begin(), job.batch_size);
  Tensor images = Tensor::empty({job.dtype, shape});
  const std::int64_t elements = element_count(job.sample);
  for (std::int64_t i = 0; i < images.elements(); ++i)
    store_element(job.dtype, images.data(), i, pixel(job, batch, i / elements, i % elements));
  return images;
}

Tensor labels_of(const Job& job, std::int64_t batch) {
  Tensor labels = Tensor::empty({DType::i32, {job.batch_size}});
  for (std::int64_t i = 0; i < labels.elements(); ++i) labels.as<std::int32_t>()[i] = label(job, batch, i);
  return labels;
}

Graph trace_job(const Job& job, std::int64_t samples) {
  nn::set_default_dtype(job.dtype);
  const auto model = job.model();
  model->initialize(job.seeds[0]);
  Graph graph;
  Trace trace(graph);
  Shape shape = job.sample;
  shape.insert(shape.begin(), samples);
  const Tensor images = trace.input("images", {job.dtype, shape});
  const Tensor labels = trace.input(kLabelsInput, {DType::i32, {samples}});
  const Tensor logits = job.logits(*model, images);
  const Scope scope("loss");
  trace.result(kLossResult, cross_entropy(logits, labels));
  return graph;
}

Program program_of(const Job& job, const Strategy& strategy) {
  return build(trace_job(job, job.batch_size / strategy.replicas / strategy.microbatches), strategy);
}

StateDict initial_state(const Job& job) {
  nn::set_default_dtype(job.dtype);
  std::vector<StateDict> models;
  for (std::uint64_t seed : job.seeds) {
    const auto model = job.model();
    model->initialize(seed);
    models.push_back(model->state());
  }
  return stack_states(models);
}

namespace {
// Every planned byte is touched once a run is long enough to use all slots.
void expect_peaks(const Outcome& outcome, const std::vector<std::int64_t>& drains) {
  int slots = 1;
  for (const MemoryBlock& b : outcome.program.blocks) slots = std::max(slots, b.slots);
  EXPECT_LE(outcome.executed_peak, outcome.planned_peak);
  if (*std::max_element(drains.begin(), drains.end()) >= slots) {
    EXPECT_EQ(outcome.executed_peak, outcome.planned_peak);
  }
}
}  // namespace

Outcome train(const Job& job, Strategy strategy, std::unique_ptr<Comm> process) {
  std::vector<std::unique_ptr<Comm>> comms;
  if (process)
    comms.push_back(std::move(process));
  else
    comms = thread_comms(strategy.ranks());
  return train(job, strategy, std::move(comms));
}

Outcome train(const Job& job, Strategy strategy, std::vector<std::unique_ptr<Comm>> comms) {
  strategy.models = static_cast<int>(job.seeds.size());
  Outcome outcome;
  outcome.program = program_of(job, strategy);
  JobHost host(job, strategy.microbatches, strategy.measure_prediction);
  // The rank that receives all ranks' results is here.
  const bool root = std::ssize(comms) != 1 || comms[0]->rank() == strategy.devices() - 1;
  Session session(outcome.program, std::move(comms), host, {.spans = 20'000, .poison = job.poison});
  session.load(initial_state(job));
  std::int64_t first = 0;
  for (std::int64_t batches : job.drains) {
    session.run(first, batches);
    first += batches;
  }
  outcome.losses = std::move(host.losses);
  outcome.predictions = std::move(host.predictions);
  outcome.state = session.state(strategy.devices() - 1);
  outcome.planned_peak = session.planned_peak();
  outcome.executed_peak = session.executed_peak(strategy.devices() - 1);
  outcome.timeline = session.timeline();
  if (root) expect_peaks(outcome, job.drains);
  return outcome;
}

double largest_difference(const Outcome& a, const Outcome& b) {
  constexpr double kAll = std::numeric_limits<double>::infinity();
  double largest = 0;
  const auto compare = [&](const std::vector<double>& x, const std::vector<double>& y) {
    if (x.size() != y.size()) largest = kAll;
    for (std::size_t i = 0; i < std::min(x.size(), y.size()); ++i) {
      const double difference = std::abs(x[i] - y[i]) / std::max(1.0, std::abs(x[i]));
      largest = std::isfinite(difference) ? std::max(largest, difference) : kAll;
    }
  };
  if (a.losses.size() != b.losses.size() || a.state.size() != b.state.size()) return kAll;
  for (std::size_t i = 0; i < a.losses.size(); ++i) compare(a.losses[i], b.losses[i]);
  for (const auto& [path, tensor] : a.state) {
    if (!b.state.contains(path)) return kAll;
    compare(tensor.values(), b.state.at(path).values());
  }
  return largest;
}

Job small_residual_job(DType dtype) {
  Job job;
  job.sample = {2, 2, 3};
  job.dtype = dtype;
  job.drains = {3, 2};
  job.model = [] {
    return std::make_unique<nn::MlpResidual>(
        nn::MlpOptions{.in = 12, .hidden = 16, .classes = 5, .blocks = 4});
  };
  return job;
}

Job wide_residual_job(DType dtype) {
  Job job = small_residual_job(dtype);
  job.model = [] {
    return std::make_unique<nn::MlpResidual>(
        nn::MlpOptions{.in = 12, .hidden = 256, .classes = 5, .blocks = 2});
  };
  return job;
}

Job convolutional_job() {
  Job job = small_residual_job();
  job.sample = {8, 8, 3};
  job.model = [] {
    return std::make_unique<nn::ConvNet>(nn::ConvNetOptions{.classes = 5, .widths = {4, 8, 8}});
  };
  return job;
}

namespace {
struct Dropping : nn::Module {
  nn::Linear first{*this, "first", {12, 24}}, second{*this, "second", {24, 24}}, head{*this, "head", {24, 5}};
  nn::Dropout drop0{*this, "drop0", 0.3}, drop1{*this, "drop1", 0.5};
  Tensor forward(const Tensor& x) override {
    return head(drop1(gelu(second(drop0(gelu(first(flatten(x))))))));
  }
};
}  // namespace

Job dropout_job() {
  Job job = small_residual_job();
  job.model = [] { return std::make_unique<Dropping>(); };
  return job;
}

Job with_models(Job job, int models) {
  job.seeds.clear();
  job.rates.clear();
  for (int m = 0; m < models; ++m) {
    job.seeds.push_back(static_cast<std::uint64_t>(10 + m));
    job.rates.push_back(0.01 * (1 + m));
  }
  return job;
}

Strategy plain() {
  Strategy s;
  s.optimizer = SgdOptions{.momentum = 0.9, .weight_decay = 1e-3};
  return s;
}

void expect_same_state(const StateDict& a, const StateDict& b) {
  ASSERT_EQ(a.size(), b.size());
  for (const auto& [path, tensor] : a) {
    ASSERT_TRUE(b.contains(path)) << path;
    ASSERT_EQ(tensor.type(), b.at(path).type()) << path;
    EXPECT_EQ(0,
              std::memcmp(tensor.data(), b.at(path).data(), static_cast<std::size_t>(tensor.type().bytes())))
        << path << " differs";
  }
}

void expect_same_results(const Outcome& a, const Outcome& b) {
  EXPECT_EQ(a.losses, b.losses);
  expect_same_state(a.state, b.state);
}

void expect_same_training(const Outcome& expected, const Outcome& out) {
  expect_same_results(expected, out);
  EXPECT_EQ(out.planned_peak, out.executed_peak);
}

bool expect_same_within(const Job& job, Strategy s, const Outcome& kept, double share) {
  bool saves = false;
  const std::int64_t state = kept.program.memory[0].state, above = kept.planned_peak - state;
  s.memory_budget = state + static_cast<std::int64_t>(share * static_cast<double>(above));
  const auto expect_same = [&] {
    const Outcome out = train(job, s);
    expect_same_training(kept, out);
    EXPECT_LE(out.planned_peak, s.memory_budget);
    saves = out.planned_peak < kept.planned_peak;
  };
  try {
    expect_same();
  } catch (const BudgetTooSmall& e) {
    expect_words(e.what(), {"the smallest budget that works"});
    EXPECT_GT(e.smallest, s.memory_budget);
    s.memory_budget = e.smallest;
    expect_same();
  }
  return saves;
}

}  // namespace tandem::testing
