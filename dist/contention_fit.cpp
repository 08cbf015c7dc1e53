#include <tandem/dist/contention_fit.h>

#include <algorithm>
#include <cmath>
#include <set>

#include <fmt/format.h>
#include <Eigen/Dense>
#include <unsupported/Eigen/NonLinearOptimization>
#include <unsupported/Eigen/NumericalDiff>

#include <tandem/core/base/error.h>
#include <tandem/dist/median.h>

namespace tandem {
namespace {

using Eigen::VectorXd;

constexpr double kHuber = 0.05;  // beyond an error of 5 %, the loss is linear
constexpr double kPrior = 1e-3;  // weight of what is assumed of rates that no sample tells
constexpr double kNoise = 0.05;  // of a rate: an all-reduce that is faster beside computation by less is not
constexpr double kGamma4 = 0.6;  // as in the paper
constexpr double kLeastSpeed = 0.01;  // of a computation: noise can seem to stop it

// The place of a number among others.
std::size_t index_of(const std::vector<int>& numbers, int number) {
  return static_cast<std::size_t>(std::ranges::find(numbers, number) - numbers.begin());
}

// Half its square is the Huber loss of x, so that a least-squares solver minimizes that.
double robust(double x) {
  const double size = std::fabs(x);
  return size <= kHuber ? x : std::copysign(std::sqrt(kHuber * (2 * size - kHuber)), x);
}

// The rates of all-reduces as functions of some parameters, which are logarithms: so rates stay above 0.
struct Rates {
  double startup_ms;
  std::vector<double> overlapped, alone;  // by index of the number of threads
};

// ln of what t_o/P + t_c/Q should be: 1.
double error_of(const AllReduceSample& s, const Rates& rates, std::size_t choice) {
  const double p = rates.startup_ms + s.sent_bytes / rates.overlapped[choice];
  const double q = rates.startup_ms + s.sent_bytes / rates.alone[choice];
  return std::log(s.beside_ms / p + s.alone_ms / q);
}

/// Parameters → Rates, and what is assumed of parameters that the samples do not tell.
class RateFamily {
 public:
  virtual ~RateFamily() = default;
  virtual VectorXd start(double startup_ms, double rate) const = 0;
  virtual Rates rates(const VectorXd& x) const = 0;
  virtual std::vector<double> priors(const VectorXd& x) const = 0;
};

// x = ln a, then ln p and ln q of each number of threads. A number's rates are assumed to be its neighbour's,
// and q to be p.
class TableFamily final : public RateFamily {
 public:
  explicit TableFamily(std::size_t choices) : choices_(choices) {}
  VectorXd start(double startup_ms, double rate) const override {
    VectorXd x = VectorXd::Constant(static_cast<Eigen::Index>(1 + 2 * choices_), std::log(rate));
    x[0] = std::log(startup_ms);
    return x;
  }
  Rates rates(const VectorXd& x) const override {
    Rates r{std::exp(x[0]), {}, {}};
    for (std::size_t i = 0; i < choices_; ++i) {
      r.overlapped.push_back(std::exp(p(x, i)));
      r.alone.push_back(std::exp(q(x, i)));
    }
    return r;
  }
  std::vector<double> priors(const VectorXd& x) const override {
    std::vector<double> priors;
    for (std::size_t i = 0; i < choices_; ++i) {
      priors.push_back(p(x, i) - q(x, i));
      if (i > 0) priors.push_back(p(x, i) - p(x, i - 1));
    }
    return priors;
  }

 private:
  double p(const VectorXd& x, std::size_t i) const { return x[static_cast<Eigen::Index>(1 + i)]; }
  double q(const VectorXd& x, std::size_t i) const { return x[static_cast<Eigen::Index>(1 + choices_ + i)]; }
  const std::size_t choices_;
};

// x = ln a, then of p and of q: ln(γ1 − γ2), ln γ2, ln γ3. So γ1 ≥ γ2, and all are above 0.
class CurveFamily final : public RateFamily {
 public:
  explicit CurveFamily(std::vector<int> threads, double gamma3)
      : threads_(std::move(threads)), gamma3_(gamma3) {}
  static ContentionModel::Curve curve(const VectorXd& x, Eigen::Index first) {
    const double gamma2 = std::exp(x[first + 1]);
    return {gamma2 + std::exp(x[first]), gamma2, std::exp(x[first + 2]), kGamma4};
  }
  VectorXd start(double startup_ms, double rate) const override {
    VectorXd x(7);
    const double low = std::log(rate / 10), high = std::log(rate), g = std::log(gamma3_);
    x << std::log(startup_ms), low, high, g, low, high, g;
    return x;
  }
  Rates rates(const VectorXd& x) const override {
    Rates r{std::exp(x[0]), {}, {}};
    for (const int threads : threads_) {
      r.overlapped.push_back(curve(x, 1).at(threads));
      r.alone.push_back(curve(x, 4).at(threads));
    }
    return r;
  }
  std::vector<double> priors(const VectorXd& x) const override {
    return {x[2] - x[1], x[5] - x[4], x[3] - x[6], x[1] - x[4], x[2] - x[5]};
  }

 private:
  const std::vector<int> threads_;
  const double gamma3_;
};

struct Residuals {  // of Eigen's Levenberg–Marquardt
  using Scalar = double;
  using InputType = VectorXd;
  using ValueType = VectorXd;
  using JacobianType = Eigen::MatrixXd;
  enum { InputsAtCompileTime = Eigen::Dynamic, ValuesAtCompileTime = Eigen::Dynamic };

  const RateFamily& family;
  const std::vector<AllReduceSample>& samples;
  const std::vector<std::size_t>& choices;  // by sample
  Eigen::Index parameters, count;

  int inputs() const { return static_cast<int>(parameters); }
  int values() const { return static_cast<int>(count); }
  int operator()(const VectorXd& x, VectorXd& f) const {
    const Rates rates = family.rates(x);
    Eigen::Index next = 0;
    for (std::size_t i = 0; i < samples.size(); ++i)
      f[next++] = robust(error_of(samples[i], rates, choices[i]));
    for (const double prior : family.priors(x)) f[next++] = kPrior * prior;
    for (; next < count; ++next) f[next] = 0;
    return 0;
  }
};

struct Fitted {
  VectorXd x;
  double loss;
};

Fitted fit_from(const RateFamily& family, const std::vector<AllReduceSample>& samples,
                const std::vector<std::size_t>& choices, VectorXd x) {
  const auto count = static_cast<Eigen::Index>(samples.size() + family.priors(x).size());
  Eigen::NumericalDiff<Residuals> residuals(
      Residuals{family, samples, choices, x.size(), std::max(count, x.size())});
  Eigen::LevenbergMarquardt<Eigen::NumericalDiff<Residuals>> solver(residuals);
  solver.parameters.maxfev = 4000;
  solver.minimize(x);
  VectorXd f(residuals.values());
  residuals(x, f);
  return {x, f.squaredNorm()};
}

// Where to begin. The loss has several valleys: in some, rates explain what short all-reduces take, in others
// the startup does.
struct Start {
  double startup_ms, rate;
};
std::vector<Start> starts(const std::vector<AllReduceSample>& samples) {
  std::vector<double> durations, rates;
  for (const AllReduceSample& s : samples) {
    durations.push_back(s.beside_ms + s.alone_ms);
    rates.push_back(s.sent_bytes / durations.back());
  }
  std::ranges::sort(durations);
  std::ranges::sort(rates);
  const double least = durations.front(), short_one = durations[durations.size() / 4];
  return {{least / 2, rates[rates.size() / 2]}, {short_one, rates.back()}, {least, 2 * rates.back()}};
}

// Minimizes Σ w·(a·x − b)², in which the rows that are off by more than `limit` have the weights w of Huber's
// loss, and those from `assumed` on count in full.
VectorXd robust_solution(const Eigen::MatrixXd& a, const VectorXd& b, double limit, Eigen::Index assumed) {
  constexpr int kRepetitions = 30;
  VectorXd x, roots = VectorXd::Ones(a.rows());  // of the weights
  for (int i = 0; i < kRepetitions; ++i) {
    x = (roots.asDiagonal() * a).completeOrthogonalDecomposition().solve(roots.cwiseProduct(b));
    const VectorXd off = (a * x - b).cwiseAbs();
    for (Eigen::Index row = 0; row < assumed; ++row)
      roots[row] = off[row] <= limit ? 1 : std::sqrt(limit / off[row]);
  }
  return x;
}

// Σ t_o·slowdown(r) = compute − alone, by linear least squares with Huber's loss: for Eq. 5, slowdown = α2·r;
// otherwise one value per number of threads. Weakly assumes them alike.
VectorXd slowdowns(const std::vector<BackwardSample>& samples, double alone_ms,
                   const std::vector<int>& threads, bool in_proportion) {
  const Eigen::Index unknown = in_proportion ? 1 : std::ssize(threads), rows = std::ssize(samples);
  Eigen::MatrixXd a = Eigen::MatrixXd::Zero(rows + unknown, unknown);
  VectorXd b = VectorXd::Zero(rows + unknown);
  for (Eigen::Index row = 0; row < rows; ++row) {
    const BackwardSample& s = samples[static_cast<std::size_t>(row)];
    for (const AllReduceSample& r : s.all_reduces)
      a(row, in_proportion ? 0 : static_cast<Eigen::Index>(index_of(threads, r.threads))) +=
          r.beside_backward_ms * (in_proportion ? r.threads : 1);
    b[row] = s.compute_ms - alone_ms;
  }
  const double weight = kPrior * std::max(a.norm(), 1e-12);
  for (Eigen::Index i = 1; i < unknown; ++i) a(rows + i, i) = weight, a(rows + i, i - 1) = -weight;
  if (in_proportion) a(rows, 0) = weight * 1e-3;
  return robust_solution(a, b, kHuber * alone_ms, rows);
}

void check(const std::vector<BackwardSample>& samples, double alone_ms) {
  const auto sound = [](double x) { return std::isfinite(x) && x >= 0; };
  bool good = sound(alone_ms), some = false;
  for (const BackwardSample& s : samples) {
    good = good && sound(s.compute_ms);
    for (const AllReduceSample& r : s.all_reduces) {
      good = good && sound(r.sent_bytes) && sound(r.beside_ms) && sound(r.alone_ms) &&
             sound(r.beside_backward_ms) && r.threads >= 1;
      some = true;
    }
  }
  if (!good) throw Error("the measured times of a backward pass must be finite and not negative");
  if (!some) throw Error("no all-reduce was measured");
}

// The numbers of threads of all-reduces, rising.
std::vector<int> numbers_of(const std::vector<AllReduceSample>& all_reduces) {
  std::set<int> numbers;
  for (const AllReduceSample& r : all_reduces) numbers.insert(r.threads);
  return {numbers.begin(), numbers.end()};
}

std::vector<AllReduceSample> all_of(const std::vector<BackwardSample>& samples) {
  std::vector<AllReduceSample> all;
  for (const BackwardSample& s : samples) all.insert(all.end(), s.all_reduces.begin(), s.all_reduces.end());
  return all;
}

// All-reduces that tell p and q.
struct Told {
  std::vector<AllReduceSample> all_reduces{};
  std::vector<int> threads{};          // their numbers
  std::vector<std::size_t> choices{};  // by all-reduce: the index of its number

  Told(std::vector<AllReduceSample> all, double more_than_bytes) : all_reduces(std::move(all)) {
    std::erase_if(all_reduces, [&](const AllReduceSample& r) {
      return !(r.sent_bytes > more_than_bytes) || !(r.beside_ms + r.alone_ms > 0);
    });
    if (all_reduces.empty())
      throw Error(
          more_than_bytes > 0
              ? fmt::format("no all-reduce that sends more than {} bytes was measured", more_than_bytes)
              : "no all-reduce that sends anything was measured");
    threads = numbers_of(all_reduces);
    for (const AllReduceSample& r : all_reduces) choices.push_back(index_of(threads, r.threads));
  }

  // The best fit from all starts.
  Fitted fit(const RateFamily& family) const {
    Fitted best{{}, std::numeric_limits<double>::infinity()};
    for (const Start& start : starts(all_reduces)) {
      Fitted fitted = fit_from(family, all_reduces, choices, family.start(start.startup_ms, start.rate));
      if (fitted.loss < best.loss) best = std::move(fitted);
    }
    return best;
  }
  // The median.
  double error(const Rates& rates) const {
    std::vector<double> errors;
    for (std::size_t i = 0; i < all_reduces.size(); ++i)
      errors.push_back(std::fabs(error_of(all_reduces[i], rates, choices[i])));
    return median(errors);
  }
};

ContentionFit fit_curves(const Told& told, const std::vector<BackwardSample>& samples, double alone_ms) {
  Fitted best{{}, std::numeric_limits<double>::infinity()};
  for (const double gamma3 : {0.005, 0.02, 0.05, 0.1, 0.3})
    if (Fitted fitted = told.fit(CurveFamily(told.threads, gamma3)); fitted.loss < best.loss)
      best = std::move(fitted);
  const double alpha2 = slowdowns(samples, alone_ms, told.threads, true)[0];
  const ContentionModel model{1, std::clamp(alpha2, 0.0, (1 - kLeastSpeed) / told.threads.front()),
                              CurveFamily::curve(best.x, 1), CurveFamily::curve(best.x, 4)};
  const Rates rates = CurveFamily(told.threads, 1).rates(best.x);
  return {model, rates.startup_ms, told.error(rates)};
}

// A number of threads that tells no p and q slows backward down, too, but is not in the table.
ContentionFit fit_table(const Told& told, const std::vector<BackwardSample>& samples, double alone_ms) {
  const TableFamily family(told.threads.size());
  Rates rates = family.rates(told.fit(family).x);
  const std::vector<int> numbers = numbers_of(all_of(samples));
  const VectorXd slower = slowdowns(samples, alone_ms, numbers, false);
  std::vector<ThreadRates> table;
  for (std::size_t i = 0; i < told.threads.size(); ++i) {
    if (rates.overlapped[i] < (1 + kNoise) * rates.alone[i])
      rates.overlapped[i] = std::min(rates.overlapped[i], rates.alone[i]);
    const double slowdown = slower[static_cast<Eigen::Index>(index_of(numbers, told.threads[i]))];
    table.push_back(
        {told.threads[i], std::clamp(1 - slowdown, kLeastSpeed, 1.0), rates.overlapped[i], rates.alone[i]});
  }
  return {std::move(table), rates.startup_ms, told.error(rates)};
}

}  // namespace

ContentionFit fit_contention(const std::vector<BackwardSample>& samples, double alone_ms,
                             double more_than_bytes) {
  check(samples, alone_ms);
  const Told told(all_of(samples), more_than_bytes);
  return told.threads.size() >= kFewestForCurve ? fit_curves(told, samples, alone_ms)
                                                : fit_table(told, samples, alone_ms);
}

}  // namespace tandem
