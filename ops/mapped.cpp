#include <tandem/ops/mapped.h>

#include <algorithm>
#include <array>
#include <exception>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <tandem/core/base/contains.h>
#include <tandem/core/base/error.h>
#include <tandem/core/base/memory.h>
#include <tandem/core/base/team.h>
#include <tandem/core/graph/kernel.h>
#include <tandem/core/graph/trace.h>
#include <tandem/ops/cpu/parallel.h>
#include <tandem/ops/matmul.h>
#include <tandem/ops/shape.h>
#include <tandem/ops/varied.h>

namespace tandem::engine {
namespace {

TensorType without_models(TensorType type) {
  type.shape.erase(type.shape.begin());
  return type;
}

constexpr int kMostAtOnce = 64;
constexpr double kMostBytesOfOne = 5e6, kMostBytesOfProduct = 1e6;

// Runs the inner kernels model by model: with the whole team on each, or with a thread on each.
class MappedKernel final : public Kernel {
 public:
  /// `inners` were made for a team of spec.threads / `at_once` threads: one for all models, or one for each.
  MappedKernel(std::vector<KernelPtr> inners, const MappedOp& op, const KernelSpec& spec, int at_once)
      : inners_(std::move(inners)), models_(static_cast<int>(op.models)), at_once_(at_once) {
    for (std::size_t i = 0; i < spec.inputs.size(); ++i)
      in_strides_.push_back(op.mapped[i] ? spec.inputs[i].bytes() / models_ : 0);
    for (const auto& t : spec.outputs) out_strides_.push_back(t.bytes() / models_);
    if (in_strides_.size() > kMaxOperands || out_strides_.size() > kMaxOperands)
      throw Error(fmt::format("mapped {}: more than {} operands", op.inner->name(), kMaxOperands));
    for (const KernelPtr& inner : inners_) {
      workspace_of_one_ = std::max(workspace_of_one_, align_up(inner->workspace()));
      if (inner->pieces() != inners_[0]->pieces()) is_whole_ = true;
    }
  }
  std::int64_t workspace() const override { return at_once_ * workspace_of_one_; }
  void run(const Launch& l) const override {
    for (int piece = 0; piece < pieces(); ++piece) run_piece(l, piece);
  }
  int pieces() const override { return at_once_ > 1 ? models_ / at_once_ : models_ * pieces_of_one(); }
  void run_piece(const Launch& l, int piece) const override {
    if (at_once_ == 1) {
      const int model = piece / pieces_of_one();
      const Operands of(*this, l, model);
      const Launch one = of.launch(l, l.workspace);
      return is_whole_ ? of_model(model).run(one) : of_model(model).run_piece(one, piece % pieces_of_one());
    }
    std::array<std::exception_ptr, kMostAtOnce> errors;
    parallel_parts(at_once_, at_once_, [&](std::int64_t begin, std::int64_t) {
      const int model = piece * at_once_ + static_cast<int>(begin);
      const Operands of(*this, l, model);
      auto* const scratch = static_cast<std::byte*>(l.workspace) + begin * workspace_of_one_;
      try {
        of_model(model).run(of.launch(l, scratch));
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

  const Kernel& of_model(int model) const {
    return *inners_[inners_.size() > 1 ? static_cast<std::size_t>(model) : 0];
  }
  int pieces_of_one() const { return is_whole_ ? 1 : inners_[0]->pieces(); }

  std::vector<KernelPtr> inners_;
  int models_, at_once_;
  bool is_whole_ = false;  // the models' kernels have different numbers of pieces
  std::int64_t workspace_of_one_ = 0;
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
    : MappedOp(std::vector{std::move(inner)}, std::move(mapped), models) {}

MappedOp::MappedOp(std::vector<OpPtr> each, std::vector<bool> mapped, std::int64_t models)
    : inners(are_same(each) ? std::vector{each[0]} : std::move(each)),
      mapped(std::move(mapped)),
      models(models) {}

std::string MappedOp::attributes() const {
  std::string flags;
  for (bool b : mapped) flags += b ? '1' : '0';
  std::vector<std::string> texts;
  for (const OpPtr& op : inners) texts.push_back(op->attributes());
  return fmt::format("models={} mapped={} {}{{{}}}", models, flags, inner->name(), fmt::join(texts, "|"));
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

// An input shared by the models would get the sum of their gradients; this needs a reduction that no caller
// uses so far.
Tensors MappedOp::vjp(const VjpArgs& args) const {
  const std::size_t inputs = args.inputs.size(), outputs = args.outputs.size();
  Tensors all = args.inputs;
  std::vector<bool> is_mapped = mapped;
  const auto add = [&](const Tensor& t) {
    all.push_back(t);
    is_mapped.push_back(true);
  };
  for (const Tensor& t : args.outputs) add(t);
  for (const Tensor& t : args.grads) add(t);
  for (std::size_t i = 0; i < inputs; ++i) {
    if (args.needed[i] && !mapped[i])
      no_rule(*this, "vjp", "an input shared by the models would need a sum over them");
    add(mapped[i] && args.sums ? (*args.sums)[i] : Tensor());
  }
  return replay_for_each(*this, all, is_mapped, [&](const Op& op, const Tensors& one) {
    const auto from = [&](std::size_t begin, std::size_t count) {
      return Tensors(one.begin() + static_cast<std::ptrdiff_t>(begin),
                     one.begin() + static_cast<std::ptrdiff_t>(begin + count));
    };
    const Tensors given = from(inputs + 2 * outputs, inputs);
    Tensors sums = given;
    const Tensors grads = from(inputs + outputs, outputs);
    Tensors results = op.vjp({from(0, inputs), from(inputs, outputs), grads, args.needed, &sums});
    for (std::size_t i = 0; i < inputs; ++i)
      if (given[i] && !sums[i]) (*args.sums)[i] = Tensor();  // the inner rule took it
    return results;
  });
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
  const Types types = inner_types(inputs);
  const auto of_all = [&](const Alias& a) {
    return std::ranges::all_of(inners, [&](const OpPtr& op) { return contains(op->may_alias(types), a); });
  };
  for (const auto& a : inner->may_alias(types))
    if (mapped[static_cast<std::size_t>(a.input)] && of_all(a)) aliases.push_back(a);
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
  const bool any =
      force || as<VariedOp>(node) || std::find(mapped.begin(), mapped.end(), true) != mapped.end();
  const Tensors outputs = any ? node.op->vmap({inputs, mapped, models}) : apply_op(node.op, inputs);
  for (std::size_t i = 0; i < outputs.size(); ++i) values[node.outputs[i]] = {outputs[i], any};
}

Tensors replay_for_each(const MappedOp& op, const Tensors& inputs, const std::vector<bool>& mapped,
                        const std::function<Tensors(const Op& inner, const Tensors& arguments)>& write) {
  std::unordered_map<ValueId, Replayed> values;
  std::vector<Graph> graphs(op.inners.size());
  Tensors results;
  for (std::size_t m = 0; m < op.inners.size(); ++m) {
    Trace trace(graphs[m]);
    Tensors arguments;
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      if (!inputs[i]) {
        arguments.emplace_back();
        continue;
      }
      const ValueId id = graphs[m].add_value(mapped[i] ? without_models(inputs[i].type()) : inputs[i].type());
      values[id] = {inputs[i], mapped[i]};
      arguments.push_back(trace.tensor(id));
    }
    Tensors written = write(*op.inners[m], arguments);
    const auto is_same_value = [](const Tensor& a, const Tensor& b) {
      return a.defined() == b.defined() && (!a || a.impl()->value == b.impl()->value);
    };
    if (m == 0)
      results = std::move(written);
    else if (graphs[m].nodes().size() != graphs[0].nodes().size() ||
             !std::ranges::equal(results, written, is_same_value))
      no_rule(op, "a common", "the models' ops are replaced by different nodes");
  }
  std::vector<const Graph*> each;
  for (const Graph& g : graphs) each.push_back(&g);
  for (const NodeId n : graphs[0].nodes().ids()) {
    Node node = graphs[0].node(n);
    if (op.is_varied()) node.op = unified_op(each, n);
    replay_mapped(node, op.models, false, values);
  }
  for (Tensor& r : results)
    if (r) {
      const Replayed& all = values.at(r.impl()->value);
      r = with_model_axis(all.tensor, all.mapped, op.models);  // what depends on shared inputs alone lacks it
    }
  return results;
}

KernelPtr make_mapped(const KernelSpec& spec) {
  const auto& op = static_cast<const MappedOp&>(spec.op);
  const Types in = op.inner_types(spec.inputs);
  Types out;
  for (const auto& t : spec.outputs) out.push_back(without_models(t));
  const int at_once = models_at_once(op, spec), threads = spec.threads / at_once;
  const TeamSize team(threads);
  std::vector<KernelPtr> kernels;
  for (const OpPtr& inner : op.inners)
    kernels.push_back(
        spec.table->make({*inner, in, out, spec.tag, threads, spec.microbatches, spec.channel}));
  return std::make_unique<MappedKernel>(std::move(kernels), op, spec, at_once);
}

}  // namespace tandem::engine
