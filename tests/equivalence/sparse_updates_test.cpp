// Sparse updates of tables have the bits of dense ones; where an update stays dense, it says why.
#include <algorithm>

#include <gtest/gtest.h>

#include <tandem/core/graph/graph_ops.h>
#include <tandem/dist/data_parallel.h>
#include <tandem/nn/layers.h>
#include <tandem/ops/embedding_bag.h>
#include <tandem/ops/matmul.h>
#include <tandem/ops/pointwise.h>
#include <tandem/ops/reduce.h>
#include <tandem/ops/shape.h>
#include <tandem/plan/build.h>

#include "training_run.h"

namespace tandem::testing {
using namespace engine;
namespace {

constexpr std::int64_t kRows = 9, kFeatures = 6;

// Whole numbers 0 … rows−1 from pixels; many are alike.
Tensor ids_of(const Tensor& x, std::int64_t rows = kRows) {
  return cast(clamp(scale(abs(x), static_cast<double>(rows)), 0, static_cast<double>(rows - 1)), DType::i32);
}

// A table, perhaps with another user.
struct Words : nn::Module {
  nn::Embedding table{*this, "table", {.count = kRows, .features = kFeatures}};
  nn::Linear hidden{*this, "hidden", {.in = kFeatures, .out = 8}}, head{*this, "head", {.in = 8, .out = 5}};
  Tensor forward(const Tensor& x) override { return head(tanh(hidden(mean(table(ids_of(x)), {1})))); }
};
// Two lookups of each text.
struct TwoLookups final : Words {
  Tensor forward(const Tensor& x) override {
    return head(tanh(hidden(mean(table(ids_of(x)) * table(ids_of(x * x)), {1}))));
  }
};
struct Tied final : nn::Module {
  nn::Embedding table{*this, "table", {.count = kRows, .features = kFeatures}};
  nn::Linear head{*this, "head", {.in = kRows, .out = 5}};
  Tensor forward(const Tensor& x) override { return head(linear(mean(table(ids_of(x)), {1}), table.weight)); }
};
template <BagMode mode, bool one_is_frozen = false> struct Bags final : nn::Module {
  Tensors tables;
  nn::Linear head{*this, "head", {.in = 3 * kFeatures, .out = 5}};
  Bags() {
    for (int k = 0; k < 3; ++k)
      tables.push_back(add_parameter("table" + std::to_string(k),
                                     Tensor::full({DType::f32, {kRows + k, kFeatures}}, 0.1 * (k + 1))));
    if (one_is_frozen) tables[1].requires_grad(false);
  }
  Tensor forward(const Tensor& x) override {
    const Tensor ids = reshape(ids_of(x, kRows + 1), {x.size(0), 3, x.size(1) / 3});
    return head(flatten(embedding_bag(tables, ids - 1, mode)));  // −1: no row
  }
};

// Two bags of one table, the second one with another table too: of unlike sizes.
template <BagMode mode, bool long_first> struct UnlikeBags final : nn::Module {
  Tensor table = add_parameter("table", Tensor::full({DType::f32, {kRows, kFeatures}}, 0.1)),
         other = add_parameter("other", Tensor::full({DType::f32, {kRows, kFeatures}}, 0.2));
  nn::Linear head{*this, "head", {.in = 4 * kFeatures, .out = 5}};
  Tensor forward(const Tensor& x) override {
    const std::int64_t n = x.size(0);
    const Tensor six = reshape(ids_of(x), {n, 1, 6}) - 1, three = reshape(ids_of(x), {n, 2, 3}) - 1,
                 one = reshape(ids_of(mean(x, {1})), {n, 1, 1});
    const Tensor both = flatten(embedding_bag({table, other}, three, mode));
    const Tensor a = flatten(embedding_bag({table}, long_first ? six : one, mode)),
                 b = flatten(embedding_bag({table}, long_first ? one : six, mode));
    return head(concat({a, b, both}, 1));
  }
};

template <class Net> Job job_of() {
  Job job = small_residual_job();
  job.model = [] { return std::make_unique<Net>(); };
  job.sample = {6};
  job.drains = {4};
  return job;
}
Strategy sgd() {
  Strategy s;
  s.optimizer = SgdOptions{};
  return s;
}

int sparse_nodes(const Job& job, const Strategy& s) {
  const Graph g = planned_graph(trace_job(job, job.batch_size / s.replicas / s.microbatches), s);
  return static_cast<int>(std::ranges::count_if(g.nodes(), [](const Node& n) {
    return n.op->name() == "sparse_sgd_update" ||
           n.op->attributes().find("sparse_sgd_update") != std::string::npos;
  }));
}

void expect_dense_bits(const Job& job, Strategy s, int tables) {
  EXPECT_EQ(tables, sparse_nodes(job, s));
  for (const auto& t : table_updates(trace_job(job, job.batch_size / s.replicas / s.microbatches), s))
    EXPECT_EQ("", t.why_not);
  const Outcome sparse = train(job, s);
  s.sparse_updates = false;
  EXPECT_EQ(0, sparse_nodes(job, s));
  expect_same_results(train(job, s), sparse);
}

template <class Net> void expect_dense_bits_everywhere(int tables) {
  Job job = job_of<Net>();
  for (const int microbatches : {1, 2, 4})
    for (const int replicas : {1, 2}) {
      SCOPED_TRACE(::testing::Message() << "microbatches " << microbatches << " replicas " << replicas);
      Strategy s = sgd();
      s.microbatches = microbatches;
      s.replicas = replicas;
      expect_dense_bits(job, s, tables);
    }
  job.seeds = {1, 2, 3};
  job.rates = {0.05, 0.1, 0.02};
  for (const int microbatches : {1, 2}) {
    SCOPED_TRACE(::testing::Message() << "3 models, microbatches " << microbatches);
    Strategy s = sgd();
    s.models = 3;
    s.microbatches = microbatches;
    expect_dense_bits(job, s, tables);
  }
}

TEST(SparseUpdates, HaveTheBitsOfDenseOnes) { expect_dense_bits_everywhere<Words>(1); }
TEST(SparseUpdates, HaveTheBitsOfDenseOnesWhereATableIsReadTwice) {
  expect_dense_bits_everywhere<TwoLookups>(1);
}
TEST(SparseUpdates, HaveTheBitsOfDenseOnesInBags) {
  expect_dense_bits_everywhere<Bags<BagMode::sum>>(3);
  expect_dense_bits_everywhere<Bags<BagMode::mean>>(3);
}

template <class Net> void expect_dense_bits_of_unlike_bags() {
  Job job = job_of<Net>();
  for (const int replicas : {1, 2}) {
    SCOPED_TRACE(::testing::Message() << "replicas " << replicas);
    Strategy s = sgd();
    s.replicas = replicas;
    expect_dense_bits(job, s, 2);
  }
  job.seeds = {1, 2, 3};
  job.rates = {0.05, 0.1, 0.02};
  Strategy s = sgd();
  s.models = 3;
  expect_dense_bits(job, s, 2);
}
TEST(SparseUpdates, HaveTheBitsOfDenseOnesInBagsOfUnlikeSizes) {
  expect_dense_bits_of_unlike_bags<UnlikeBags<BagMode::sum, true>>();
  expect_dense_bits_of_unlike_bags<UnlikeBags<BagMode::sum, false>>();
  expect_dense_bits_of_unlike_bags<UnlikeBags<BagMode::mean, true>>();
}

TEST(SparseUpdates, HaveTheBitsOfDenseOnesInPipelines) {
  const Job job = job_of<Words>();
  for (const std::string schedule : {"gpipe", "1f1b", "pipedream", "dualpipe"})
    for (const int microbatches : {1, 2}) {
      SCOPED_TRACE(::testing::Message() << schedule << " microbatches " << microbatches);
      Strategy s = sgd();
      s.schedule = schedule;
      s.stages = 2;
      s.cuts = {"head"};
      s.microbatches = microbatches;
      expect_dense_bits(job, s, 1);
    }
}

// Only reads and the update give an array of the table's size.
void expect_no_gradient_of_tables(const Job& job, const Shape& table) {
  const Graph g = planned_graph(trace_job(job, 8), sgd());
  for (const Node& n : g.nodes())
    for (const ValueId v : n.outputs)
      EXPECT_TRUE(g.type(v).shape != table || as<ReadOp>(n) || n.op->name() == "sparse_sgd_update")
          << n.op->label();
}
TEST(SparseUpdates, MakeNoGradientOfTheTable) {
  expect_no_gradient_of_tables(job_of<Words>(), {kRows, kFeatures});
}

// One node makes the gradients of all tables of a bag.
TEST(SparseUpdates, AFrozenTableOfABagHasNoGradientEither) {
  const Job job = job_of<Bags<BagMode::sum, true>>();
  expect_dense_bits(job, sgd(), 2);
  for (int k = 0; k < 3; ++k) expect_no_gradient_of_tables(job, {kRows + k, kFeatures});
}
TEST(SparseUpdates, StayDenseInABagWithATableThatIs) {
  const Job job = job_of<Bags<BagMode::sum>>();
  Strategy s = sgd();
  s.parameter_groups = {{.parameters = {"table1"}, .weight_decay = 0.1}};
  EXPECT_EQ(0, sparse_nodes(job, s));
  for (const TableUpdate& t : table_updates(trace_job(job, job.batch_size), s))
    EXPECT_EQ(
        t.path == "table1" ? "weight decay moves every row" : "another table of its bag has a dense update",
        t.why_not)
        << t.path;
}

TEST(SparseUpdates, LeaveOtherGradientsToThePoliciesOfAllReduces) {
  const Job job = job_of<Words>();
  Strategy s = sgd();
  s.replicas = 2;
  const auto names = [&] {
    std::vector<std::string> names;
    const auto devices = gradient_layers(trace_job(job, job.batch_size / 2), s);
    for (const GradientLayer& layer : devices.at(0)) names.push_back(layer.name);
    return names;
  };
  const std::vector<std::string> others = names();
  EXPECT_FALSE(others.empty());
  EXPECT_EQ(0, std::ranges::count(others, "table.weight"));
  s.sparse_updates = false;
  EXPECT_EQ(others.size() + 1, names().size());
  EXPECT_EQ(1, std::ranges::count(names(), "table.weight"));
  s.sparse_updates = true;
  s.fusion_groups = fusion_groups(gradient_layers(trace_job(job, job.batch_size / 2), s), "se");
  expect_dense_bits(job, s, 1);
}

std::string why_not(const Job& job, const Strategy& s) {
  const Graph forward = trace_job(job, job.batch_size / s.replicas / s.microbatches);
  const std::vector<TableUpdate> report = table_updates(forward, s);
  EXPECT_EQ(1u, report.size());
  EXPECT_EQ("table.weight", report.at(0).path);
  EXPECT_EQ(report.at(0).why_not.empty() ? 1 : 0, sparse_nodes(job, s));
  return report.at(0).why_not;
}

TEST(SparseUpdates, SayWhyTheyStayDense) {
  const Job words = job_of<Words>();
  EXPECT_EQ("", why_not(words, sgd()));
  EXPECT_EQ("its gradient comes not from lookups alone, but from matmul", why_not(job_of<Tied>(), sgd()));
  Strategy s = sgd();
  s.optimizer = SgdOptions{.momentum = 0.9};
  EXPECT_EQ("momentum moves every row", why_not(words, s));
  s.optimizer = SgdOptions{.weight_decay = 0.1};
  EXPECT_EQ("weight decay moves every row", why_not(words, s));
  s.optimizer = AdamOptions{};
  EXPECT_EQ("adam_update moves every row", why_not(words, s));
  s = sgd();
  s.gradients.clip_norm = 1;
  EXPECT_EQ("a rule for all gradients changes its gradient", why_not(words, s));
  s.gradients = {.clip_value = 1};
  EXPECT_EQ("a rule for all gradients changes its gradient", why_not(words, s));
  s.gradients = {.skip_non_finite = true};
  EXPECT_EQ("a rule over all gradients decides on its update", why_not(words, s));
}

}  // namespace
}  // namespace tandem::testing
