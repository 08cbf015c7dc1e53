#include <tandem/dist/collective_watch.h>

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

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
  return !changed_.wait_for(lock, time, [&] { return closing_; });
}

void CollectiveWatch::receive(int peer) {
  Peer& p = peers_[static_cast<std::size_t>(peer)];
  p.receive = transport_->receive({peer, kWatchChannel}, reinterpret_cast<std::byte*>(&p.in), sizeof p.in);
}

void CollectiveWatch::work() try {
  for (bool goes_on = true; goes_on;) {
    goes_on = sleep(tick_);
    std::erase_if(sent_, [&](Sent& s) { return !s.request.handle || transport_->ended(s.request); });
    if (const auto why = listen()) return end(*why, true);
    if (!goes_on) return;
    if (const auto why = consider()) return end(*why, false);
  }
} catch (const std::exception&) {  // the other ranks are gone, or have aborted; their messages say why
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
    }
  }
  return {};
}

void CollectiveWatch::send(int peer, Word word, const std::string& text) {
  Sent& sent = sent_.emplace_back(std::make_unique<Message>());
  *sent.message = {word, own(), {}};
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

// Returns why the job must end, if it must.
std::optional<std::string> CollectiveWatch::consider() {
  const CallState mine = record_.state();
  const auto now = Clock::now();
  const double waited = steady_seconds() - std::max(mine.since, excused_until_);
  if (mine.open == 0 || waited < seconds(patience_ - answer_time_)) {
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
  if (somebody_may_take_longer()) {
    excused_until_ = steady_seconds();
    asked_.reset();
    return {};
  }
  if (!first_to_wait() && now < *asked_ + 2 * answer_time_) return {};
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

// Of the ranks that wait as long, the first one reports.
bool CollectiveWatch::first_to_wait() const {
  for (int rank = 0; rank < transport_->rank(); ++rank)
    if (const auto& answer = peers_[static_cast<std::size_t>(rank)].answer;
        answer && answer->open > 0 && answer->since > seconds(patience_ - 2 * answer_time_))
      return false;
  return true;
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
