#include <tandem/datasets/transform.h>

#include <fmt/format.h>

namespace tandem {

void require_image(const char* transform, const TensorType& in) {
  if (in.dtype != DType::u8 || in.rank() != 3)
    throw Error(
        fmt::format("{} takes images, u8 (H,W,C), not {}; put it before transforms that change the type",
                    transform, to_string(in)));
}

}  // namespace tandem
