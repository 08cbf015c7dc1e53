#include <tandem/core/runtime/host.h>

#include <utility>

#include <fmt/format.h>

#include <tandem/core/base/error.h>
#include <tandem/core/graph/kernel.h>

namespace tandem::engine {

void HostInput::set(std::int64_t i, double value) const {
  if (i < 0 || i >= type.elements())
    throw Error(fmt::format("input '{}' is {}: it has no element {}", name, to_string(type), i));
  store_element(type.dtype, bytes.data(), i, value);
}

void HostInput::fill(double value) const {
  for (std::int64_t i = 0; i < type.elements(); ++i) store_element(type.dtype, bytes.data(), i, value);
}

std::vector<double> HostResult::values() const {
  std::vector<double> all;
  for (std::int64_t i = 0; i < type.elements(); ++i) all.push_back(load_element(type.dtype, bytes.data(), i));
  return all;
}

FunctionHost::FunctionHost(Fill fill, Deliver deliver)
    : fill_(std::move(fill)), deliver_(std::move(deliver)) {
  if (!fill_ || !deliver_) throw Error("a FunctionHost needs both of its functions: one is empty");
}

void FunctionHost::fill(const HostInput& input) {
  if (input.microbatch != 0)
    throw Error(
        fmt::format("input '{}' of micro-batch {}: a FunctionHost has one micro-batch; derive from Host",
                    input.name, input.microbatch));
  if (input.rank.replicas > 1)
    throw Error(fmt::format(
        "input '{}' of replica {}: a FunctionHost has one replica, and would give all replicas the same "
        "samples; derive from Host",
        input.name, input.rank.replica));
  fill_(input);
}

void FunctionHost::deliver(const HostResult& result) {
  if (result.rank.replica == 0) deliver_(result);
}

void require_stored(bool stored, const std::string& name, const TensorType& type) {
  if (!stored)
    throw Error(fmt::format("the host takes '{}' as another C++ type; it is {}", name, to_string(type)));
}

}  // namespace tandem::engine
