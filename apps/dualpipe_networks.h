#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <tandem/nn/module.h>

namespace tandem::apps {

/// What the paper averages over: all six networks, its CNNs, its fully connected and recurrent networks.
enum NetworkKind : std::uint8_t { kAll, kCnn, kOther };

/// A network of the paper, or one that stands in its place.
struct DualPipeNetwork {
  std::string name;         ///< as `tandem summary` has it
  std::string title;        ///< as in the paper
  NetworkKind kind = kCnn;  ///< kCnn or kOther
  double lr = 0;            ///< the paper's; where it has none, that of the network in whose place it stands
  bool in_paper = true;
  bool measured = false;  ///< at --scale small: its whole size gives Figs. 3, 4, 7, 10, 11
  /// The size that --scale small trains. Empty: it trains none.
  std::function<std::unique_ptr<nn::Module>()> small{};
  std::int64_t small_batch = 0;
  bool reads_texts = false;  ///< of words; else images
  /// The rate of --scale small, where one device learns nothing at the paper's. 0: the paper's.
  double small_lr = 0;

  /// Returns it in the paper's size, for the classes of its samples, without weights.
  std::unique_ptr<nn::Module> whole() const;
};

/// All of them, those of the paper first.
std::vector<DualPipeNetwork> dualpipe_networks();

}  // namespace tandem::apps
