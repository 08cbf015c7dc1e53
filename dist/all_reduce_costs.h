#pragma once
#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace tandem {

/// A part of a backward pass, in the order in which backward computes them: what it computes until it has the
/// gradients of these parameters.
struct GradientLayer {
  std::string name{};
  double compute_ms = 0;      ///< b: alone, without an all-reduce beside it
  double gradient_bytes = 0;  ///< c
  std::vector<std::string> parameters{};
};

/// What an all-reduce with some threads costs, and costs others.
struct ThreadRates {
  int threads = 1;          ///< r
  double compute_rate = 1;  ///< s: the speed of a computation beside it, where 1 is alone; above 0
  double overlapped = 0;    ///< sent bytes per ms beside a computation: p(c, r) = ĉ / overlapped
  double alone = 0;         ///< sent bytes per ms with none beside it: q(c, r) = ĉ / alone
};

/// The contention model of LIBRA: how fast computations and all-reduces beside each other are.
struct ContentionModel {
  /// Eq. 6: γ1 − γ2·exp(−γ3·r^γ4), in sent bytes per ms.
  struct Curve {
    double gamma1 = 0, gamma2 = 0, gamma3 = 0, gamma4 = 0.6;
    double at(double threads) const;
  };
  double alpha1 = 1, alpha2 = 0;  ///< Eq. 5: computation takes b / (α1 − α2·r)
  Curve overlapped{}, alone{};

  /// Throws Error if a rate is not above 0.
  ThreadRates at(int threads) const;
};

/// How all-reduces and computations slow each other down: for any number of threads, or for those in a table.
class Contention {
 public:
  Contention() = default;
  Contention(ContentionModel model) : rates_(model) {}                      // NOLINT: converts
  Contention(std::vector<ThreadRates> table) : rates_(std::move(table)) {}  // NOLINT: converts
  /// Throws Error if the rates are not known for this number, or not above 0.
  ThreadRates at(int threads) const;
  /// The model, or null if there is a table.
  const ContentionModel* model() const { return std::get_if<ContentionModel>(&rates_); }
  /// The numbers of threads whose rates are known; empty if all are.
  std::vector<int> known_threads() const;
  /// Returns those of `threads` for which `at` throws no Error. Appends a line for each other one to
  /// `warnings`: why it cannot be chosen.
  std::vector<int> choices(const std::vector<int>& threads, std::vector<std::string>& warnings) const;

 private:
  std::variant<ContentionModel, std::vector<ThreadRates>> rates_;
};

/// The costs of all-reduces over some ranks.
struct AllReduceCosts {
  double startup_ms = 0;               ///< a of Eq. 3
  double sent_per_byte = 1;            ///< ĉ / c
  std::vector<ThreadRates> choices{};  ///< R: what a planner can choose

  /// Milliseconds of an all-reduce that has computation beside it until its end (p + a), or none at all (q +
  /// a). One of 0 bytes takes no time.
  double overlapped_ms(double bytes, const ThreadRates& rates) const;
  double alone_ms(double bytes, const ThreadRates& rates) const;
};

/// Returns the costs of a ring over `ranks`, Eq. 4: a = 2(n−1)·hop, ĉ = 2(n−1)/n·c.
AllReduceCosts ring_costs(int ranks, double hop_ms, std::vector<ThreadRates> choices);

/// Layers whose gradients are reduced together, and by how many threads.
struct AllReduceGroup {
  int first_layer = 0, last_layer = 0;
  ThreadRates rates{};
  double earliest_ms = 0;  ///< after the begin of backward: it does not begin before
};

/// Throws Error unless the groups hold each layer once, in order.
void require_each_layer_once(const std::vector<GradientLayer>& layers,
                             const std::vector<AllReduceGroup>& groups);

struct BackwardTimes {
  double backward_ms = 0;  ///< compute_ms + residual_ms
  double compute_ms = 0;   ///< with what all-reduces beside it cost
  double residual_ms = 0;  ///< of all-reduces, after the computation
};

/// Returns the times of a backward pass by LIBRA's Eqs. 8 to 15. An all-reduce begins when its layers are
/// computed and the one before has ended; the last group ends with the last layer. Throws Error unless the
/// groups hold each layer once, in order, and may begin at any time (backward_program simulates others).
BackwardTimes backward_times(const std::vector<GradientLayer>& layers,
                             const std::vector<AllReduceGroup>& groups, const AllReduceCosts& costs);

}  // namespace tandem
