#include "interpret.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string>
#include <unordered_map>

#include <tandem/core/convert.h>
#include <tandem/core/graph_ops.h>
#include <tandem/core/kernel.h>
#include <tandem/plan/build.h>

namespace tandem::testing {
namespace {

class Interpreter {
 public:
  Interpreter(const Job& job, const Strategy& strategy)
      : job_(job),
        strategy_(strategy),
        graph_(planned_graph(trace_job(job, job.batch_size / strategy.microbatches), strategy)) {
    const auto initial = initial_state(job);
    for (const StateSlot& s : graph_.slots())
      current_.push_back(initial.contains(s.path) ? initial.at(s.path) : Tensor::zeros(s.type));
  }

  Outcome run() {
    std::int64_t batch = 0;
    for (std::int64_t batches : job_.drains) {
      versions_.clear();
      for (const Tensor& t : current_) versions_.push_back({t});
      for (std::int64_t b = 0; b < batches; ++b) step(b, batch++);
      for (std::size_t s = 0; s < current_.size(); ++s) current_[s] = versions_[s].back();
    }
    for (std::size_t s = 0; s < current_.size(); ++s) outcome_.state[graph_.slots()[s].path] = current_[s];
    return std::move(outcome_);
  }

 private:
  void step(std::int64_t in_run, std::int64_t batch) {
    const EagerBatch scope(batch);
    std::unordered_map<ValueId, Tensor> value;
    std::unordered_map<std::int64_t, Tensor> sent;
    const auto arrived = [&](const Node& n) {
      return (n.op->lane() != LaneKind::receive || sent.contains(n.tag.channel)) &&
             std::all_of(n.inputs.begin(), n.inputs.end(), [&](ValueId v) { return value.contains(v); });
    };
    std::vector<const Node*> left;  // a receive may stand before its send
    for (const Node& n : graph_.nodes()) left.push_back(&n);
    for (std::size_t i = 0; !left.empty(); i = i < left.size() ? i : 0) {
      if (!arrived(*left[i])) {
        ++i;
        continue;
      }
      const Node& n = *left[i];
      left.erase(left.begin() + static_cast<std::ptrdiff_t>(i));
      Tensors in;
      for (ValueId v : n.inputs) in.push_back(value.at(v));
      if (const auto* read = dynamic_cast<const Read*>(n.op.get())) {
        const std::int64_t version = std::max<std::int64_t>(0, in_run + 1 - read->age);
        value[n.outputs[0]] =
            versions_[static_cast<std::size_t>(read->slot)].at(static_cast<std::size_t>(version));
      } else if (const auto* assign = dynamic_cast<const Assign*>(n.op.get())) {
        versions_[static_cast<std::size_t>(assign->slot)].push_back(in[0]);
      } else if (const auto* input = dynamic_cast<const Input*>(n.op.get())) {
        value[n.outputs[0]] = filled(*input, batch, n.tag.microbatch);
      } else if (const auto* result = dynamic_cast<const Result*>(n.op.get())) {
        if (result->result == "loss") outcome_.losses.push_back(in[0].values());
      } else if (n.op->lane() == LaneKind::send) {
        sent[n.tag.channel] = in[0];
      } else if (n.op->lane() == LaneKind::receive) {
        value[n.outputs[0]] = sent.at(n.tag.channel);
      } else {
        const Tensors out = evaluate(cpu_kernels(), n.op, in, n.tag);
        for (std::size_t o = 0; o < out.size(); ++o) value[n.outputs[o]] = out[o];
      }
    }
  }

  Tensor filled(const Input& input, std::int64_t batch, int microbatch) const {
    Tensor t = Tensor::empty(input.type);
    const std::int64_t samples = job_.batch_size / strategy_.microbatches;
    const std::int64_t per_sample = input.input == "images" ? element_count(job_.sample) : 1;
    for (std::int64_t i = 0; i < t.elements(); ++i) {
      const std::int64_t sample = microbatch * samples + i / per_sample;
      const double v = input.input == "images"   ? pixel(job_, batch, sample, i % per_sample)
                       : input.input == "labels" ? label(job_, batch, sample)
                       : input.input == "lr"     ? job_.rates[static_cast<std::size_t>(i)]
                                             : static_cast<double>(job_.seeds[static_cast<std::size_t>(i)]);
      store_element(t.dtype(), t.data(), i, v);
    }
    return t;
  }

  const Job& job_;
  const Strategy& strategy_;
  Graph graph_;
  std::vector<Tensor> current_;
  std::vector<std::vector<Tensor>> versions_;
  Outcome outcome_;
};

}  // namespace

Outcome interpret(const Job& job, const Strategy& strategy) {
  setenv("TANDEM_THREADS", std::to_string(strategy.threads).c_str(), 1);  // the same team as the lanes'
  Strategy s = strategy;
  s.models = static_cast<int>(job.seeds.size());
  return Interpreter(job, s).run();
}

}  // namespace tandem::testing
