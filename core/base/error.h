#pragma once
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>

namespace tandem {

/// The exception for every failure that Tandem reports. The message names the module path, the op, the shapes
/// or the rank concerned, and the fix. The library never calls exit or abort, except in
/// `end_mpi_job` and while the ranks of an MpiSession meet (first_meeting.h).
class Error : public std::runtime_error {
 public:
  explicit Error(const std::string& message) : std::runtime_error(message) {}
};

/// A run was told to stop because another rank or lane failed first; the other error is the cause.
class Aborted : public Error {
 public:
  using Error::Error;
};

/// An op was asked for a rule (vjp, vmap) that it declares not to have.
class NoRule : public Error {
 public:
  using Error::Error;
};

/// The loss (or another watched result) of a batch is NaN or infinite.
class NonFinite : public Error {
 public:
  NonFinite(const std::string& message, std::int64_t batch) : Error(message), batch(batch) {}
  std::int64_t batch;
};

/// Writes a count for a message: "1 stage", "2 stages", "2 batches", "2 epochs".
inline std::string counted(std::int64_t n, std::string_view noun) {
  const bool hisses = noun.ends_with("s") || (noun.ends_with("ch") && !noun.ends_with("och"));
  return std::to_string(n) + " " + std::string(noun) + (n == 1 ? "" : hisses ? "es" : "s");
}

/// Writes "tandem: <text>" to standard error. Options that take warnings call it by default.
void print_warning(const std::string& text);

/// Throws Error naming `what` unless `x` is 0 or more, and finite.
void require_not_negative(std::string_view what, double x);

}  // namespace tandem
