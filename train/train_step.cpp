#include <tandem/train/train_step.h>

#include <algorithm>
#include <cstring>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <tandem/core/graph/graph_ops.h>
#include <tandem/core/graph/trace.h>
#include <tandem/dist/thread_comm.h>
#include <tandem/plan/build.h>
#include <tandem/train/model_inputs.h>

namespace tandem {
using namespace engine;
namespace {

std::string input_name(std::size_t i) { return fmt::format("input {}", i); }

std::string types_of(const Tensors& batch) {
  std::vector<std::string> types;
  for (const Tensor& t : batch) types.push_back(to_string(t.type()));
  return fmt::format("({})", fmt::join(types, ", "));
}

// The types of the results as they are delivered, including results that passes added.
std::map<std::string, TensorType> results_of(const Program& program) {
  std::map<std::string, TensorType> types;
  for (const Instruction& s : program.instructions)
    if (const auto* result = as<ResultOp>(s)) types.emplace(result->result, s.inputs[0]);
  return types;
}

// Returns for each state that a trace uses whether it is trained, and whether it is assigned.
std::map<std::string, std::pair<bool, bool>> uses_of(const Graph& graph) {
  std::map<std::string, std::pair<bool, bool>> uses;
  for (const State& state : graph.states()) uses[state.path].first = state.trained;
  for (const Node& n : graph.nodes())
    if (const auto* assign = as<AssignOp>(n)) uses[graph.state(assign->state).path].second = true;
  return uses;
}

// Adds the states that the loss does not use, so that they keep their values.
void carry(Graph& graph, const StateDict& state, int models) {
  for (const auto& [path, value] : state) {
    if (path.starts_with(kOptimizerPath) || graph.find_state(path) >= 0) continue;
    TensorType type = value.type();
    if (models > 1 && type.rank() > 0) type.shape.erase(type.shape.begin());
    graph.add_state({path, type, false});
  }
}

}  // namespace

// Gives the batches of a run to the Program, and keeps the results.
class TrainStep::Feed final : public Host {
 public:
  Feed(const Strategy& strategy, const std::vector<std::uint64_t>& seeds)
      : strategy_(strategy), seeds_(seeds) {}

  void start(const std::vector<Tensors>& batches, const std::vector<double>& rates, std::int64_t first,
             const ResultTypes& types) {
    batches_ = &batches;
    rates_ = rates;
    first_ = first;
    results_.clear();
    for (std::size_t b = 0; b < batches.size(); ++b) {
      results_.emplace_back();
      for (const auto& [name, type] : types) results_.back().emplace(name, Tensor::empty(type));
    }
  }
  std::vector<Results> take() { return std::move(results_); }

  void fill(const HostInput& in) override {
    if (in.name == kLearningRateInput) return fill_rates(rates_, in);
    if (in.name == kSeedInput) return fill_seeds(seeds_, in);
    const Tensors& all = batches_->at(static_cast<std::size_t>(in.batch - first_));
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (in.name != input_name(i)) continue;
      const std::int64_t part = std::int64_t{in.rank.replica} * strategy_.microbatches + in.microbatch;
      const std::int64_t offset = all[i].type().rank() == 0 ? 0 : part * std::ssize(in.bytes);
      std::memcpy(in.bytes.data(), static_cast<const std::byte*>(all[i].data()) + offset, in.bytes.size());
    }
  }

  void deliver(const HostResult& result) override {
    if (result.rank.replica != 0) return;  // all replicas deliver the same
    Tensor& kept = results_.at(static_cast<std::size_t>(result.batch - first_)).at(result.name);
    std::memcpy(kept.data(), result.bytes.data(), result.bytes.size());
  }

 private:
  const Strategy& strategy_;
  const std::vector<std::uint64_t>& seeds_;
  const std::vector<Tensors>* batches_ = nullptr;
  std::vector<double> rates_;
  std::int64_t first_ = 0;
  std::vector<Results> results_;  // by batch
};

TrainStep::TrainStep(Loss loss, StateDict state, TrainStepOptions options)
    : loss_(std::move(loss)), options_(std::move(options)), state_(std::move(state)) {
  check(options_.strategy);
  if (!loss_) throw Error("a TrainStep needs a loss: a function of the batch");
  if (std::ssize(options_.seeds) != options_.strategy.models)
    throw Error(fmt::format("{} for {}: give one per model in options.seeds",
                            counted(std::ssize(options_.seeds), "seed"),
                            counted(options_.strategy.models, "model")));
  if (options_.most_programs < 1) throw Error("a TrainStep keeps at least one Program");
  feed_ = std::make_unique<Feed>(options_.strategy, options_.seeds);
}

TrainStep::~TrainStep() = default;

double TrainStep::operator()(const Tensors& batch, double lr) {
  if (const int models = options_.strategy.models; models > 1)
    throw Error(fmt::format("a step of {} has one loss per model: call run({{batch}}, rates)",
                            counted(models, "model")));
  return run({batch}, {lr}).at(0).at(0);
}

std::vector<std::vector<double>> TrainStep::run(const std::vector<Tensors>& batches,
                                                const std::vector<double>& rates) {
  if (std::ssize(rates) != options_.strategy.models)
    throw Error(fmt::format("{} for {}; give one per model", counted(std::ssize(rates), "learning rate"),
                            counted(options_.strategy.models, "model")));
  std::ranges::for_each(rates, check_rate);
  if (batches.empty()) return {};
  if (batches[0].empty()) throw Error("a batch must have at least one tensor");
  require_state();
  for (const Tensors& b : batches)
    if (types_of(b) != types_of(batches[0]))
      throw Error(fmt::format("the batches of a run must have the same types, not {} and {}",
                              types_of(batches[0]), types_of(b)));
  const Known& known = program_for(batches[0]);
  feed_->start(batches, rates, batches_, known.results);
  try {
    session_->run(batches_, std::ssize(batches), known.program);
  } catch (...) {  // the state is lost, and several ranks have stopped
    session_.reset();
    programs_.clear();
    uses_.clear();
    lost_ = true;
    throw;
  }
  batches_ += std::ssize(batches);
  results_ = feed_->take();
  std::vector<std::vector<double>> losses;
  for (const Results& r : results_) losses.push_back(r.at(kLossResult).values());
  return losses;
}

// Traces for one micro-batch of one replica.
const TrainStep::Known& TrainStep::program_for(const Tensors& batch) {
  const std::string types = types_of(batch);
  if (const auto found = programs_.find(types); found != programs_.end()) {
    found->second.used = batches_;
    return found->second;
  }
  const Strategy& s = options_.strategy;
  Graph graph;
  {
    Trace trace(graph);
    Tensors inputs;
    for (std::size_t i = 0; i < batch.size(); ++i) {
      TensorType type = batch[i].type();
      const std::int64_t parts = type.rank() == 0 ? 1 : std::int64_t{s.replicas} * s.microbatches;
      if (type.rank() > 0 && type.shape[0] % parts != 0)
        throw Error(fmt::format("input {} of the batch has {}, which {} × {} do not divide", i,
                                counted(type.shape[0], "sample"), counted(s.replicas, "replica"),
                                counted(s.microbatches, "micro-batch")));
      if (type.rank() > 0) type.shape[0] /= parts;
      inputs.push_back(trace.input(input_name(i), type));
    }
    trace.result(kLossResult, loss_(inputs));
  }
  ++traces_;
  if (options_.log) options_.log(fmt::format("Program {} is made, for batches of {}", traces_, types));
  StateUses uses = uses_of(graph);
  require_same_uses(uses);
  if (!session_) carry(graph, state_, s.models);
  Program made = build(graph, s);
  ResultTypes results = results_of(made);
  if (!session_) {
    auto session =
        std::make_unique<Session>(std::move(made), thread_comms(s.ranks()), *feed_, options_.session);
    session->load(state_);
    state_.clear();
    session_ = std::move(session);
    uses_ = std::move(uses);
    return programs_[types] = {{}, batches_, std::move(results)};
  }
  if (std::ssize(programs_) >= options_.most_programs) {
    const auto oldest = std::ranges::min_element(programs_, {}, [](const auto& p) { return p.second.used; });
    session_->drop(oldest->second.program);
    programs_.erase(oldest);
  }
  const ProgramHandle handle = session_->add(std::move(made), *feed_);
  uses_.merge(uses);
  return programs_[types] = {handle, batches_, std::move(results)};
}

// If a module was frozen or put into evaluation after the first trace, the existing Programs do not follow.
void TrainStep::require_same_uses(const StateUses& uses) const {
  for (const auto& [path, use] : uses) {
    const auto known = uses_.find(path);
    if (known == uses_.end()) continue;
    const auto first = known->second;
    if (use.first != first.first)
      throw Error(fmt::format("'{}' {}; a TrainStep cannot change what is frozen: make another one", path,
                              use.first ? "was frozen when the step was first traced, and is trained now"
                                        : "was trained when the step was first traced, and is frozen now"));
    if (use.second != first.second)
      throw Error(fmt::format(
          "'{}' is {} by this trace and was {} by the first: its module has changed between train() and eval(), "
          "which a TrainStep cannot follow: make another one",
          path, use.second ? "assigned" : "only read", first.second ? "assigned" : "only read"));
  }
}

void TrainStep::require_state() const {
  if (lost_) throw Error("the state was lost when the last run failed: load() another");
}

StateDict TrainStep::state() const {
  require_state();
  return session_ ? session_->state() : state_;
}

void TrainStep::load(StateDict state, std::int64_t batches) {
  if (batches < 0) throw Error(fmt::format("training goes on at batch {}: it must be 0 or more", batches));
  if (session_)
    session_->load(state);
  else
    state_ = std::move(state);
  batches_ = batches;
  lost_ = false;
}

}  // namespace tandem
