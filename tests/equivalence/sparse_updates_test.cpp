// Sparse updates of tables have the bits of dense ones; where an update stays dense, it says why.
#include <algorithm>

#include <gtest/gtest.h>

#include <tandem/core/graph/graph_ops.h>
#include <tandem/dist/data_parallel.h>
#include <tandem/nn/layers.h>
#include <tandem/nn/models/whole_networks.h>
#include <tandem/ops/copy.h>
#include <tandem/ops/embedding_bag.h>
#include <tandem/ops/index.h>
#include <tandem/ops/matmul.h>
#include <tandem/ops/pointwise.h>
#include <tandem/ops/reduce.h>
#include <tandem/ops/shape.h>
#include <tandem/plan/build.h>
#include <tandem/plan/optimizer.h>

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

// The table is looked up before and after the cut at `head`.
struct OnTwoStages final : Words {
  nn::Linear last{*this, "last", {.in = kFeatures, .out = 5}};
  Tensor forward(const Tensor& x) override {
    const Tensor scores = Words::forward(x);
    return scores + last(mean(table(ids_of(x * x)), {1}));
  }
};
// Both a lookup of single rows and a bag read it.
struct BagAndLookup final : Words {
  Tensor forward(const Tensor& x) override {
    const Tensor bag = embedding_bag({table.weight}, reshape(ids_of(x), {x.size(0), 1, x.size(1)}));
    return head(tanh(hidden(mean(table(ids_of(x)), {1}) + flatten(bag))));
  }
};
// The gradients of bags do not add to one another in one op.
struct TwoBags final : Words {
  Tensor forward(const Tensor& x) override {
    const Tensor ids = reshape(ids_of(x), {x.size(0), 1, x.size(1)});
    return head(tanh(
        hidden(flatten(embedding_bag({table.weight}, ids) * embedding_bag({table.weight}, scale(ids, 0))))));
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
void expect_no_gradient_of_tables(const Graph& planned, const Shape& table) {
  for (const Node& n : planned.nodes())
    for (const ValueId v : n.outputs)
      EXPECT_TRUE(planned.type(v).shape != table || as<ReadOp>(n) || n.op->name() == "sparse_sgd_update")
          << n.op->label();
}
void expect_no_gradient_of_tables(const Job& job, const Shape& table) {
  expect_no_gradient_of_tables(planned_graph(trace_job(job, 8), sgd()), table);
}
TEST(SparseUpdates, MakeNoGradientOfTheTable) {
  expect_no_gradient_of_tables(job_of<Words>(), {kRows, kFeatures});
}

Graph traced_with_zeros(const nn::WholeNetwork& network) {
  nn::fill_with_zeros(*network.module);
  return traced_loss(network);
}
TEST(SparseUpdates, AreThoseOfAllTablesOfADlrm) {
  const auto tables = table_updates(traced_with_zeros(nn::make_network("dlrm", "clicks", 2)), sgd());
  EXPECT_EQ(26u, tables.size());
  for (const TableUpdate& table : tables) EXPECT_EQ("", table.why_not) << table.path;

  const nn::DlrmOptions small{.numbers = 4, .rows = {50, 70, 30}, .width = 8, .bottom = {10}, .top = {12}};
  const Graph forward = traced_with_zeros(nn::dlrm_network(small, 2));
  Strategy s = sgd();
  s.replicas = s.microbatches = 2;
  for (const std::int64_t rows : small.rows)
    expect_no_gradient_of_tables(planned_graph(forward, s), {rows, small.width});
  const Program program = build(forward, s);
  for (const Instruction& i : program.instructions) EXPECT_EQ(nullptr, as<EmbeddingBagGradOp>(i)) << i.name;
}

// The lookup adds its rows to the gradient of the head, in place.
TEST(SparseUpdates, ATableThatAHeadAlsoReadsHasOneGradient) {
  const Shape table{kRows, kFeatures};
  const Job job = job_of<Tied>();
  const Graph planned = planned_graph(trace_job(job, job.batch_size), sgd());
  std::vector<std::string> ops;  // that make an array of the table's size
  for (const Node& n : planned.nodes())
    for (const ValueId v : n.outputs)
      if (planned.type(v).shape == table && !as<ReadOp>(n)) ops.push_back(n.op->label());
  EXPECT_EQ((std::vector<std::string>{"matmul", "embedding_grad", "sgd_update"}), ops);

  const Program program = program_of(job, sgd());
  const auto found = std::ranges::find_if(
      program.instructions, [](const Instruction& i) { return as<EmbeddingGradOp>(i) != nullptr; });
  ASSERT_NE(program.instructions.end(), found);
  ASSERT_EQ(3u, found->reads.size());
  EXPECT_TRUE(found->in_place);
  const Member &onto = program.member(found->reads[2]), &sum = program.member(found->writes[0]);
  EXPECT_EQ(onto.block, sum.block);
  EXPECT_EQ(onto.offset, sum.offset);
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
  const std::string guarded = "a rule over all gradients, or a mask of models, decides on its update";
  EXPECT_EQ(guarded, why_not(words, s));
  s.gradients = {.loss_scale = LossScale{}};
  EXPECT_EQ(guarded, why_not(words, s));
  s = sgd();
  s.models = 2;
  s.masks_models = true;
  EXPECT_EQ(guarded, why_not(words, s));
  EXPECT_EQ("different lookups read it", why_not(job_of<BagAndLookup>(), sgd()));
  s = sgd();
  s.microbatches = 2;
  EXPECT_EQ("its gradient is not a sum over micro-batches", why_not(job_of<TwoBags>(), s));
}

TEST(SparseUpdates, SayWhyTheyStayDenseOfSeveralModelsOrStages) {
  const Job words = job_of<Words>();
  Strategy s = sgd();
  s.models = 2;
  s.replicas = 2;
  EXPECT_EQ("several models on several replicas share it", why_not(words, s));
  s = sgd();
  s.models = 2;
  s.each = {{.optimizer = SgdOptions{}}, {.optimizer = SgdOptions{.weight_decay = 0.1}}};
  EXPECT_EQ("the models update it differently", why_not(words, s));
  s.arrays = {1, 1};
  EXPECT_EQ("weight decay moves every row",
            table_updates(trace_job(words, words.batch_size), s).at(0).why_not)
      << "of the second array";
  s = sgd();
  s.schedule = "gpipe";
  s.stages = 2;
  s.cuts = {"head"};
  EXPECT_EQ("", why_not(words, s));
  EXPECT_EQ("stages of a pipeline share it", why_not(job_of<OnTwoStages>(), s));
}

// No strategy makes other readers today.
TEST(SparseUpdates, StayDenseIfSomethingElseReadsTheGradient) {
  const Job words = job_of<Words>();
  for (const auto& [phase, why] : {std::pair(Phase::backward, "copy also reads its gradient"),
                                   {Phase::update, "several nodes read its gradient"}}) {
    const Optimizer optimizer = SgdOptions{};
    const std::vector<ParameterGroup> groups;
    TrainingGraph training = add_updates(training_graph(trace_job(words, words.batch_size)),
                                         {.optimizer = optimizer, .groups = groups});
    const StateId table = training.graph.find_state("table.weight");
    training.graph.add(std::make_shared<CopyOp>(), {training.grads.at(table)}, tag_of(phase, "reader"));
    std::vector<TableUpdate> report;
    sparse_updates(std::move(training), &report);
    ASSERT_EQ(1u, report.size());
    EXPECT_EQ(why, report[0].why_not);
  }
}

}  // namespace
}  // namespace tandem::testing
