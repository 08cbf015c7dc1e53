#include <tandem/dist/mpi_comm.h>

#include <cstdlib>

#include <tandem/core/base/error.h>

#ifndef TANDEM_HAS_MPI

namespace tandem::engine {

struct MpiSession::State {};
bool has_mpi() { return false; }
MpiSession::MpiSession(const MpiStart&) {
  throw Error(
      "this Tandem was built without MPI: install MPI (Debian: libopenmpi-dev openmpi-bin) and configure "
      "again with -DTANDEM_MPI=ON, or let ranks be threads of one process");
}
MpiSession::~MpiSession() = default;
int MpiSession::rank() const { return 0; }
int MpiSession::size() const { return 1; }
int MpiSession::local_rank() const { return 0; }
int MpiSession::local_size() const { return 1; }
void MpiSession::agree(std::uint64_t, const std::string&) {}
std::unique_ptr<Comm> MpiSession::comm(const MpiOptions&) { return nullptr; }
void end_mpi_job(int code) { std::_Exit(code); }

}  // namespace tandem::engine

#else

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <exception>
#include <mutex>
#include <optional>
#include <string>
#include <tuple>

#include <fmt/format.h>

#include <tandem/core/runtime/gather.h>
#include <tandem/core/runtime/timeline.h>
#include <tandem/dist/abort.h>
#include <tandem/dist/first_meeting.h>
#include <tandem/dist/fold.h>
#include <tandem/dist/group.h>
#include <tandem/dist/mpi_wire.h>
#include <tandem/dist/wait.h>
#include <tandem/dist/workers.h>

namespace tandem::engine {

using namespace mpi_wire;

struct MpiSession::State {
  explicit State(const MpiStart& start);
  ~State();
  bool owner = false;
  std::atomic<bool> aborted{false};
  int rank = 0, size = 1;
  const MpiStart start;
  const LaunchEnvironment launch;
  std::optional<Bells> bells;
};

namespace {

class MpiComm final : public Comm, public AbortAware {
 public:
  MpiComm(std::shared_ptr<MpiSession::State> session, const MpiOptions& options)
      : session_(std::move(session)), options_(options) {
    options_.segment_bytes = std::clamp<std::int64_t>(align_up(options.segment_bytes), kAlignment, 1 << 30);
    options_.message_bytes = std::clamp<std::int64_t>(options.message_bytes, 1, 1 << 30);
    check(MPI_Irecv(abort_in_.data(), static_cast<int>(abort_in_.size()), MPI_BYTE, MPI_ANY_SOURCE, 0,
                    aborts_, &abort_request_),
          "MPI_Irecv");
  }
  ~MpiComm() override {
    if (abort_request_ == MPI_REQUEST_NULL) return;
    MPI_Cancel(&abort_request_);
    MPI_Wait(&abort_request_, MPI_STATUS_IGNORE);  // MPI can write to the buffer until then
  }
  int rank() const override { return session_->rank; }
  int size() const override { return session_->size; }

  double all_reduce_sum(void* data, std::int64_t count, DType dtype, std::span<const int> group,
                        std::uint64_t channel, int threads) override {
    const std::size_t me = index_in_group(group, rank(), size());
    check_summable(dtype, rank(), channel);
    workers_.reserve(threads);
    throw_if_aborted();
    if (group.size() == 1) return steady_seconds();
    return collective(Kind::all_reduce, static_cast<std::byte*>(data), count, dtype, group, me, channel,
                      threads);
  }
  void barrier(std::span<const int> group, std::uint64_t channel) override {
    const std::size_t me = index_in_group(group, rank(), size());
    throw_if_aborted();
    if (group.size() > 1) collective(Kind::barrier, nullptr, 0, DType::f32, group, me, channel, 1);
  }
  void send(const void* data, std::int64_t bytes, int peer, std::uint64_t channel) override {
    check_peer("send", rank(), peer, size());
    transfer(true, static_cast<std::byte*>(const_cast<void*>(data)), bytes, peer, channel);
  }
  void receive(void* data, std::int64_t bytes, int peer, std::uint64_t channel) override {
    check_peer("receive", rank(), peer, size());
    transfer(false, static_cast<std::byte*>(data), bytes, peer, channel);
  }
  void abort(const std::string& reason) override;
  void throw_if_aborted() override {
    abort_.check();
    listen_for_abort();
    abort_.check();
  }

 private:
  enum class Outcome { finished, moved, idle };
  struct Ends {                  // the ranks and the channel of a call's messages
    std::span<const int> peers;  // can include this rank
    std::uint64_t channel;
  };

  void transfer(bool sending, std::byte* data, std::int64_t bytes, int peer, std::uint64_t channel);
  // Returns the time when all members had called.
  double collective(Kind kind, std::byte* data, std::int64_t count, DType dtype, std::span<const int> group,
                    std::size_t me, std::uint64_t channel, int threads);
  void exchange_first(Scratch& s, std::int64_t inline_bytes, const Ends& ends, std::size_t me, int tag);
  void fold_short(Scratch& s, std::byte* data, std::size_t members, std::size_t me);
  void reduce_long(Scratch& s, std::byte* data, const Ends& ends, std::size_t me, int tag, int threads);
  void fold_shared(Scratch& s, std::byte* sums, std::int64_t count, int threads);
  void expect_same(const FirstMessage& mine, const FirstMessage& theirs, int peer) const;
  void listen_for_abort();

  /// Calls `step` until it is finished, and sleeps longer and longer while it is idle. A peer may wait for
  /// any progress, so each progress wakes the peers.
  template <class F> void progress(const Ends& ends, F step) {
    Bells& bells = *session_->bells;
    Backoff backoff(bells.own(ends.channel),
                    std::ranges::all_of(ends.peers, [&](int p) { return bells.has(p); }));
    for (;;) {
      backoff.look();
      const Outcome result = step();
      if (result != Outcome::idle) ring(ends);
      if (result == Outcome::finished) return;
      if (result == Outcome::moved) {
        backoff.reset();
        continue;
      }
      abort_.check();
      if (backoff.long_wait()) throw_if_aborted();
      backoff.pause();
    }
  }
  void wait_all(const Ends& ends, std::vector<MPI_Request>& requests) {
    progress(ends, [&] {
      int done = 1;  // not MPI_Testall: in Open MPI it makes progress only after it has looked
      for (MPI_Request& request : requests)
        if (done && request != MPI_REQUEST_NULL)
          check(MPI_Test(&request, &done, MPI_STATUS_IGNORE), "MPI_Test");
      return done ? Outcome::finished : Outcome::idle;
    });
  }
  void ring(const Ends& ends) {
    for (int peer : ends.peers)
      if (peer != rank()) session_->bells->ring(peer, ends.channel);
  }
  /// Runs a call with its own scratch, which is not reused after an error.
  template <class F> void with_scratch(std::size_t members, F call) {
    Scratch& scratch = pool_.take();
    scratch.fit(members);
    try {
      call(scratch);
    } catch (...) {
      scratch.give_up();
      throw;
    }
    pool_.give_back(scratch);
  }

  const std::shared_ptr<MpiSession::State> session_;
  MpiOptions options_;
  Context transfers_, scatters_, gathers_, aborts_;
  Tags tags_;
  ScratchPool pool_;
  Workers workers_;
  AbortFlag abort_;
  std::mutex abort_mutex_;  // guards the pending receive below
  std::array<char, 512> abort_in_{};
  MPI_Request abort_request_ = MPI_REQUEST_NULL;
  std::string abort_out_;
};

void MpiComm::transfer(bool sending, std::byte* data, std::int64_t bytes, int peer, std::uint64_t channel) {
  throw_if_aborted();
  const Route route{transfers_, peer, tags_.of(channel)};
  const Ends ends{{&peer, 1}, channel};
  with_scratch(1, [&](Scratch& s) {
    const bool is_short = bytes <= FirstMessage::kInlineBytes;
    FirstMessage& mine = s.out;
    mine.channel = channel, mine.count = bytes, mine.kind = Kind::transfer, mine.dtype = DType::u8;
    if (sending) {
      if (is_short && bytes > 0) std::memcpy(mine.data, data, static_cast<std::size_t>(bytes));
      const auto length = static_cast<int>(kHeaderBytes) + static_cast<int>(is_short ? bytes : 0);
      check(MPI_Isend(&mine, length, MPI_BYTE, peer, route.tag, route.comm, &s.sends[0]), "MPI_Isend");
      ring(ends);
    } else {
      check(MPI_Irecv(&s.in[0], sizeof s.in[0], MPI_BYTE, peer, route.tag, route.comm, &s.receives[0]),
            "MPI_Irecv");
      wait_all(ends, s.receives);
      expect_same(mine, s.in[0], peer);
      if (is_short && bytes > 0) std::memcpy(data, s.in[0].data, static_cast<std::size_t>(bytes));
    }
    if (!is_short) {
      Stream& stream = s.streams.emplace_back(route, sending, data, bytes, options_.message_bytes);
      progress(ends, [&] {
        const bool moved = stream.advance(stream.segments());
        return stream.finished() ? Outcome::finished : moved ? Outcome::moved : Outcome::idle;
      });
    }
    wait_all(ends, s.sends);
  });
}

double MpiComm::collective(Kind kind, std::byte* data, std::int64_t count, DType dtype,
                           std::span<const int> group, std::size_t me, std::uint64_t channel, int threads) {
  const int tag = tags_.of(channel);
  const Ends ends{group, channel};
  double met = 0;
  with_scratch(group.size(), [&](Scratch& s) {
    const std::int64_t bytes = count * size_of(dtype);
    const bool is_short = bytes <= FirstMessage::kInlineBytes;
    FirstMessage& mine = s.out;
    mine.channel = channel, mine.count = count, mine.kind = kind, mine.dtype = dtype;
    if (is_short && bytes > 0) std::memcpy(mine.data, data, static_cast<std::size_t>(bytes));
    exchange_first(s, is_short ? bytes : 0, ends, me, tag);
    met = steady_seconds();
    if (!is_short)
      reduce_long(s, data, ends, me, tag, threads);
    else if (bytes > 0)
      fold_short(s, data, group.size(), me);
    wait_all(ends, s.sends);
  });
  return met;
}

// Exchanges first messages between all members; their facts must agree.
void MpiComm::exchange_first(Scratch& s, std::int64_t inline_bytes, const Ends& ends, std::size_t me,
                             int tag) {
  const std::span<const int> group = ends.peers;
  const int length = static_cast<int>(kHeaderBytes) + static_cast<int>(inline_bytes);
  for (std::size_t i = 0; i < group.size(); ++i)
    if (i != me)
      check(MPI_Irecv(&s.in[i], sizeof s.in[i], MPI_BYTE, group[i], tag, scatters_, &s.receives[i]),
            "MPI_Irecv");
  for (std::size_t step = 1; step < group.size(); ++step) {  // next member first, so not all to one
    const std::size_t i = (me + step) % group.size();
    check(MPI_Isend(&s.out, length, MPI_BYTE, group[i], tag, scatters_, &s.sends[i]), "MPI_Isend");
  }
  ring(ends);
  wait_all(ends, s.receives);
  for (std::size_t i = 0; i < group.size(); ++i)
    if (i != me) expect_same(s.out, s.in[i], group[i]);
}

void MpiComm::fold_short(Scratch& s, std::byte* data, std::size_t members, std::size_t me) {
  for (std::size_t i = 0; i < members; ++i) s.sources[i] = i == me ? data : s.in[i].data;
  fold_ranks(s.out.dtype, s.sources, {&data, 1}, 0, s.out.count);
}

// Member i owns slice i. Every other member sends it that slice; it folds the slice in rank order and sends
// the sums to all. Both directions go segment by segment, so that sums travel while later segments arrive.
void MpiComm::reduce_long(Scratch& s, std::byte* data, const Ends& ends, std::size_t me, int tag,
                          int threads) {
  const std::span<const int> group = ends.peers;
  const std::int64_t element = size_of(s.out.dtype), segment = options_.segment_bytes;
  const auto members = static_cast<std::int64_t>(group.size());
  const auto begin = [&](std::size_t i) {
    return static_cast<std::int64_t>(i) * s.out.count / members * element;
  };
  const auto bytes = [&](std::size_t i) { return begin(i + 1) - begin(i); };
  const std::int64_t ring_bytes = Stream::kWindow * segment;
  if (s.ring.bytes() < members * ring_bytes) s.ring = Buffer(members * ring_bytes);

  for (std::size_t i = 0; i < group.size(); ++i) {
    if (i == me) continue;
    const Route scatter{scatters_, group[i], tag}, gather{gathers_, group[i], tag};
    s.streams.emplace_back(scatter, true, data + begin(i), bytes(i), segment);
    std::byte* const ring_of_peer = s.ring.data() + static_cast<std::int64_t>(i) * ring_bytes;
    s.streams.emplace_back(scatter, false, ring_of_peer, bytes(me), segment, true);
    s.streams.emplace_back(gather, true, data + begin(me), bytes(me), segment);
    s.streams.emplace_back(gather, false, data + begin(i), bytes(i), segment);
  }
  const Stream own(Route{}, false, data + begin(me), bytes(me), segment);
  const auto fold_segment = [&](std::int64_t k) {
    for (std::size_t i = 0, stream = 1; i < group.size(); ++i) {
      s.sources[i] = i == me ? own.at(k) : s.streams[stream].at(k);
      if (i != me) stream += 4;
    }
    fold_shared(s, own.at(k), own.bytes_of(k) / element, threads);
  };
  std::int64_t folded = 0;
  progress(ends, [&] {
    bool moved = false, finished = true;
    std::int64_t arrived = own.segments();
    for (std::size_t i = 0; i < s.streams.size(); i += 4) {
      Stream &scatter_out = s.streams[i], &scatter_in = s.streams[i + 1];
      Stream &gather_out = s.streams[i + 2], &gather_in = s.streams[i + 3];
      moved |= scatter_out.advance(scatter_out.segments());
      moved |= scatter_in.advance(folded + Stream::kWindow);
      moved |= gather_out.advance(folded);
      moved |= gather_in.advance(scatter_out.completed());  // sums overwrite the operands that were sent
      arrived = std::min(arrived, scatter_in.completed());
      finished &= scatter_out.finished() && gather_out.finished() && gather_in.finished();
    }
    for (; folded < arrived; ++folded) {
      fold_segment(folded);
      moved = true;
    }
    return finished && folded == own.segments() ? Outcome::finished : moved ? Outcome::moved : Outcome::idle;
  });
}

// Folds `count` elements of the sources, piece by piece, by several threads of this rank.
void MpiComm::fold_shared(Scratch& s, std::byte* sums, std::int64_t count, int threads) {
  constexpr std::int64_t kPiece = 16 << 10;  // elements
  std::atomic<std::int64_t> next{0};
  const auto part = [&] {
    for (std::int64_t first; (first = next.fetch_add(kPiece, std::memory_order_relaxed)) < count;)
      fold_ranks(s.out.dtype, s.sources, {&sums, 1}, first, std::min(kPiece, count - first));
  };
  workers_.run(count > kPiece ? threads : 1, part);
}

void MpiComm::expect_same(const FirstMessage& mine, const FirstMessage& theirs, int peer) const {
  const auto said = [](const FirstMessage& m) { return std::tuple(m.channel, m.count, m.kind, m.dtype); };
  if (said(mine) == said(theirs)) return;
  throw Error(
      fmt::format("channel {}: rank {} {}, but rank {} {}{}: the ends of a channel must make the same call",
                  mine.channel, rank(), describe(mine, false), peer, describe(theirs, true),
                  mine.channel == theirs.channel ? "" : fmt::format(" in channel {}", theirs.channel)));
}

void MpiComm::abort(const std::string& reason) {
  if (!abort_.raise(reason)) return;
  session_->aborted = true;
  abort_out_ = reason.substr(0, abort_in_.size());
  for (int peer = 0; peer < size(); ++peer) {
    if (peer == rank()) continue;
    MPI_Request request =
        MPI_REQUEST_NULL;  // short, so it leaves at once; a rank that is gone cannot be told
    const auto length = static_cast<int>(abort_out_.size());
    if (MPI_Isend(abort_out_.data(), length, MPI_BYTE, peer, 0, aborts_, &request) == MPI_SUCCESS)
      MPI_Request_free(&request);
    session_->bells->ring_all(peer);
  }
  session_->bells->ring_all(rank());
}

void MpiComm::listen_for_abort() {
  const std::unique_lock lock(abort_mutex_, std::try_to_lock);
  if (!lock || abort_request_ == MPI_REQUEST_NULL) return;
  int arrived = 0, length = 0;
  MPI_Status status;
  check(MPI_Test(&abort_request_, &arrived, &status), "MPI_Test");
  if (!arrived) return;
  MPI_Get_count(&status, MPI_BYTE, &length);
  session_->aborted = true;
  abort_.raise(std::string(abort_in_.data(), static_cast<std::size_t>(length)));
}

}  // namespace

MpiSession::State::State(const MpiStart& start) : start(start), launch(launch_environment()) {
  const FirstMeeting meeting(launch, start.patience, start.deadline, start.tell);
  int initialized = 0, finalized = 0, provided = 0;
  MPI_Initialized(&initialized);
  MPI_Finalized(&finalized);
  if (finalized)
    throw Error("MPI was finalized in this process and cannot start again: keep one MpiSession in main()");
  if (initialized) {
    check(MPI_Query_thread(&provided), "MPI_Query_thread");
  } else {
    check(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &provided), "MPI_Init_thread");
    owner = true;
  }
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  std::string problem;
  if (provided < MPI_THREAD_MULTIPLE)
    problem = "this MPI does not allow calls from several threads (MPI_THREAD_MULTIPLE)";
  if (launch.launched && launch.size != size)
    problem = fmt::format(
        "the launcher announced rank {} of {}, but MPI sees rank {} of {}: start with the mpirun of the "
        "MPI that Tandem was built with",
        launch.rank, launch.size, rank, size);
  if (problem.empty()) {
    bells.emplace();
    return;
  }
  if (owner) MPI_Finalize();
  throw Error(problem);
}

// Both calls wait for the other ranks, which may never come after an abort or while an error unwinds main().
MpiSession::State::~State() {
  if (aborted || std::uncaught_exceptions() > 0) return;
  if (bells) bells->free();
  if (owner) MPI_Finalize();
}

bool has_mpi() { return true; }
MpiSession::MpiSession(const MpiStart& start) : state_(std::make_shared<State>(start)) {}
MpiSession::~MpiSession() = default;
int MpiSession::rank() const { return state_->rank; }
int MpiSession::size() const { return state_->size; }
int MpiSession::local_rank() const { return state_->launch.local_rank; }
int MpiSession::local_size() const { return state_->launch.local_size; }
void MpiSession::agree(std::uint64_t mine, const std::string& what) {
  const MpiStart& start = state_->start;
  const FirstMeeting meeting(state_->launch, start.patience, start.deadline, start.tell);
  engine::agree(*comm(), mine, what, 0);
}
std::unique_ptr<Comm> MpiSession::comm(const MpiOptions& options) {
  return std::make_unique<MpiComm>(state_, options);
}

void end_mpi_job(int code) {
  int initialized = 0, finalized = 0;
  MPI_Initialized(&initialized);
  MPI_Finalized(&finalized);
  if (initialized && !finalized) MPI_Abort(MPI_COMM_WORLD, code);
  std::_Exit(code);
}

}  // namespace tandem::engine

#endif
