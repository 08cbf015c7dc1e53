#include <tandem/dist/first_meeting.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <system_error>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <tandem/core/base/contains.h>
#include <tandem/core/base/error.h>

namespace tandem::engine {
namespace {

std::string text_of(const char* variable) {
  const char* const value = std::getenv(variable);
  return value ? value : "";
}

}  // namespace

FirstMeeting::FirstMeeting(const LaunchEnvironment& launch, std::chrono::milliseconds patience,
                           std::chrono::milliseconds deadline, std::function<void(const std::string&)> tell)
    : launch_(launch), patience_(std::min(patience, deadline)), deadline_(deadline), tell_(std::move(tell)) {
  if (launch_.size < 2) return;  // a single rank waits for no other
  marks_ = text_of("PMIX_SERVER_TMPDIR");
  if (!marks_.empty() && !std::ofstream(mark(launch_.rank))) marks_.clear();
  watch_ = std::thread([this] { watch(); });
}

FirstMeeting::~FirstMeeting() {
  {
    const std::lock_guard lock(mutex_);
    met_ = true;
  }
  changed_.notify_all();
  if (watch_.joinable()) watch_.join();
  std::error_code ignored;
  if (!marks_.empty()) std::filesystem::remove(mark(launch_.rank), ignored);
}

std::string FirstMeeting::mark(int rank) const {
  return fmt::format("{}/tandem-{}-rank-{}", marks_, text_of("PMIX_NAMESPACE"), rank);
}

// Returns the ranks of this machine that have come, as far as marks tell.
std::vector<int> FirstMeeting::arrived() const {
  std::vector<int> ranks;
  std::error_code ignored;
  for (int r = 0; r < launch_.size; ++r)
    if (r == launch_.rank || (!marks_.empty() && std::filesystem::exists(mark(r), ignored)))
      ranks.push_back(r);
  return ranks;
}

// Returns whether the ranks have met by then.
bool FirstMeeting::wait_until(std::chrono::milliseconds after_begin) {
  std::unique_lock lock(mutex_);
  return changed_.wait_until(lock, begin_ + after_begin, [&] { return met_; });
}

// On each machine, the first rank that has come reports; without marks, its first rank.
bool FirstMeeting::reports() const {
  return marks_.empty() ? launch_.local_rank == 0 : arrived().front() == launch_.rank;
}

void FirstMeeting::report(const std::string& end) {
  if (!reports() || !tell_) return;
  const std::vector<int> here = arrived();
  std::string missing;
  if (marks_.empty()) {
    missing = "the launcher does not tell who is missing";
  } else if (launch_.local_size == launch_.size) {
    std::vector<int> absent;
    for (int r = 0; r < launch_.size; ++r)
      if (!contains(here, r)) absent.push_back(r);
    missing = absent.empty()       ? std::string("all of them have started, and one of them stopped or hangs")
              : absent.size() == 1 ? fmt::format("rank {} has not come", absent[0])
                                   : fmt::format("ranks {} have not come", fmt::join(absent, ", "));
  } else {
    missing = launch_.local_size == 0
                  ? fmt::format("of this machine, these have come: {}", fmt::join(here, ", "))
                  : fmt::format("of this machine, {} of {} have come ({})", here.size(),
                                counted(launch_.local_size, "rank"), fmt::join(here, ", "));
  }
  const auto seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count();
  tell_(fmt::format("rank {} has waited {:.0f} s for all {} ranks to meet: {}. {}", launch_.rank, seconds,
                    launch_.size, missing, end));
}

void FirstMeeting::watch() {
  if (wait_until(patience_)) return;
  report(fmt::format("Every rank must run this program. The job ends after {:.0f} s",
                     std::chrono::duration<double>(deadline_).count()));
  if (wait_until(deadline_)) return;
  report("The job ends");
  // Ranks that do not report leave the last word to the one that does.
  if (!reports() && wait_until(deadline_ + std::chrono::seconds(2))) return;
  std::_Exit(EXIT_FAILURE);
}

}  // namespace tandem::engine
