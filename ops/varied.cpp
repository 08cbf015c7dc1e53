#include <tandem/ops/varied.h>

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <tandem/core/base/error.h>
#include <tandem/core/graph/graph_ops.h>
#include <tandem/core/graph/graph_rewrite.h>
#include <tandem/core/graph/trace.h>
#include <tandem/ops/mapped.h>

namespace tandem::engine {
namespace {

// One constant of all models' constants, (models, …).
OpPtr stacked_constant(const std::vector<OpPtr>& ops) {
  const auto& first = static_cast<const ConstantOp&>(*ops[0]);
  std::vector<std::byte> bytes;
  for (const OpPtr& op : ops) {
    const auto& constant = static_cast<const ConstantOp&>(*op);
    bytes.insert(bytes.end(), constant.bytes.begin(), constant.bytes.end());
  }
  return std::make_shared<ConstantOp>(with_models(first.type, std::ssize(ops)), std::move(bytes));
}

std::string described(const Graph& g, const Node& node) {
  std::vector<std::string> types;
  for (const TensorType& t : g.types(node.inputs)) types.push_back(to_string(t));
  return fmt::format("{}({})", node.op->label(), fmt::join(types, ", "));
}

std::string module_of(const Node& node) {
  return node.tag.path.empty() ? "the model itself" : fmt::format("module '{}'", node.tag.path);
}

[[noreturn]] void differ(const std::vector<const Graph*>& models, std::size_t m, NodeId n) {
  const auto has = [&](const Graph& g) { return n < g.nodes().next_id(); };
  const Graph &first = *models[0], &other = *models[m];
  const auto text = [&](const Graph& g) { return has(g) ? described(g, g.node(n)) : "nothing more"; };
  throw Error(fmt::format(
      "models that train side by side must have the same structure, and model {} differs from model 0 in {}: "
      "{} instead of {}",
      m, module_of(has(first) ? first.node(n) : other.node(n)), text(other), text(first)));
}

bool is_same_state(const State& a, const State& b) {
  return a.path == b.path && a.type == b.type && a.trained == b.trained && a.stage == b.stage &&
         a.device == b.device;
}

}  // namespace

VariedOp::VariedOp(std::vector<OpPtr> models) : ops(std::move(models)) {
  for (const OpPtr& op : ops)
    if (op->name() != ops.at(0)->name())
      throw Error(fmt::format("a varied op: the models have {} and {}", ops[0]->name(), op->name()));
}

std::string VariedOp::attributes() const {
  std::vector<std::string> texts;
  for (const OpPtr& op : ops) texts.push_back(op->attributes());
  return fmt::format("{}{{{}}}", ops[0]->name(), fmt::join(texts, "|"));
}

Types VariedOp::infer(TypesView inputs) const {
  const Types types = ops[0]->infer(inputs);
  for (const OpPtr& op : ops)
    if (op->infer(inputs) != types)
      throw Error(fmt::format("{} has outputs of different types in the models", label()));
  return types;
}

Tensors VariedOp::vjp(const VjpArgs&) const {
  no_rule(*this, "vjp", "the models are put side by side before they are differentiated");
}

Tensors VariedOp::vmap(const VmapArgs& args) const { return apply_to_each(ops, args); }

bool is_same(const Op& a, const Op& b) {
  return &a == &b || (a.name() == b.name() && a.attributes() == b.attributes());
}

bool are_same(const std::vector<OpPtr>& ops) {
  return std::ranges::all_of(ops, [&](const OpPtr& op) { return is_same(*op, *ops[0]); });
}

OpPtr unified_op(const std::vector<const Graph*>& models, NodeId n) {
  const Graph& first = *models.at(0);
  const Node& node = first.node(n);
  const bool may_vary = !as<BoundaryOp>(node) || as<ConstantOp>(node);
  std::vector<OpPtr> ops;
  for (std::size_t m = 0; m < models.size(); ++m) {
    if (n >= models[m]->nodes().next_id()) differ(models, m, n);
    const Node& other = models[m]->node(n);
    if (other.op->name() != node.op->name() || other.inputs != node.inputs ||
        models[m]->types(other.outputs) != first.types(node.outputs) ||
        !(may_vary || is_same(*other.op, *node.op)))
      differ(models, m, n);
    ops.push_back(other.op);
  }
  return together(std::move(ops));
}

OpPtr together(std::vector<OpPtr> ops) {
  return are_same(ops) ? ops[0] : std::make_shared<VariedOp>(std::move(ops));
}

Graph unify(const std::vector<const Graph*>& models) {
  const Graph& first = *models.at(0);
  for (std::size_t m = 1; m < models.size(); ++m)
    if (!std::ranges::equal(first.states(), models[m]->states(), is_same_state))
      for (StateId s = 0; s < std::max(first.states().next_id(), models[m]->states().next_id()); ++s) {
        const auto text = [&](const Graph& g) {
          return s < g.states().next_id()
                     ? fmt::format("'{}' {}", g.state(s).path, to_string(g.state(s).type))
                     : std::string("nothing more");
        };
        if (s >= first.states().next_id() || s >= models[m]->states().next_id() ||
            !is_same_state(first.state(s), models[m]->state(s)))
          throw Error(fmt::format(
              "models that train side by side must have the same structure, and model {} differs from model 0: "
              "it has the state {} instead of {}",
              m, text(*models[m]), text(first)));
      }
  GraphRewrite rewrite(first);
  for (const NodeId n : first.nodes().ids()) {
    const Node& node = first.node(n);
    rewrite.copy(node, unified_op(models, n), rewrite.now(node.inputs));
  }
  for (std::size_t m = 1; m < models.size(); ++m)
    if (models[m]->nodes().size() > first.nodes().size()) differ(models, m, first.nodes().next_id());
  return rewrite.take();
}

Graph unify(const std::vector<Graph>& models) {
  std::vector<const Graph*> each;
  for (const Graph& g : models) each.push_back(&g);
  return unify(each);
}

Graph of_models(const Graph& unified, const ModelRange& models) {
  const auto varies = [](const Node& node) { return as<VariedOp>(node) != nullptr; };
  if (models.is_all() || std::ranges::none_of(unified.nodes(), varies)) return unified;
  GraphRewrite rewrite(unified);
  for (const Node& node : unified.nodes()) {
    OpPtr op = node.op;
    if (const auto* varied = as<VariedOp>(node)) {
      const auto first = varied->ops.begin() + models.first;
      op = together({first, first + models.count});
    }
    rewrite.copy(node, std::move(op), rewrite.now(node.inputs));
  }
  return rewrite.take();
}

Tensors apply_to_each(const std::vector<OpPtr>& ops, const VmapArgs& args) {
  if (are_same(ops)) return ops[0]->vmap(args);
  if (dynamic_cast<const ConstantOp*>(ops[0].get())) return apply_op(stacked_constant(ops), {});
  return apply_op(std::make_shared<MappedOp>(ops, args.mapped, args.models), args.inputs);
}

}  // namespace tandem::engine
