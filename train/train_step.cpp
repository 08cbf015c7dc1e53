#include <tandem/train/train_step.h>

#include <algorithm>
#include <cstring>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <tandem/core/base/contains.h>
#include <tandem/core/base/rng.h>
#include <tandem/core/graph/graph_ops.h>
#include <tandem/core/graph/trace.h>
#include <tandem/dist/thread_comm.h>
#include <tandem/ops/varied.h>
#include <tandem/plan/build.h>
#include <tandem/plan/dense_tables.h>
#include <tandem/train/model_inputs.h>
#include <tandem/train/state_link.h>

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
    if (const auto* result = as<ResultOp>(s)) {
      auto& type = types.try_emplace(result->result, s.inputs[0]).first->second;
      if (result->models.is_all()) continue;
      if (result->models.first == 0 && result->models.count == 1) type.shape.insert(type.shape.begin(), 1);
      type.shape[0] = std::max<std::int64_t>(type.shape[0], result->models.first + result->models.count);
    }
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

TrainStepOptions with(TrainStepOptions options, Optimizer optimizer,
                      const std::vector<nn::ModuleBase*>& models) {
  if (models.empty() || contains(models, nullptr)) throw Error("a TrainStep needs at least one model");
  if (const int asked = options.strategy.models; asked != 1 && asked != std::ssize(models))
    throw Error(fmt::format("options.strategy.models is {}, and the TrainStep is given {}", asked,
                            counted(std::ssize(models), "model")));
  options.strategy.optimizer = optimizer;
  options.strategy.models = static_cast<int>(models.size());
  std::uint64_t paths = fnv1a("");
  for (const auto& [path, p] : models[0]->named_parameters()) paths = fnv1a(p->tensor.impl()->state, paths);
  if (options.seeds.empty())
    for (std::size_t m = 0; m < models.size(); ++m) options.seeds.push_back(paths + m);
  return options;
}

std::vector<nn::ModuleBase*> modules_of(const ModelArray& models) {
  std::vector<nn::ModuleBase*> modules;
  for (const ArrayModel& model : models) modules.push_back(model.module);
  return modules;
}

TrainStepOptions with(TrainStepOptions options, const ModelArray& models) {
  const auto modules = modules_of(models);
  options = with(std::move(options), models.empty() ? SgdOptions() : models[0].options.optimizer, modules);
  options.strategy.each.clear();
  options.seeds.clear();
  for (const ArrayModel& model : models) {
    options.strategy.each.push_back(model.options);
    options.seeds.push_back(model.seed);
  }
  return options;
}

TrainStep::Loss loss_of(const ModelArray& models, std::size_t m, const TrainStep::ModelLoss& loss) {
  if (!loss || m >= models.size()) return {};
  return [module = models[m].module, loss](const Tensors& batch) { return loss(*module, batch); };
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
    if (in.name == kLearningRateInput) return fill_rates(rates_of(in.batch), in);
    if (in.name == kSeedInput) return fill_seeds(seeds_, in);
    if (in.name == kActiveInput && strategy_.masks_models)
      return fill_active(std::vector<char>(seeds_.size(), 1), in);
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
    // Arrays of models deliver their parts, which follow one another.
    const std::int64_t first = result.models.is_all() ? 0 : result.models.first;
    const std::int64_t per_model =
        result.models.is_all() ? 0 : std::ssize(result.bytes) / result.models.count;
    std::memcpy(static_cast<std::byte*>(kept.data()) + first * per_model, result.bytes.data(),
                result.bytes.size());
  }

 private:
  // Predictions of weights need rates of updates after the run too: those of its last batch.
  std::vector<double> rates_of(std::int64_t batch) const {
    const auto models = static_cast<std::size_t>(strategy_.models);
    const std::size_t last = rates_.size() / models - 1;
    const std::size_t begin = std::min(static_cast<std::size_t>(batch - first_), last) * models;
    return {&rates_[begin], &rates_[begin] + models};
  }

  const Strategy& strategy_;
  const std::vector<std::uint64_t>& seeds_;
  const std::vector<Tensors>* batches_ = nullptr;
  std::vector<double> rates_;
  std::int64_t first_ = 0;
  std::vector<Results> results_;  // by batch
};

TrainStep::TrainStep(Loss loss, StateDict state, TrainStepOptions options)
    : losses_{std::move(loss)},
      options_(std::move(options)),
      link_(std::make_shared<StateLink>()),
      state_(std::move(state)) {
  check(options_.strategy);
  if (!losses_[0]) throw Error("a TrainStep needs a loss: a function of the batch");
  std::vector<std::uint64_t>& seeds = options_.seeds;
  if (seeds.empty())
    for (int m = 0; m < options_.strategy.models; ++m) seeds.push_back(static_cast<std::uint64_t>(m));
  if (std::ssize(seeds) != options_.strategy.models)
    throw Error(fmt::format("{} for {}: give one per model in options.seeds, or none",
                            counted(std::ssize(seeds), "seed"), counted(options_.strategy.models, "model")));
  if (options_.most_programs < 1) throw Error("a TrainStep keeps at least one Program");
  feed_ = std::make_unique<Feed>(options_.strategy, options_.seeds);
}

TrainStep::TrainStep(const std::vector<nn::ModuleBase*>& models, Optimizer optimizer, Loss loss,
                     TrainStepOptions options)
    : TrainStep(std::move(loss), StateDict(), with(std::move(options), optimizer, models)) {
  link_models(models);
}

TrainStep::TrainStep(const ModelArray& models, const ModelLoss& loss, TrainStepOptions options)
    : TrainStep(loss_of(models, 0, loss), StateDict(), with(std::move(options), models)) {
  for (std::size_t m = 1; m < models.size(); ++m) losses_.push_back(loss_of(models, m, loss));
  link_models(modules_of(models));
}

void TrainStep::link_models(const std::vector<nn::ModuleBase*>& models) {
  std::map<std::string, Tensors> parameters;
  for (nn::ModuleBase* model : models)
    for (const auto& [path, p] : model->named_parameters()) parameters[path].push_back(p->tensor);
  if (parameters.empty()) throw Error("a TrainStep needs a model with parameters");
  for (const auto& [path, tensors] : parameters) {
    if (tensors.size() != models.size())
      throw Error(fmt::format("the models of a TrainStep must have the same structure: '{}' is in {} of {}",
                              path, tensors.size(), models.size()));
    for (const Tensor& t : tensors)
      if (t.needs_grad() != tensors[0].needs_grad())
        throw Error(
            fmt::format("'{}' is frozen in one of the models and trained in another: models that train "
                        "side by side must have the same frozen parameters",
                        path));
    for (std::size_t m = 1; m < tensors.size(); ++m)
      if (std::ranges::find(tensors, tensors[m].impl(), &Tensor::impl) !=
          tensors.begin() + static_cast<std::ptrdiff_t>(m))
        throw Error("one model is given twice: models that train side by side must be different objects");
    link_->add(tensors);
    own_.insert(tensors[0].impl()->state);
  }
}

TrainStep::TrainStep(nn::ModuleBase& model, Optimizer optimizer, Loss loss, TrainStepOptions options)
    : TrainStep(std::vector{&model}, optimizer, std::move(loss), std::move(options)) {}

TrainStep::~TrainStep() { link_->disconnect(); }

double TrainStep::operator()(const Tensors& batch, double lr) {
  if (const int models = options_.strategy.models; models > 1)
    throw Error(fmt::format("a step of {} has one loss per model: call run({{batch}}, rates)",
                            counted(models, "model")));
  if (schedule_of(options_.strategy).overlaps_batches())
    throw Error(
        "under this schedule several batches are in flight, and one alone fills and drains the pipeline: call "
        "run(batches, rates), or take a schedule that flushes, such as \"1f1b\"");
  return run({batch}, {lr}).at(0).at(0);
}

std::vector<std::vector<double>> TrainStep::run(const std::vector<Tensors>& batches,
                                                const std::vector<double>& rates) {
  const std::int64_t models = options_.strategy.models;
  if (Trace::active())
    throw Error("a TrainStep is called in a loss or in another traced function: call it between the steps");
  if (batches.empty()) return {};
  if (std::ssize(rates) != models && std::ssize(rates) != models * std::ssize(batches))
    throw Error(fmt::format("{} for {} and {}; give one per model, or one per batch and model",
                            counted(std::ssize(rates), "learning rate"), counted(models, "model"),
                            counted(std::ssize(batches), "batch")));
  std::ranges::for_each(rates, check_rate);
  if (batches[0].empty())
    throw Error(
        "a batch must have at least one tensor, from which the number of samples follows: give it the noise");
  require_state();
  for (std::size_t i = 0; i < batches[0].size(); ++i)
    if (!batches[0][i]) throw Error(fmt::format("tensor {} of the batch was given no value", i));
  for (const Tensors& b : batches)
    if (types_of(b) != types_of(batches[0]))
      throw Error(fmt::format("the batches of a run must have the same types, not {} and {}",
                              types_of(batches[0]), types_of(b)));
  results_.clear();
  link_->require_used();
  const Known& known = program_for(batches[0]);
  for (const Tensors& b : batches)
    for (const Tensor& t : b) t.data();  // a trained one has its elements in the session
  feed_->start(batches, rates, batches_, known.results);
  link_->send();
  try {
    session_->run(batches_, std::ssize(batches), known.program);
  } catch (...) {
    if (session_->has_state() && options_.strategy.ranks() == 1) throw;
    if (session_->has_state()) {  // the ranks have stopped
      link_->disconnect();
      state_ = without_linked(session_->state());
    } else {
      link_->lose();
      lost_ = true;
    }
    session_.reset();
    programs_.clear();
    uses_.clear();
    throw;
  }
  link_->changed(session_->written(known.program));
  batches_ += std::ssize(batches);
  results_ = feed_->take();
  std::vector<std::vector<double>> losses;
  for (const Results& r : results_) losses.push_back(r.at(kLossResult).values());
  return losses;
}

Tensor TrainStep::result(const std::string& name, std::size_t batch) const {
  if (batch >= results_.size())
    throw Error(fmt::format("there is no batch {}: the last run had {}", batch,
                            counted(std::ssize(results_), "batch")));
  std::vector<std::string> names;
  for (const auto& [known, value] : results_[batch])
    if (known == name)
      return value;
    else
      names.push_back(known);
  throw Error(fmt::format("there is no result '{}'; the loss delivers: {}", name, fmt::join(names, ", ")));
}

Graph TrainStep::trace(const Tensors& batch) {
  std::vector<Graph> models;
  for (const Loss& loss : losses_) models.push_back(trace(batch, loss, models.empty()));
  return unify(models);
}

// Traces for one micro-batch of one replica.
Graph TrainStep::trace(const Tensors& batch, const Loss& of_model, bool links_others) {
  const Strategy& s = options_.strategy;
  Graph graph;
  Trace trace(graph);
  Tensors inputs;
  for (std::size_t i = 0; i < batch.size(); ++i) {
    TensorType type = batch[i].type();
    const std::int64_t parts = type.rank() == 0 ? 1 : std::int64_t{s.replicas} * s.microbatches;
    if (type.elements() == 0)
      throw Error(fmt::format("input {} of the batch is {}: it has no elements", i, to_string(type)));
    if (type.rank() > 0 && type.shape[0] % parts != 0)
      throw Error(fmt::format("input {} of the batch has {}, which {} × {} do not divide", i,
                              counted(type.shape[0], "sample"), counted(s.replicas, "replica"),
                              counted(s.microbatches, "micro-batch")));
    if (type.rank() > 0) type.shape[0] /= parts;
    inputs.push_back(trace.input(input_name(i), type));
  }
  const Tensor loss = of_model(inputs);
  if (!loss) throw Error("the loss returned a Tensor without a value");
  trace.result(kLossResult, loss);
  if (!own_.empty() && links_others) link_others(graph, trace.states());
  return graph;
}

// Links the states of other modules that the loss uses. They are not trained.
void TrainStep::link_others(Graph& graph, const StateDict& used) {
  for (const auto& [path, tensor] : used) {
    if (link_->contains(path) && !link_->is(path, tensor))
      throw Error(fmt::format(
          "the loss uses the state '{}' of a module that this step does not know, and the step has another "
          "of this path: give one of the modules another name, or a parent, or make another TrainStep",
          path));
    if (own_.contains(path)) continue;
    if (session_ && !link_->contains(path))
      throw Error(
          fmt::format("the loss uses the state '{}' of another module, and did not when the step was first "
                      "traced, which fixed the states: make another TrainStep",
                      path));
    graph.state(graph.find_state(path)).trained = false;
    link_->add(Tensors(static_cast<std::size_t>(options_.strategy.models), tensor));
  }
}

const TrainStep::Known& TrainStep::program_for(const Tensors& batch) {
  const std::string types = types_of(batch);
  if (const auto found = programs_.find(types); found != programs_.end()) {
    found->second.used = batches_;
    return found->second;
  }
  Graph graph = trace(batch);
  StateUses uses = uses_of(graph);
  require_same_uses(uses);
  if (!session_) {
    StateDict state = state_of(graph);
    carry(graph, state, options_.strategy.models);
    Program made = build(graph, options_.strategy);
    if (options_.log) std::ranges::for_each(dense_tables(graph, options_.strategy), options_.log);
    ResultTypes results = results_of(made);
    auto session = std::make_unique<Session>(std::move(made), thread_comms(options_.strategy.ranks()), *feed_,
                                             options_.session);
    session->load(state);
    state_.clear();
    session_ = std::move(session);
    link_->connect(session_.get());
    uses_ = std::move(uses);
    return keep(types, {{}, batches_, std::move(results)});
  }
  Program made = build(graph, options_.strategy);
  ResultTypes results = results_of(made);
  const ProgramHandle handle = session_->add(std::move(made), *feed_);
  if (std::ssize(programs_) >= options_.most_programs) {
    const auto oldest = std::ranges::min_element(programs_, {}, [](const auto& p) { return p.second.used; });
    if (options_.warn)
      options_.warn(fmt::format(
          "a TrainStep makes Program {}, for batches of {}, and drops one of the {} that it keeps. Making one takes "
          "much longer than a step: give batches fewer combinations of types, or raise options.most_programs",
          traces_ + 1, types, options_.most_programs));
    options_.warn = {};
    session_->drop(oldest->second.program);
    programs_.erase(oldest);
  }
  uses_.merge(uses);
  return keep(types, {handle, batches_, std::move(results)});
}

// Returns the states that no linked Tensor has: the optimizer's, and those of modules that only the loss
// knows until it is traced.
StateDict TrainStep::without_linked(StateDict state) const {
  std::erase_if(state, [this](const auto& entry) { return link_->contains(entry.first); });
  return state;
}

// Returns the state with which training begins.
StateDict TrainStep::state_of(const Graph& first) {
  for (const auto& [path, value] : state_)
    if (!own_.empty() && !path.starts_with(kOptimizerPath) && first.find_state(path) < 0)
      throw Error(fmt::format(
          "the state that was loaded has '{}', which neither the models nor the loss have", path));
  link_->set(state_);
  StateDict state = link_->state();
  state.insert(state_.begin(), state_.end());
  return state;
}

const TrainStep::Known& TrainStep::keep(const std::string& types, Known known) {
  ++traces_;
  if (options_.log) options_.log(fmt::format("Program {} is made, for batches of {}", traces_, types));
  return programs_[types] = std::move(known);
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
  if (session_) {
    link_->send();
    return session_->state();
  }
  StateDict state = link_->state();
  state.insert(state_.begin(), state_.end());
  return state;
}

void TrainStep::load(StateDict state, std::int64_t batches) {
  if (batches < 0) throw Error(fmt::format("training goes on at batch {}: it must be 0 or more", batches));
  if (session_)
    session_->load(state);
  else
    link_->require_all(state);
  link_->set(state);
  if (session_)
    link_->connect(session_.get());
  else
    state_ = without_linked(std::move(state));
  batches_ = batches;
  lost_ = false;
}

}  // namespace tandem
