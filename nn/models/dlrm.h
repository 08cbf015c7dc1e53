#pragma once
#include <string>
#include <vector>

#include <tandem/nn/containers.h>
#include <tandem/nn/layers.h>

namespace tandem::nn {

/// The sizes of the 26 categories of Criteo's Kaggle data, of which each is at most `most`.
std::vector<std::int64_t> criteo_rows(std::int64_t most = 30'000);

struct DlrmOptions {
  std::int64_t numbers = 13;                       ///< that describe a click
  std::vector<std::int64_t> rows = criteo_rows();  ///< of the tables, one for each category
  std::int64_t width = 128;                        ///< features of a row
  std::vector<std::int64_t> bottom{512, 256};      ///< outputs of the layers of the numbers, before `width`
  std::vector<std::int64_t> top{1024, 1024, 512,
                                256};  ///< outputs of the layers after the interaction, before 1
};

struct Clicks {
  Tensor numbers;     ///< (N, numbers)
  Tensor categories;  ///< ids i32 (N, tables, L); −1: none, a row of zeros
};

/// Clicks -> (N,1), the logit of a click: the recommendation model of Naumov et al. 2019. Layers make a
/// vector of the numbers; tables give one for each category, the sum of L rows. The products of all pairs of
/// these vectors and the vector of the numbers go through more layers. Sizes and first weights are those of
/// NVIDIA's DLRM.
class Dlrm final : public ModuleOf<Tensor(const Clicks&)> {
 public:
  explicit Dlrm(DlrmOptions options = {});
  Dlrm(ModuleBase& parent, const std::string& name, DlrmOptions options);
  Tensor forward(const Clicks& clicks) override;

 private:
  void add_tables_and_layers();

  DlrmOptions options_;
  Sequential bottom_;
  Tensors tables_;
  Sequential top_;
};

}  // namespace tandem::nn
