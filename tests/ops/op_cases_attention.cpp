// Attention: more queries than keys and fewer, tiles that are not full, masks that hide all.
#include <fmt/format.h>

#include <tandem/ops/attention.h>

#include "op_case.h"

namespace tandem::testing {
using namespace engine;
namespace {

struct Extents {
  std::int64_t samples, queries, keys, features;
  int heads;
};

}  // namespace

OpCases attention_cases() {
  OpCases cases;
  const Extents all[] = {{1, 1, 1, 1, 1},  {2, 3, 5, 4, 2},      {2, 5, 3, 6, 3},     {3, 1, 7, 8, 1},
                         {1, 7, 1, 4, 4},  {2, 17, 33, 24, 3},   {1, 131, 9, 8, 2},   {1, 40, 300, 20, 2},
                         {3, 9, 9, 12, 2}, {1, 260, 260, 16, 1}, {2, 129, 257, 32, 4}};
  for (const auto& [samples, queries, keys, features, heads] : all)
    for (const bool causal : {false, true})
      for (const bool masked : {false, true})
        for (const double dropout : {0.0, 0.3})
          for (const bool packed : {false, true}) {
            if (packed && queries != keys) continue;
            if (queries * keys > 1000 && dropout > 0 && !masked) continue;
            const Shape q{samples, queries, features}, k{samples, keys, features};
            OpCase c{fmt::format("attention_{}x{}x{}x{}_h{}_causal{}_masked{}_dropout{}_packed{}", samples,
                                 queries, keys, features, heads, int{causal}, int{masked}, int{dropout > 0},
                                 int{packed}),
                     {},
                     {}};
            if (packed)
              c.inputs = {f32({samples, queries, 3 * features}, -2, 2)};
            else
              c.inputs = {f32(q, -2, 2), f32(k, -2, 2), f32(k, -2, 2)};
            const std::size_t given = c.inputs.size();
            if (masked) c.inputs.push_back(b8({samples, keys}));
            if (dropout > 0) c.inputs.push_back(i64({}, 0, 1 << 30));
            c.apply = [=](const Tensors& x) {
              const AttentionOptions options{.heads = heads,
                                             .causal = causal,
                                             .scale = causal ? 0.3 : 0,
                                             .dropout = dropout,
                                             .seed = dropout > 0 ? x.back() : Tensor(),
                                             .key_mask = masked ? x[given] : Tensor()};
              return Tensors{packed ? attention(x[0], options) : attention(x[0], x[1], x[2], options)};
            };
            c.any_team = true;
            c.more_nan = "keys that a query does not see are multiplied by 0";
            c.inner_values = 2 * static_cast<double>(features) / heads;
            c.no_bf16_in_turn = "the gradient of q and k has a difference of y·dy, in which y is rounded";
            cases.push_back(c);
          }
  return cases;
}

}  // namespace tandem::testing
