#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include <tandem/memory/memory_plan.h>

namespace tandem::engine {

/// Executes the instructions of a memory plan on paper, one by one (see `replay`, whose errors it throws).
/// Keeps a reference to the problem.
class MemoryMachine {
 public:
  /// Begins with inputs alone on the device.
  explicit MemoryMachine(const MemoryProblem& problem);
  /// Begins a step, or the period of a ring, again, with these values on the device and on the host.
  void begin(const std::vector<int>& resident_at_start = {}, const std::vector<int>& host_at_start = {});

  void execute(const MemoryStep& step);
  /// Checks that the step or period is complete, and returns what it cost.
  MemoryCost finish() const;

  std::int64_t live_bytes() const { return live_; }
  double clock_ms() const { return clock_; }  ///< of the compute lane
  double stall_ms() const { return cost_.stall_ms; }
  bool is_resident(int v) const { return at(v).resident; }
  bool is_under_copy(int v) const { return at(v).copy != Value::none; }
  bool is_defined(int v) const { return at(v).defined; }     ///< or will be, when it was waited for
  double copied_at(int v) const { return at(v).copied_at; }  ///< when the last copy ends

 private:
  struct Value {
    bool resident = false, defined = false, on_host = false;
    bool resident_at_start = false, on_host_at_start = false;
    bool of_first_forward = false;  // of a ring: its first graph's forward makes it for the next period
    enum { none, to_host, to_device } copy = none;
    bool was_copied = false;
    bool updated = false;  // a parameter: an update that reads it has run
    double copied_at = 0;
  };

  Value& value(int v) { return values_[static_cast<std::size_t>(v)]; }
  const Value& at(int v) const { return values_[static_cast<std::size_t>(v)]; }
  const MemoryValue& of(int v) const { return problem_.values[static_cast<std::size_t>(v)]; }
  const MemoryGraph& graph(int g) const { return problem_.graphs[static_cast<std::size_t>(g)]; }
  const MemoryNode& node(const MemoryStep& step) const {
    return graph(step.graph).nodes[static_cast<std::size_t>(step.node)];
  }
  [[noreturn]] void refuse(const std::string& why) const;
  [[noreturn]] void refuse_value(const char* verb, int v, const char* why) const;
  void add_bytes(std::int64_t bytes);
  void alloc(int v);
  void release(int v);
  void compute(const MemoryNode& node, bool again);
  void run(const MemoryStep& step);
  void recompute(const MemoryStep& step);
  void begin_copy(int v, double& channel);
  void check_can_move(int v) const;
  void copy_to_host(int v);
  void copy_to_device(int v);
  void wait(int v);

  const MemoryProblem& problem_;
  std::vector<Value> values_, inputs_alone_;  // now, and at the start if inputs alone are there
  std::int64_t bytes_of_inputs_ = 0;
  std::vector<int> first_, next_;  // per graph: nodes
  std::vector<int> runs_;          // per graph: nodes that have run
  int executed_ = 0;
  const MemoryStep* current_ = nullptr;  // while it is executed
  std::int64_t live_ = 0;
  double clock_ = 0, to_host_ = 0, from_host_ = 0;  // when lanes are free
  MemoryCost cost_;
};

}  // namespace tandem::engine
