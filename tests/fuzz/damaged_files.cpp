// The main() of a fuzzer in the ordinary tests: calls it with an empty file, with zeros, and with each file
// that is named, whole, cut short, and with bytes changed. A fuzzer that does not compile any more fails
// here, and so does one whose files crash it.
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <random>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace {

constexpr int kDamaged = 200;
constexpr std::size_t kZeros = 6147;  // two records of CIFAR-10, and one byte

using Bytes = std::vector<std::uint8_t>;

void call(const Bytes& bytes) { LLVMFuzzerTestOneInput(bytes.data(), bytes.size()); }

}  // namespace

int main(int argc, char** argv) {
  call({});
  call(Bytes(kZeros));
  std::mt19937_64 rng(1);
  const auto draw = [&](std::size_t n) { return static_cast<std::size_t>(rng() % n); };
  for (int i = 1; i < argc; ++i) {
    std::ifstream in(argv[i], std::ios::binary);
    const Bytes whole{std::istreambuf_iterator<char>(in), {}};
    if (whole.empty()) return std::fprintf(stderr, "%s: cannot be read, or is empty\n", argv[i]), 1;
    call(whole);
    for (int k = 0; k < kDamaged; ++k) {
      Bytes damaged = whole;
      for (std::size_t changes = draw(4); changes > 0; --changes)
        damaged[draw(damaged.size())] = static_cast<std::uint8_t>(draw(256));
      if (k % 4 == 0) damaged.resize(draw(damaged.size()));
      call(damaged);
    }
  }
  std::printf("%d files, each also damaged in %d ways\n", argc - 1, kDamaged);
}
