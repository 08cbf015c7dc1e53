#include <tandem/dist/collective_watch.h>

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <tandem/core/runtime/run_limit.h>
#include <tandem/core/runtime/timeline.h>

namespace tandem::engine {
namespace {

using namespace std::chrono_literals;
using CallState = CollectiveRecord::CallState;

// A stopped rank must be gone 2 s after the deadline, and mpirun was seen to need 2 s to end all processes.
// So the end begins this much earlier.
constexpr auto kEarlier = 750ms;
constexpr auto kOthersWrite = 150ms;  // and a tick
constexpr auto kUnwind = 250ms;       // what an aborted run still has to do
constexpr auto kOthersEnd = 2s;       // then a rank that does not report ends the job too
constexpr std::size_t kTold = 3;      // calls of a rank without a directory
constexpr std::size_t kNamed = 8;     // ranks in a message

double seconds(std::chrono::milliseconds time) { return std::chrono::duration<double>(time).count(); }

// Where a rank is that has not come; empty if it waits for another.
std::string absence(const std::optional<CallState>& state) {
  if (!state) return "does not answer: it is stopped, or its machine is gone";
  if (state->open > 0) return "";
  const std::string last =
      state->oldest.ended > 0 ? ", after " + describe(state->oldest) : ", before its first call";
  return fmt::format("is in no call, and has hung or computed for {:.1f} s{}", state->since, last);
}

}  // namespace

CollectiveWatch::CollectiveWatch(std::unique_ptr<Transport> transport, WatchOptions options)
    : transport_(std::move(transport)),
      options_(std::move(options)),
      patience_(options_.deadline - std::min<std::chrono::milliseconds>(kEarlier, options_.deadline / 4)),
      answer_time_(std::clamp<std::chrono::milliseconds>(options_.deadline / 4, 50ms, 500ms)),
      tick_(answer_time_ / 5),
      peers_(static_cast<std::size_t>(transport_->size())) {
  for (int peer = 0; peer < transport_->size(); ++peer)
    if (peer != transport_->rank()) receive(peer);
  thread_ = std::thread([this] { work(); });
}

CollectiveWatch::~CollectiveWatch() {
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
  }
  changed_.notify_all();
  thread_.join();
  std::vector<Transport::Request> requests;
  for (Peer& peer : peers_) requests.push_back(peer.receive);
  for (Sent& sent : sent_) requests.push_back(sent.request);
  transport_->cancel(requests);
}

void CollectiveWatch::add(Comm& comm) {
  const std::lock_guard lock(mutex_);
  comms_.insert(&comm);
}

void CollectiveWatch::remove(Comm& comm) {
  const std::lock_guard lock(mutex_);
  comms_.erase(&comm);
}

void CollectiveWatch::abort(const std::string& reason) {
  const std::lock_guard lock(mutex_);
  for (Comm* comm : comms_) comm->abort(reason);
}

void CollectiveWatch::set_ending(Ending ending) {
  const std::lock_guard lock(mutex_);
  ending_ = std::move(ending);
  if (is_held_ && ending_.hold) ending_.hold();
  if (ending_.end_at && ending_at_) ending_.end_at(ending_at_->first, ending_at_->second);
  ending_at_.reset();
}

void CollectiveWatch::request_end(const std::string& reason) {
  {
    const std::lock_guard lock(mutex_);
    requested_ = reason;
  }
  changed_.notify_all();
}

// Does what a message says that is about the end of all runs.
void CollectiveWatch::end_together(int peer, const Message& message) {
  if (message.word == Word::request) begin_end(message.text);
  if (message.word == Word::hold) send(peer, Word::held, "", hold_own());
  if (message.word == Word::held) held(peer, message.batch);
  if (message.word == Word::end_at) end_own(message.batch, message.text);
}

// On the first rank.
void CollectiveWatch::begin_end(const std::string& reason) {
  if (agreeing_) return;
  agreeing_ = reason;
  {
    const std::lock_guard lock(mutex_);
    for (int rank = 0; rank < transport_->size(); ++rank) not_held_.insert(rank);
  }
  for (int peer = 1; peer < transport_->size(); ++peer) send(peer, Word::hold);
  held(0, hold_own());
}

void CollectiveWatch::held(int rank, std::int64_t batch) {
  latest_ = std::max(latest_, batch);
  {
    const std::lock_guard lock(mutex_);
    not_held_.erase(rank);
    if (!not_held_.empty()) return;
  }
  for (int peer = 1; peer < transport_->size(); ++peer) send(peer, Word::end_at, *agreeing_, latest_);
  end_own(latest_, *agreeing_);
  agreeing_.reset();
}

std::vector<int> CollectiveWatch::unanswered() {
  const std::lock_guard lock(mutex_);
  if (knows_end_) return {};
  if (transport_->rank() == 0) return {not_held_.begin(), not_held_.end()};
  return is_held_ ? std::vector<int>() : std::vector{0};
}

std::int64_t CollectiveWatch::hold_own() {
  const std::lock_guard lock(mutex_);
  is_held_ = true;
  return ending_.hold ? ending_.hold() : 0;
}

bool CollectiveWatch::agreed_within(std::chrono::milliseconds time) {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, time, [&] { return knows_end_ || closing_; });
}

void CollectiveWatch::end_own(std::int64_t batch, const std::string& reason) {
  const std::lock_guard lock(mutex_);
  is_held_ = false;
  knows_end_ = true;
  changed_.notify_all();
  if (ending_.end_at)
    ending_.end_at(batch, reason);
  else
    ending_at_ = {batch, reason};
}

bool CollectiveWatch::write() const try {
  std::error_code none;
  if (options_.directory.empty() || !std::filesystem::is_directory(options_.directory, none)) return false;
  write_collectives(fmt::format("{}/collectives-{}.jsonl", options_.directory, transport_->rank()),
                    record_.last(CollectiveRecord::kKept));
  return true;
} catch (const std::exception&) {
  return false;
}

// Returns whether the watch goes on.
bool CollectiveWatch::sleep(std::chrono::milliseconds time) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, time, [&] { return closing_ || requested_; });
  return !closing_;
}

void CollectiveWatch::receive(int peer) {
  Peer& p = peers_[static_cast<std::size_t>(peer)];
  p.receive = transport_->receive({peer, kWatchChannel}, reinterpret_cast<std::byte*>(&p.in), sizeof p.in);
}

void CollectiveWatch::work() {
  try {
    watch();
  } catch (const std::exception&) {  // the other ranks are gone, or have aborted; their messages say why
  }
  release();  // no message will say where a held run ends
}

// A run that is held waits for few messages.
std::chrono::milliseconds CollectiveWatch::next_look() {
  const std::lock_guard lock(mutex_);
  return agreeing_ || is_held_ ? std::min<std::chrono::milliseconds>(2ms, tick_) : tick_;
}

void CollectiveWatch::release() {
  const std::lock_guard lock(mutex_);
  if (std::exchange(is_held_, false) && ending_.end_at) ending_.end_at(RunLimit::kNone, "");
}

void CollectiveWatch::watch() {
  for (bool goes_on = true; goes_on;) {
    const double before = steady_seconds();
    goes_on = sleep(next_look());
    excuse_pause(before);
    std::erase_if(sent_, [&](Sent& s) { return !s.request.handle || transport_->ended(s.request); });
    if (const auto why = listen()) return end(*why, true);
    if (!goes_on) return;
    if (const auto reason = take_request())
      transport_->rank() == 0 ? begin_end(*reason) : send(0, Word::request, *reason);
    if (const auto why = consider()) return end(*why, false);
  }
}

std::optional<std::string> CollectiveWatch::take_request() {
  const std::lock_guard lock(mutex_);
  return std::exchange(requested_, std::nullopt);
}

// Takes all messages that are here. Returns why the job ends, if another rank says so.
std::optional<std::string> CollectiveWatch::listen() {
  for (int peer = 0; peer < transport_->size(); ++peer) {
    if (peer == transport_->rank()) continue;
    Peer& p = peers_[static_cast<std::size_t>(peer)];
    while (!p.receive.handle || transport_->ended(p.receive)) {
      const Message message = p.in;
      if (message.word == Word::end) return message.text;
      receive(peer);
      if (message.word == Word::question) send(peer, Word::answer);
      if (message.word == Word::answer) p.answer = message.state;
      end_together(peer, message);
    }
  }
  return {};
}

void CollectiveWatch::send(int peer, Word word, const std::string& text, std::int64_t batch) {
  Sent& sent = sent_.emplace_back(std::make_unique<Message>());
  *sent.message = {word, own(), batch, {}};
  std::copy_n(text.data(), std::min(text.size(), sizeof sent.message->text - 1), sent.message->text);
  sent.request = transport_->send({peer, kWatchChannel}, reinterpret_cast<std::byte*>(sent.message.get()),
                                  sizeof *sent.message);
}

CallState CollectiveWatch::own() const {
  CallState state = record_.state();
  state.since = steady_seconds() - state.since;
  return state;
}

std::string CollectiveWatch::doing() const {
  const CallState state = own();
  if (state.open == 0) return absence(state);
  return fmt::format("has waited for {:.1f} s in {}", state.since, describe(state.oldest));
}

// The time for which this process was stopped is no time that it waited: when a job is suspended, all ranks
// are stopped. `before` is when the watch went to sleep.
void CollectiveWatch::excuse_pause(double before) {
  const CallState mine = record_.state();
  const double now = steady_seconds();
  if (mine.open == 0 || now - before < seconds(tick_ + answer_time_)) return;
  const double pause = now - std::max(before, mine.since);
  paused_until_ = std::min(now, std::max(mine.since, paused_until_) + pause);
  excused_until_ = std::min(now, std::max(mine.since, excused_until_) + pause);
  asked_.reset();
}

// Returns why the job must end, if it must.
std::optional<std::string> CollectiveWatch::consider() {
  const CallState mine = record_.state();
  const auto now = Clock::now();
  const double waited = mine.open > 0 ? steady_seconds() - std::max(mine.since, paused_until_) : 0;
  if (waited < seconds(options_.first_notice)) next_notice_ = seconds(options_.first_notice);
  const bool is_late = mine.open > 0 && steady_seconds() - std::max(mine.since, excused_until_) >=
                                            seconds(patience_ - answer_time_);
  if (!is_late && (mine.open == 0 || waited < next_notice_)) {
    asked_.reset();
    return {};
  }
  if (!asked_) {
    asked_ = now;
    for (Peer& peer : peers_) peer.answer.reset();
    for (int peer = 0; peer < transport_->size(); ++peer)
      if (peer != transport_->rank()) send(peer, Word::question);
  }
  if (now < *asked_ + answer_time_) return {};
  if (!is_late) {
    if (first_to_wait(seconds(options_.first_notice - 3 * answer_time_ / 2)))
      options_.tell(notice(mine, waited));
    next_notice_ = 2 * next_notice_;
    asked_.reset();
    return {};
  }
  if (somebody_may_take_longer()) {
    excused_until_ = steady_seconds();
    asked_.reset();
    return {};
  }
  if (!first_to_wait(seconds(patience_ - 2 * answer_time_)) && now < *asked_ + 2 * answer_time_) return {};
  return verdict();
}

// A rank that answers, runs no Program, and waits for no other.
bool CollectiveWatch::somebody_may_take_longer() const {
  bool may = false;
  for (int rank = 0; rank < transport_->size(); ++rank) {
    if (rank == transport_->rank()) continue;
    const auto& answer = peers_[static_cast<std::size_t>(rank)].answer;
    if (!answer) return false;
    may = may || (!answer->running && answer->open == 0);
  }
  return may;
}

// Of the ranks that have waited for longer than `time`, the first one reports.
bool CollectiveWatch::first_to_wait(double time) const {
  for (int rank = 0; rank < transport_->rank(); ++rank)
    if (const auto& answer = peers_[static_cast<std::size_t>(rank)].answer;
        answer && answer->open > 0 && answer->since > time)
      return false;
  return true;
}

// The ranks that have not come.
std::vector<int> CollectiveWatch::absent_ranks() const {
  std::vector<int> ranks;
  for (int rank = 0; rank < transport_->size(); ++rank)
    if (rank != transport_->rank() && !absence(peers_[static_cast<std::size_t>(rank)].answer).empty())
      ranks.push_back(rank);
  return ranks;
}

std::string CollectiveWatch::notice(const CallState& mine, double waited) const {
  std::vector<int> absent = absent_ranks();
  std::string why;
  if (absent.size() == 1) {
    const auto& answer = peers_[static_cast<std::size_t>(absent[0])].answer;
    why = answer && !answer->running ? ", which is between two runs and may be saving or planning"
                                     : ", which " + absence(answer);
  }
  const std::size_t all = absent.size();
  absent.resize(std::min(all, kNamed));
  return fmt::format("rank {} has waited {:.3g} s for {}{} in {}{}", transport_->rank(), waited,
                     all == 0   ? "ranks that wait too"
                     : all == 1 ? fmt::format("rank {}", absent[0])
                                : fmt::format("ranks {}", fmt::join(absent, ", ")),
                     all > kNamed ? fmt::format(" and {} more", all - kNamed) : "", describe(mine.oldest),
                     why);
}

std::string CollectiveWatch::verdict() const {
  std::vector<std::string> absent, waiting;
  for (int rank = 0; rank < transport_->size(); ++rank) {
    const auto answer =
        rank == transport_->rank() ? std::optional(own()) : peers_[static_cast<std::size_t>(rank)].answer;
    if (const std::string why = absence(answer); !why.empty())
      absent.push_back(fmt::format("rank {} {}", rank, why));
    else
      waiting.push_back(fmt::format("rank {} has waited for {:.1f} s in {}", rank, answer->since,
                                    describe(answer->oldest)));
  }
  const auto listed = [](std::vector<std::string>& texts) {
    const std::size_t all = texts.size();
    texts.resize(std::min(all, kNamed));
    return fmt::format("{}{}", fmt::join(texts, "; "),
                       all > kNamed ? fmt::format("; and {} more", all - kNamed) : "");
  };
  if (absent.empty()) absent.emplace_back("all ranks wait");
  return fmt::format("the deadline of {:g} s passes: {}; {}{}{}", seconds(options_.deadline), listed(absent),
                     listed(waiting), options_.advice.empty() ? "" : "; ", options_.advice);
}

void CollectiveWatch::dump() const {
  if (options_.lanes)
    if (const std::string lines = options_.lanes(transport_->rank()); !lines.empty())
      options_.tell("the deadline passes while the lanes are in:\n" + lines);
  if (write()) return;
  for (const CollectiveCall& call : record_.last(kTold))
    options_.tell(fmt::format("rank {}: {}, {}", transport_->rank(), describe(call),
                              call.ended > 0 ? fmt::format("{:.3f} ms", 1e3 * (call.ended - call.began))
                                             : std::string("under way")));
}

// `told`: by another rank, which reports.
void CollectiveWatch::end(const std::string& why, bool told) {
  for (int peer = 0; !told && peer < transport_->size(); ++peer)
    if (peer != transport_->rank()) send(peer, Word::end, why);
  dump();
  std::this_thread::sleep_for(tick_ + kOthersWrite);
  abort(why);
  if (!options_.end) return;
  std::this_thread::sleep_for(told ? kOthersEnd
                                   : kUnwind);  // also in the destructor: no other rank ends the job
  options_.tell(why);
  options_.end();
}

}  // namespace tandem::engine
