#pragma once
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>

#include <tandem/core/graph/graph.h>
#include <tandem/core/graph/op.h>

namespace tandem::engine {

class Comm;
class Host;
class KernelTable;

/// Describes the rank that runs a kernel. Filled in once per rank.
struct RankContext {
  int rank = 0;     ///< replica · devices + device
  int replica = 0;  ///< which data-parallel copy
  int replicas = 1;
  int device = 0;  ///< of the Program
  int devices = 1;
  Comm* comm = nullptr;  ///< null outside a distributed run
  Host* host = nullptr;  ///< supplies inputs, takes results
};

/// What a kernel is prepared for, before the first instruction runs.
struct KernelSpec {
  const Op& op;
  TypesView inputs;
  TypesView outputs;
  const Tag& tag;
  int threads = 1;            ///< team size of the lane it will run on; of a collective: Tag::threads
  int microbatches = 1;       ///< of the Program
  std::uint64_t channel = 0;  ///< of a transfer or collective: unique in the Program, same at all ends
  int pieces = 1;             ///< requested (Kernel::pieces); a kernel may choose another number
  const KernelTable* table = nullptr;  ///< set by `make` to its table, for kernels built from others
};

/// The arguments that change from launch to launch.
struct Launch {
  const void* const* in;  ///< one address per input
  void* const* out;       ///< one address per output
  void* workspace;        ///< `Kernel::workspace()` bytes, 64-byte aligned, planned
  std::int64_t batch;     ///< the batch this execution works on
  const RankContext* rank;
  int threads = 1;        ///< of a collective: how many of this rank's threads work at most; others ignore it
  double* met = nullptr;  ///< if not null, a collective sets it to when all ranks had called (Comm)
  std::int64_t first_batch = 0;  ///< of the run: no batch before it is in flight
};

/// An op prepared for given types and a given team: its primitives exist, and `run` allocates and looks up
/// nothing. `run` must not keep state between calls, because instructions can share a kernel.
class Kernel {
 public:
  virtual ~Kernel() = default;
  /// Scratch bytes, placed by the planner for the duration of the instruction.
  virtual std::int64_t workspace() const { return 0; }
  virtual void run(const Launch& launch) const = 0;

  /// Returns the number of equal pieces, consecutive in memory, in which a run makes its first output. While
  /// a piece is in the caches, another kernel can work on it.
  virtual int pieces() const { return 1; }
  /// Makes one piece. Making all pieces in order does what `run` does.
  virtual void run_piece(const Launch& launch, int piece) const;
};
using KernelPtr = std::unique_ptr<Kernel>;

/// Makes a kernel from a function, for ops that need no primitive. `workspace`: its scratch, in bytes.
KernelPtr make_kernel(std::function<void(const Launch&)> run, std::int64_t workspace = 0);

/// Prepares a kernel, or returns null if this table has none for these types.
using KernelFactory = KernelPtr (*)(const KernelSpec&);

/// A backend's kernels: an explicit list, built by a function that names them all. A table can fall
/// back on another (the CPU's on the reference kernels).
class KernelTable {
 public:
  explicit KernelTable(std::string backend, const KernelTable* fallback = nullptr)
      : backend_(std::move(backend)), fallback_(fallback) {}
  void add(std::string_view op, KernelFactory factory);
  bool has(std::string_view op) const;
  /// Prepares a kernel. If none takes operands in bf16 or f16, it computes through f32 (through_f32.h).
  /// Throws Error naming op, types and backend if there is no kernel.
  KernelPtr make(const KernelSpec& asked) const;
  const std::string& backend() const { return backend_; }

 private:
  std::string backend_;
  const KernelTable* fallback_;
  std::unordered_map<std::string, KernelFactory> factories_;
};

}  // namespace tandem::engine
