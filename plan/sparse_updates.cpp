#include <tandem/plan/sparse_updates.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include <fmt/format.h>

#include <tandem/core/graph/graph_ops.h>
#include <tandem/core/graph/graph_rewrite.h>
#include <tandem/ops/collective.h>
#include <tandem/ops/embedding_bag.h>
#include <tandem/ops/index.h>
#include <tandem/ops/mapped.h>
#include <tandem/ops/pointwise.h>
#include <tandem/ops/sparse_update.h>
#include <tandem/ops/update.h>

namespace tandem::engine {
namespace {

// An op that may run once per model.
template <class O> const O* inner_as(const Node& node) {
  const auto* mapped = as<MappedOp>(node);
  return dynamic_cast<const O*>(mapped ? mapped->inner.get() : node.op.get());
}

bool is_sum_of_two(const Node& node) {
  const auto* pointwise = as<PointwiseOp>(node);
  return pointwise && node.inputs.size() == 2 && pointwise->expression.size() == 3 &&
         pointwise->expression.back().code == PointwiseCode::add;
}

// The ids and rows that a node adds to a table's gradient.
struct Lookup {
  NodeId gradient;  // the node that adds them in a dense update
  ValueId ids, rows;
  const MappedOp* models;  // null: one model
};

// A gradient that consists of lookups alone.
struct Found {
  TableGradient form;
  std::vector<Lookup> lookups{};
  std::vector<ValueId> unused{};  // values that only the dense update reads
  int replicas = 1;
  NodeId all_reduce = -1;
};

// Thrown inside this file: why an update stays dense.
struct Dense {
  std::string why;
};

class Search {
 public:
  explicit Search(const Graph& g) : g_(g), readers_(g.readers()) {}

  Found gradient(ValueId gradient, const State& table) const {
    Found found;
    found.form.parts.clear();
    require_one_reader(gradient);
    found.unused.push_back(gradient);
    if (const auto* reduce = as<AllReduceOp>(g_.producer(gradient))) {
      found.replicas = reduce->replicas;
      found.all_reduce = g_.value(gradient).producer;
      const auto& outputs = g_.node(found.all_reduce).outputs;
      const auto place = static_cast<std::size_t>(std::ranges::find(outputs, gradient) - outputs.begin());
      gradient = g_.node(found.all_reduce).inputs[place];
      require_one_reader(gradient);
      found.unused.push_back(gradient);
    }
    add_parts(gradient, table, found);
    if (found.replicas > 1) {
      if (found.lookups[0].models) throw Dense{"several models on several replicas share it"};
      found.form.replicas = found.replicas;
    }
    return found;
  }

 private:
  void require_one_reader(ValueId v) const {
    for (const NodeId n : readers_[v])
      if (readers_[v].size() > 1 && g_.node(n).tag.phase != Phase::update)
        throw Dense{fmt::format("{} also reads its gradient", g_.node(n).op->label())};
    if (readers_[v].size() > 1) throw Dense{"several nodes read its gradient"};
  }

  // The sums over micro-batches are left folds.
  void add_parts(ValueId v, const State& table, Found& found) const {
    const Node& node = g_.producer(v);
    if (!is_sum_of_two(node)) {
      found.form.parts.push_back(0);
      return add_lookups(v, table, found);
    }
    for (const ValueId term : node.inputs) {
      require_one_reader(term);
      found.unused.push_back(term);
    }
    add_parts(node.inputs[0], table, found);
    if (is_sum_of_two(g_.producer(node.inputs[1])))
      throw Dense{"its gradient is not a sum over micro-batches"};
    found.form.parts.push_back(0);
    add_lookups(node.inputs[1], table, found);
  }

  // The lookups of one micro-batch, each of which adds to the sum of those before.
  void add_lookups(ValueId v, const State& table, Found& found) const {
    const Node& node = g_.producer(v);
    const auto* bag = inner_as<EmbeddingBagGradOp>(node);
    if (node.tag.phase == Phase::update) throw Dense{"a rule for all gradients changes its gradient"};
    if (!bag && !inner_as<EmbeddingGradOp>(node))
      throw Dense{fmt::format("its gradient comes not from lookups alone, but from {}", described(node))};
    if (node.tag.stage != table.stage) throw Dense{"stages of a pipeline share it"};
    if (!bag && node.inputs.size() == 3) {
      const ValueId onto = node.inputs[2];
      require_one_reader(onto);
      found.unused.push_back(onto);
      add_lookups(onto, table, found);
    }
    TableGradient form = found.form;
    form.bag = bag != nullptr;
    form.mean = bag && bag->mean;
    form.table = bag ? static_cast<int>(std::ranges::find(node.outputs, v) - node.outputs.begin()) : 0;
    if (!found.lookups.empty() &&
        (form.bag != found.form.bag || form.mean != found.form.mean || form.table != found.form.table))
      throw Dense{"different lookups read it"};
    found.form = std::move(form);
    found.form.parts.back() += 1;
    found.lookups.push_back({g_.value(v).producer, node.inputs[1], node.inputs[0], as<MappedOp>(node)});
  }

  static std::string described(const Node& node) {
    return node.tag.path.empty() ? node.op->label()
                                 : fmt::format("{} in {}", node.op->label(), node.tag.path);
  }

  const Graph& g_;
  const Readers readers_;
};

// The states that lookups read.
std::set<StateId> tables_of(const Graph& g) {
  std::set<StateId> tables;
  for (const Node& n : g.nodes()) {
    const bool bag = inner_as<EmbeddingBagOp>(n) != nullptr;
    if (!bag && !inner_as<EmbeddingOp>(n)) continue;
    for (std::size_t i = 0; i < (bag ? n.inputs.size() - 1 : 1); ++i)
      if (const auto* read = as<ReadOp>(g.producer(n.inputs[i])); read && g.state(read->state).trained)
        tables.insert(read->state);
  }
  return tables;
}

void require_plain_sgd(const Node& update) {
  if (const auto* mapped = as<MappedOp>(update); mapped && mapped->is_varied())
    throw Dense{"the models update it differently"};
  const auto* sgd = as<SgdUpdateOp>(update);
  if (!sgd) throw Dense{fmt::format("{} moves every row", update.op->label())};
  if (sgd->has_velocity()) throw Dense{"momentum moves every row"};
  if (sgd->options.weight_decay != 0) throw Dense{"weight decay moves every row"};
  if (sgd->guarded) throw Dense{"a rule over all gradients, or a mask of models, decides on its update"};
}

class SparseUpdates {
 public:
  explicit SparseUpdates(TrainingGraph training)
      : training_(std::move(training)), g_(training_.graph), readers_(g_.readers()), rewrite_(g_) {}

  TrainingGraph run(std::vector<TableUpdate>* report) {
    find(report);
    if (sparse_.empty()) return std::move(training_);
    for (const NodeId n : g_.nodes().ids()) write(n);
    for (auto& [name, value] : training_.results) value = rewrite_.now(value);
    training_.grads.clear();  // see the header
    training_.update_if = -1;
    Graph graph = rewrite_.take();
    training_.graph = std::move(graph);
    return std::move(training_);
  }

 private:
  void find(std::vector<TableUpdate>* report) {
    std::vector<TableUpdate> updates;
    find_lookups(updates);
    leave_bags_with_dense_tables(updates);
    if (report) report->insert(report->end(), updates.begin(), updates.end());
  }

  void find_lookups(std::vector<TableUpdate>& report) {
    const Search search(g_);
    std::map<StateId, NodeId> updates;
    for (const Node& n : g_.nodes())
      if (const auto* assign = as<AssignOp>(n); assign && n.tag.phase == Phase::update)
        updates[assign->state] = g_.value(n.inputs[0]).producer;
    for (const StateId table : tables_of(g_)) {
      const auto update = updates.find(table);
      if (update == updates.end()) continue;  // it has no gradient
      const State& state = g_.state(table);
      std::string why_not;
      try {
        require_plain_sgd(g_.node(update->second));
        const Found found = search.gradient(g_.node(update->second).inputs[1], state);
        unused_.insert(found.unused.begin(), found.unused.end());
        reports_[update->second] = report.size();
        sparse_.emplace(update->second, found);
      } catch (const Dense& dense) {
        why_not = dense.why;
      }
      report.push_back({state.path, why_not});
    }
  }

  // One node makes the gradients of all tables of a bag: if it must make one, it makes all.
  void leave_bags_with_dense_tables(std::vector<TableUpdate>& report) {
    const auto is_made = [&](const Lookup& lookup) {
      return std::ranges::any_of(g_.node(lookup.gradient).outputs, [&](ValueId v) { return is_needed(v); });
    };
    const auto stays = [&](const auto& update) {
      return std::ranges::any_of(update.second.lookups, is_made);
    };
    for (auto u = std::ranges::find_if(sparse_, stays); u != sparse_.end();
         u = std::ranges::find_if(sparse_, stays)) {
      report[reports_.at(u->first)].why_not = "another table of its bag has a dense update";
      for (const ValueId v : u->second.unused) unused_.erase(v);
      sparse_.erase(u);
    }
  }

  // Whether something reads a value that sparse updates leave. Nothing reads the gradient of a frozen table.
  bool is_needed(ValueId v) const { return !unused_.contains(v) && !readers_[v].empty(); }

  void write(NodeId n) {
    const Node& node = g_.node(n);
    if (const auto update = sparse_.find(n); update != sparse_.end())
      return write_update(node, update->second);
    if (as<AllReduceOp>(node)) return write_all_reduce(node);
    const bool is_left_out =
        std::ranges::any_of(node.outputs, [&](ValueId v) { return unused_.contains(v); });
    if (is_left_out && std::ranges::none_of(node.outputs, [&](ValueId v) { return is_needed(v); })) return;
    rewrite_.copy(node);
  }

  // Without the gradients that are no longer made.
  void write_all_reduce(const Node& node) {
    std::vector<ValueId> inputs, outputs;
    for (std::size_t i = 0; i < node.inputs.size(); ++i)
      if (!unused_.contains(node.outputs[i])) {
        inputs.push_back(rewrite_.now(node.inputs[i]));
        outputs.push_back(node.outputs[i]);
      }
    if (inputs.size() == node.inputs.size()) return rewrite_.copy(node);
    if (inputs.empty()) return;
    const NodeId n = rewrite_.graph().add(node.op, std::move(inputs), node.tag);
    for (std::size_t i = 0; i < outputs.size(); ++i)
      rewrite_.replace(outputs[i], rewrite_.graph().node(n).outputs[i]);
  }

  void write_update(const Node& node, const Found& found) {
    std::vector<ValueId> inputs{rewrite_.now(node.inputs[0]), rewrite_.now(node.inputs[2])};
    std::vector<bool> mapped{true, g_.type(node.inputs[2]).rank() > 0};
    for (const Lookup& lookup : found.lookups) {
      const auto [ids, rows] = found.replicas > 1 ? gathered(lookup, found) : now(lookup);
      inputs.insert(inputs.end(), {ids, rows});
      if (lookup.models) {
        mapped.push_back(lookup.models->mapped[1]);
        mapped.push_back(lookup.models->mapped[0]);
      }
    }
    OpPtr op = std::make_shared<SparseSgdUpdateOp>(found.form);
    if (const MappedOp* models = found.lookups[0].models)
      op = std::make_shared<MappedOp>(std::move(op), std::move(mapped), models->models);
    rewrite_.copy(node, std::move(op), std::move(inputs));
  }

  std::pair<ValueId, ValueId> now(const Lookup& l) { return {rewrite_.now(l.ids), rewrite_.now(l.rows)}; }

  // Tables of one bag share what is gathered.
  std::pair<ValueId, ValueId> gathered(const Lookup& lookup, const Found& found) {
    const auto key = std::pair(lookup.ids, lookup.rows);
    if (const auto done = gathered_.find(key); done != gathered_.end()) return done->second;
    const Node& rows = g_.producer(lookup.rows);
    Graph& graph = rewrite_.graph();
    const auto [ids_now, rows_now] = now(lookup);
    const Tag tag = g_.node(found.all_reduce).tag.named(rows.tag.path).on_channel(next_channel_++);
    const NodeId n = graph.add(std::make_shared<AllGatherOp>(found.replicas), {ids_now, rows_now}, tag);
    return gathered_[key] = {graph.node(n).outputs[0], graph.node(n).outputs[1]};
  }

  TrainingGraph training_;
  const Graph& g_;
  const Readers readers_;
  GraphRewrite rewrite_;
  std::map<NodeId, Found> sparse_;
  std::map<NodeId, std::size_t> reports_;  // of the updates in sparse_
  std::set<ValueId> unused_;
  std::map<std::pair<ValueId, ValueId>, std::pair<ValueId, ValueId>> gathered_;
  std::int64_t next_channel_ = g_.next_channel();
};

}  // namespace

TrainingGraph sparse_updates(TrainingGraph training, std::vector<TableUpdate>* report) {
  return SparseUpdates(std::move(training)).run(report);
}

}  // namespace tandem::engine
