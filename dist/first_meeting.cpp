#include <tandem/dist/first_meeting.h>

#include <unistd.h>

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

// mpirun was seen to need 2 s to end all processes.
constexpr std::chrono::milliseconds kEarlier{500};

std::string text_of(const char* variable) {
  const char* const value = std::getenv(variable);
  return value ? value : "";
}

}  // namespace

FirstMeeting::FirstMeeting(const LaunchEnvironment& launch, std::chrono::milliseconds patience,
                           std::chrono::milliseconds deadline, std::function<void(const std::string&)> tell)
    : launch_(launch),
      patience_(std::min(patience, deadline)),
      deadline_(deadline),
      end_(deadline - std::min<std::chrono::milliseconds>(kEarlier, deadline / 8)),
      tell_(std::move(tell)) {
  if (launch_.size < 2) return;  // a single rank waits for no other
  marks_ = text_of("PMIX_SERVER_TMPDIR");
  if (!marks_.empty() && !(std::ofstream(mark(launch_.rank)) << getpid() << std::flush)) marks_.clear();
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

// On each machine, the first rank that has come and is not stopped reports; without marks, its first rank.
bool FirstMeeting::reports() const {
  if (marks_.empty()) return launch_.local_rank == 0;
  const std::vector<int> here = arrived(), still = stopped(here);
  return *std::ranges::find_if(here, [&](int rank) { return !contains(still, rank); }) == launch_.rank;
}

// Returns which of these ranks of this machine are stopped, as by SIGSTOP.
std::vector<int> FirstMeeting::stopped(const std::vector<int>& ranks) const {
  std::vector<int> found;
  for (const int rank : ranks) {
    std::string pid, stat;
    if (rank == launch_.rank || !std::getline(std::ifstream(mark(rank)), pid)) continue;
    std::getline(std::ifstream(fmt::format("/proc/{}/stat", pid)), stat);
    if (const auto name_ends = stat.rfind(") "); name_ends != stat.npos && stat[name_ends + 2] == 'T')
      found.push_back(rank);
  }
  return found;
}

std::string FirstMeeting::missing() const {
  if (marks_.empty()) return "the launcher does not tell who is missing";
  const std::vector<int> here = arrived();
  const auto ranks = [](const std::vector<int>& some, const char* one, const char* several) {
    return fmt::format("rank{} {} {}", some.size() == 1 ? "" : "s", fmt::join(some, ", "),
                       some.size() == 1 ? one : several);
  };
  if (const std::vector<int> still = stopped(here); !still.empty())
    return ranks(still, "is stopped", "are stopped");
  if (launch_.local_size == launch_.size) {
    std::vector<int> absent;
    for (int r = 0; r < launch_.size; ++r)
      if (!contains(here, r)) absent.push_back(r);
    return absent.empty() ? "all of them have come, and one of them hangs"
                          : ranks(absent, "has not come", "have not come");
  }
  if (launch_.local_size == 0)
    return fmt::format("of this machine, these have come: {}", fmt::join(here, ", "));
  return fmt::format("of this machine, {} of {} have come ({})", here.size(),
                     counted(launch_.local_size, "rank"), fmt::join(here, ", "));
}

void FirstMeeting::report(const std::string& end) {
  if (!reports() || !tell_) return;
  const auto seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count();
  tell_(fmt::format("rank {} has waited {:.0f} s for all {} ranks to meet: {}. {}", launch_.rank, seconds,
                    launch_.size, missing(), end));
}

void FirstMeeting::watch() {
  for (auto next = patience_; next < end_; next *= 2) {
    if (wait_until(next)) return;
    report(fmt::format("Every rank must run this program. The job ends after {:.0f} s",
                       std::chrono::duration<double>(deadline_).count()));
  }
  if (wait_until(end_)) return;
  report("The job ends");
  // Ranks that do not report leave the last word to the one that does.
  if (!reports() && wait_until(end_ + std::chrono::seconds(1))) return;
  std::_Exit(EXIT_FAILURE);
}

}  // namespace tandem::engine
