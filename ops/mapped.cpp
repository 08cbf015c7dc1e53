#include <tandem/ops/mapped.h>

#include <algorithm>
#include <array>
#include <exception>

#include <fmt/format.h>

#include <tandem/core/base/error.h>
#include <tandem/core/base/memory.h>
#include <tandem/core/base/team.h>
#include <tandem/core/graph/kernel.h>
#include <tandem/core/graph/trace.h>
#include <tandem/ops/cpu/parallel.h>
#include <tandem/ops/matmul.h>
#include <tandem/ops/shape.h>

namespace tandem::engine {
namespace {

TensorType without_models(TensorType type) {
  type.shape.erase(type.shape.begin());
  return type;
}

constexpr int kMostAtOnce = 64;
constexpr double kMostBytesOfOne = 5e6, kMostBytesOfProduct = 1e6;

// Runs the inner kernel model by model: with the whole team on each, or with a thread on each.
class MappedKernel final : public Kernel {
 public:
  /// `inner` was made for a team of spec.threads / `at_once` threads.
  MappedKernel(KernelPtr inner, const MappedOp& op, const KernelSpec& spec, int at_once)
      : inner_(std::move(inner)), models_(static_cast<int>(op.models)), at_once_(at_once) {
    for (std::size_t i = 0; i < spec.inputs.size(); ++i)
      in_strides_.push_back(op.mapped[i] ? spec.inputs[i].bytes() / models_ : 0);
    for (const auto& t : spec.outputs) out_strides_.push_back(t.bytes() / models_);
    if (in_strides_.size() > kMaxOperands || out_strides_.size() > kMaxOperands)
      throw Error(fmt::format("mapped {}: more than {} operands", op.inner->name(), kMaxOperands));
  }
  std::int64_t workspace() const override { return at_once_ * align_up(inner_->workspace()); }
  void run(const Launch& l) const override {
    for (int piece = 0; piece < pieces(); ++piece) run_piece(l, piece);
  }
  int pieces() const override { return at_once_ > 1 ? models_ / at_once_ : models_ * inner_->pieces(); }
  void run_piece(const Launch& l, int piece) const override {
    if (at_once_ == 1) {
      const Operands of(*this, l, piece / inner_->pieces());
      return inner_->run_piece(of.launch(l, l.workspace), piece % inner_->pieces());
    }
    std::array<std::exception_ptr, kMostAtOnce> errors;
    parallel_parts(at_once_, at_once_, [&](std::int64_t begin, std::int64_t) {
      const Operands of(*this, l, piece * at_once_ + static_cast<int>(begin));
      auto* const scratch = static_cast<std::byte*>(l.workspace) + begin * align_up(inner_->workspace());
      try {
        inner_->run(of.launch(l, scratch));
      } catch (...) {
        errors[static_cast<std::size_t>(begin)] = std::current_exception();
      }
    });
    for (const std::exception_ptr& error : errors)
      if (error) std::rethrow_exception(error);
  }

 private:
  static constexpr std::size_t kMaxOperands = 64;  // a DLRM looks up 26 tables at once

  // Those of one model.
  struct Operands {
    Operands(const MappedKernel& kernel, const Launch& l, int model) {
      for (std::size_t i = 0; i < kernel.in_strides_.size(); ++i)
        in[i] = static_cast<const std::byte*>(l.in[i]) + model * kernel.in_strides_[i];
      for (std::size_t i = 0; i < kernel.out_strides_.size(); ++i)
        out[i] = static_cast<std::byte*>(l.out[i]) + model * kernel.out_strides_[i];
    }
    Launch launch(const Launch& all, void* workspace) const {
      return {in, out, workspace, all.batch, all.rank};
    }
    const void* in[kMaxOperands];
    mutable void* out[kMaxOperands];
  };

  KernelPtr inner_;
  int models_, at_once_;
  std::vector<std::int64_t> in_strides_, out_strides_;
};

// How many models a team works on at once: if they divide evenly, each thread takes whole models, unless all
// together are too little work for a team, or one model's operands are too large for a core's caches. (With
// two threads, convolutions of 4 MB are 1.05 times faster so, a matrix product that writes 3 MB is 1.4 times
// slower.)
int models_at_once(const MappedOp& op, const KernelSpec& spec) {
  const Work work = op.cost(spec.inputs, spec.outputs);
  const bool is_little =
      work.flops < kTeamFlops && useful_threads(spec.threads, static_cast<std::int64_t>(work.bytes)) == 1;
  const double most = dynamic_cast<const MatMulOp*>(op.inner.get()) ? kMostBytesOfProduct : kMostBytesOfOne;
  const bool is_large = work.bytes / static_cast<double>(op.models) > most;
  const bool divides = spec.threads <= kMostAtOnce && op.models % spec.threads == 0;
  return divides && !is_little && !is_large ? spec.threads : 1;
}

}  // namespace

MappedOp::MappedOp(OpPtr inner, std::vector<bool> mapped, std::int64_t models)
    : inner(std::move(inner)), mapped(std::move(mapped)), models(models) {}

std::string MappedOp::attributes() const {
  std::string flags;
  for (bool b : mapped) flags += b ? '1' : '0';
  return fmt::format("models={} mapped={} {}{{{}}}", models, flags, inner->name(), inner->attributes());
}

Types MappedOp::inner_types(TypesView inputs) const {
  require_inputs(inputs, mapped.size());
  Types types;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (mapped[i] && (inputs[i].shape.empty() || inputs[i].shape[0] != models))
      throw Error(fmt::format("input {} is {}; it needs a leading axis of {} models", i, to_string(inputs[i]),
                              models));
    types.push_back(mapped[i] ? without_models(inputs[i]) : inputs[i]);
  }
  return types;
}

Types MappedOp::infer(TypesView inputs) const {
  Types types = inner->infer(inner_types(inputs));
  for (auto& t : types) t = with_models(t, models);
  return types;
}

// Traces the inner op's rule for one model and replays it on all models. An input shared by the models would
// get the sum of their gradients; this needs a reduction that no caller uses so far.
Tensors MappedOp::vjp(const VjpArgs& args) const {
  Types types;
  for (const auto& t : args.inputs) types.push_back(t.type());
  types = inner_types(types);

  Graph graph;
  std::unordered_map<ValueId, Replayed> values;
  Tensors inputs, outputs, grads, sums(args.inputs.size());
  std::vector<bool> needed = args.needed;
  Tensors results;
  {
    Trace trace(graph);
    const auto argument = [&](const TensorType& type, const Tensor& actual, bool is_mapped) {
      const ValueId id = graph.add_value(type);
      values[id] = {actual, is_mapped};
      return trace.tensor(id);
    };
    for (std::size_t i = 0; i < types.size(); ++i) {
      if (needed[i] && !mapped[i])
        no_rule(*this, "vjp", "an input shared by the models would need a sum over them");
      inputs.push_back(argument(types[i], args.inputs[i], mapped[i]));
      if (mapped[i] && args.sums && (*args.sums)[i]) sums[i] = argument(types[i], (*args.sums)[i], true);
    }
    for (const auto& t : args.outputs) outputs.push_back(argument(without_models(t.type()), t, true));
    for (const auto& t : args.grads)
      grads.push_back(t ? argument(without_models(t.type()), t, true) : Tensor());
    const Tensors given = sums;
    results = inner->vjp({inputs, outputs, grads, needed, &sums});
    for (std::size_t i = 0; i < sums.size(); ++i)
      if (given[i] && !sums[i]) (*args.sums)[i] = Tensor();  // the inner rule took it
  }
  replay_mapped(graph, models, values);
  for (auto& r : results)
    if (r) {
      const Replayed& replayed = values.at(r.impl()->value);
      if (!replayed.mapped) no_rule(*this, "vjp", "a gradient does not depend on the model");
      r = replayed.tensor;
    }
  return results;
}

Tensors MappedOp::vmap(const VmapArgs&) const { no_rule(*this, "vmap", "vmap can be applied only once"); }

Work MappedOp::cost(TypesView inputs, TypesView outputs) const {
  Types out(outputs.begin(), outputs.end());
  for (auto& t : out) t = without_models(t);
  Work work = inner->cost(inner_types(inputs), out);
  work.flops *= static_cast<double>(models);
  work.bytes *= static_cast<double>(models);
  return work;
}

std::vector<Alias> MappedOp::may_alias(TypesView inputs) const {
  std::vector<Alias> aliases;
  for (const auto& a : inner->may_alias(inner_types(inputs)))
    if (mapped[static_cast<std::size_t>(a.input)]) aliases.push_back(a);
  return aliases;
}

Tensors map_over_models(OpPtr op, const VmapArgs& args) {
  return apply_op(std::make_shared<MappedOp>(std::move(op), args.mapped, args.models), args.inputs);
}

void replay_mapped(const Graph& graph, std::int64_t models, std::unordered_map<ValueId, Replayed>& values) {
  for (const Node& node : graph.nodes()) replay_mapped(node, models, false, values);
}

void replay_mapped(const Node& node, std::int64_t models, bool force,
                   std::unordered_map<ValueId, Replayed>& values) {
  Tensors inputs;
  std::vector<bool> mapped;
  for (ValueId v : node.inputs) {
    inputs.push_back(values.at(v).tensor);
    mapped.push_back(values.at(v).mapped);
  }
  if (node.outputs.empty())  // its inputs leave the graph, one per model
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      inputs[i] = with_model_axis(inputs[i], mapped[i], models);
      mapped[i] = true;
    }
  const bool any = force || std::find(mapped.begin(), mapped.end(), true) != mapped.end();
  const Tensors outputs = any ? node.op->vmap({inputs, mapped, models}) : apply_op(node.op, inputs);
  for (std::size_t i = 0; i < outputs.size(); ++i) values[node.outputs[i]] = {outputs[i], any};
}

KernelPtr make_mapped(const KernelSpec& spec) {
  const auto& op = static_cast<const MappedOp&>(spec.op);
  const Types in = op.inner_types(spec.inputs);
  Types out;
  for (const auto& t : spec.outputs) out.push_back(without_models(t));
  const int at_once = models_at_once(op, spec), threads = spec.threads / at_once;
  const TeamSize team(threads);
  const KernelSpec inner{*op.inner, in, out, spec.tag, threads, spec.microbatches, spec.channel};
  return std::make_unique<MappedKernel>(spec.table->make(inner), op, spec, at_once);
}

}  // namespace tandem::engine
