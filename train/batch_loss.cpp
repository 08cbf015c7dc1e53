#include <tandem/train/batch_loss.h>

#include <fmt/format.h>

#include <tandem/core/base/error.h>

namespace tandem {

void BatchLoss::refuse(const Tensors& batch) const {
  Types types;
  for (const Tensor& t : batch) types.push_back(t.type());
  throw Error(fmt::format("the loss takes {}, and the batch has {}: {}",
                          counted(static_cast<std::int64_t>(parameters_), "tensor"), batch.size(),
                          to_string(types)));
}

}  // namespace tandem
