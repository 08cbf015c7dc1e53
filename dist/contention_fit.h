#pragma once
#include <vector>

#include <tandem/dist/all_reduce_costs.h>

namespace tandem {

/// What one all-reduce took, on the rank that called last and so waited for no other.
struct AllReduceSample {
  int threads = 1;                        ///< r
  double sent_bytes = 0;                  ///< ĉ
  double beside_ms = 0;                   ///< t_o: with computation beside it, such as backward or updates
  double alone_ms = 0;                    ///< t_c: with none
  double beside_backward_ms = beside_ms;  ///< with backward beside it
};

/// One measured backward pass.
struct BackwardSample {
  double compute_ms = 0;  ///< from its begin until all gradients were computed
  std::vector<AllReduceSample> all_reduces;
};

struct ContentionFit {
  Contention contention{};
  double startup_ms = 0;  ///< a of Eq. 3
  double error = 0;       ///< median of |ln(measured / fitted)| over the all-reduces
};

/// The fewest numbers of threads that identify Eq. 6.
inline constexpr std::size_t kFewestForCurve = 5;

/// Fits LIBRA's Eqs. 5 and 6 to measured backward passes that take `alone_ms` with nothing beside them. With
/// fewer than kFewestForCurve numbers of threads, gives a table of rates by threads instead.
///
/// Backward: beside all-reduces it does what remains, Σ t_o·(1 − α2·r) = alone − (compute − Σ t_o), with the
/// times t_o beside backward; linear least squares with a Huber loss. All-reduces: t_o/P + t_c/Q = 1 with P =
/// a + ĉ/p and Q = a
/// + ĉ/q, where t_o is beside any computation; a, p, and q jointly in logarithms of time, with a Huber loss,
/// so that single outliers count little. Those that send `more_than_bytes` or less, which may not take Eq.
/// 3's time, are left out of a, p, and q. In a table, a p that is better than q by 5 % or less becomes q: it
/// is noise. Of a computation beside it, each number of threads in a table, and the smallest with Eq. 5,
/// leaves a speed of 0.01 or more. Throws Error unless some all-reduce was measured that sends more, and all
/// times are finite and not negative.
ContentionFit fit_contention(const std::vector<BackwardSample>& samples, double alone_ms,
                             double more_than_bytes = 0);

}  // namespace tandem
