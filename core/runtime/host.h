#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include <tandem/core/base/element.h>
#include <tandem/core/base/types.h>
#include <tandem/core/graph/model_range.h>
#include <tandem/core/graph/names.h>

namespace tandem::engine {

struct RankContext;

/// One input of one micro-batch on one rank, for a Host to fill.
struct HostInput {
  const std::string& name;
  const TensorType& type;  ///< with a leading model axis if each model has a value of its own
  std::int64_t batch;
  int microbatch;
  const RankContext& rank;
  std::span<std::byte> bytes;
  ModelRange models{};  ///< whose input it is, if each model has a value of its own

  /// The elements as `T`. Throws Error unless `T` stores the input's dtype.
  template <class T> std::span<T> as() const;
  /// Stores `value` as element `i`, rounded to the dtype. Throws Error unless 0 ≤ i < elements.
  void set(std::int64_t i, double value) const;
  /// Stores `value` as every element.
  void fill(double value) const;
};

/// One result of one batch: the value of the whole global batch.
struct HostResult {
  const std::string& name;
  const TensorType& type;  ///< with a leading model axis if there are several models
  std::int64_t batch;
  std::int64_t first_batch;  ///< of the run
  const RankContext& rank;
  std::span<const std::byte> bytes;
  ModelRange models{};  ///< whose result it is

  /// The elements as `T`. Throws Error unless `T` stores the result's dtype.
  template <class T> std::span<const T> as() const;
  /// All elements, whatever the dtype.
  std::vector<double> values() const;
};

/// The outside of a Program: it fills the inputs and takes the results, by batch. Lanes' threads call it,
/// several of them at once.
class Host {
 public:
  virtual ~Host() = default;
  /// Writes all of `input`. If weights are predicted, learning rates of batches after the run are asked for
  /// too, because predictions include updates after it.
  virtual void fill(const HostInput& input) = 0;
  /// Takes `result`. Every replica of the stage that makes a result delivers it, with identical bits;
  /// `result.rank.replica == 0` picks one.
  virtual void deliver(const HostResult& result) = 0;
};

/// A Host made of two functions, for Programs with one replica and one micro-batch. If there are several
/// stages or compute lanes, several threads call the functions at once: what they share needs a lock.
class FunctionHost final : public Host {
 public:
  using Fill = std::function<void(const HostInput&)>;
  using Deliver = std::function<void(const HostResult&)>;
  /// Without `deliver`, results are dropped. Throws Error if one of the functions is empty.
  explicit FunctionHost(
      Fill fill, Deliver deliver = [](const HostResult&) {});
  /// Throws Error on a second micro-batch or replica.
  void fill(const HostInput& input) override;
  void deliver(const HostResult& result) override;

 private:
  Fill fill_;
  Deliver deliver_;
};

/// Throws Error if elements of `type` are not stored as the C++ type asked for (`stored` is false).
void require_stored(bool stored, const std::string& name, const TensorType& type);

template <class T> std::span<T> HostInput::as() const {
  require_stored(stores<T>(type.dtype), name, type);
  return {reinterpret_cast<T*>(bytes.data()), bytes.size() / sizeof(T)};
}
template <class T> std::span<const T> HostResult::as() const {
  require_stored(stores<T>(type.dtype), name, type);
  return {reinterpret_cast<const T*>(bytes.data()), bytes.size() / sizeof(T)};
}

}  // namespace tandem::engine
