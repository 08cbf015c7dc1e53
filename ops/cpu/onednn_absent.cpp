// Replaces onednn.cpp in builds without the library: the functions that make primitives return null.
#include <tandem/ops/cpu/onednn.h>

namespace tandem::engine::onednn {

struct Primitive::Plan {};
struct Primitive::Impl {};
Primitive::~Primitive() = default;
std::int64_t Primitive::workspace() const { return 0; }
int Primitive::run(std::span<void* const>, void*) const noexcept { return 0; }
void Primitive::compute(std::initializer_list<const void*>, void*) const {}
int Primitive::pieces() const { return 1; }
int Primitive::run_piece(std::span<void* const>, void*, int) const noexcept { return 0; }
void Primitive::require_success(int) const {}
const char* Primitive::implementation() const { return "none"; }

bool has_amx() { return false; }
bool has_gemm() { return false; }
int gemm(const Matrix&, const Matrix&, float*, std::int64_t, std::int64_t, std::int64_t, std::int64_t,
         bool) noexcept {
  return 1;
}
PrimitivePtr matmul(const Operand&, const Operand&, const Operand*, const Operand&, Team) { return nullptr; }
PackedMatmul packed_matmul(const Operand&, const Operand&, const Operand&, bool, Team) { return {}; }
PrimitivePtr convolution(const Operand&, const Operand&, const Operand*, const Operand&, const Window&,
                         Team) {
  return nullptr;
}
PrimitivePtr convolution_grad_input(const Operand&, const Operand&, const Operand&, const Window&, Team) {
  return nullptr;
}
PrimitivePtr convolution_grad_weight(const Operand&, const Operand&, const Operand&, const Operand*,
                                     const Window&, Team) {
  return nullptr;
}

}  // namespace tandem::engine::onednn
