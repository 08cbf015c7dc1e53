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
int MpiSession::ranks_on_these_cores() { return 1; }
void MpiSession::agree(std::span<const Agreed>) {}
std::unique_ptr<Comm> MpiSession::comm(const CommOptions&) { return nullptr; }
std::shared_ptr<CollectiveWatch> MpiSession::watch() const { return nullptr; }
void end_mpi_job(int code) { std::_Exit(code); }

}  // namespace tandem::engine

#else

#include <sched.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstring>
#include <exception>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include <tandem/core/base/sleep.h>
#include <tandem/core/runtime/gather.h>
#include <tandem/dist/abort.h>
#include <tandem/dist/collective_watch.h>
#include <tandem/dist/first_meeting.h>
#include <tandem/dist/message_comm.h>
#include <tandem/dist/mpi_wire.h>
#include <tandem/dist/slow_transport.h>
#include <tandem/dist/transport.h>
#include <tandem/dist/wait.h>

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
  bool was_watched = false;
  std::weak_ptr<CollectiveWatch> watch;  // its Transport keeps this state alive
};

namespace {

// An MPI_Request, which is a pointer or an integer, as the handle of a Transport's request. None of MPI's is
// 0.
static_assert(sizeof(MPI_Request) <= sizeof(void*));
void* handle_of(MPI_Request request) {
  void* handle = nullptr;
  std::memcpy(&handle, &request, sizeof(MPI_Request));
  return handle;
}
MPI_Request request_of(void* handle) {
  MPI_Request request = MPI_REQUEST_NULL;
  std::memcpy(&request, &handle, sizeof(MPI_Request));
  return request;
}

class MpiTransport final : public Transport {
 public:
  explicit MpiTransport(std::shared_ptr<MpiSession::State> session) : session_(std::move(session)) {
    check(MPI_Irecv(abort_in_.data(), static_cast<int>(abort_in_.size()), MPI_BYTE, MPI_ANY_SOURCE, 0,
                    aborts_, &abort_request_),
          "MPI_Irecv");
  }
  ~MpiTransport() override {
    if (abort_request_ == MPI_REQUEST_NULL) return;
    MPI_Cancel(&abort_request_);
    MPI_Wait(&abort_request_, MPI_STATUS_IGNORE);  // MPI can write to the buffer until then
  }
  int rank() const override { return session_->rank; }
  int size() const override { return session_->size; }

  Request send(const Route& to, const std::byte* data, std::int64_t bytes) override {
    MPI_Request request = MPI_REQUEST_NULL;
    check(MPI_Isend(data, static_cast<int>(bytes), MPI_BYTE, to.peer, tags_.of(to.channel), context(to),
                    &request),
          "MPI_Isend");
    return {handle_of(request)};
  }
  Request receive(const Route& from, std::byte* data, std::int64_t capacity) override {
    MPI_Request request = MPI_REQUEST_NULL;
    check(MPI_Irecv(data, static_cast<int>(capacity), MPI_BYTE, from.peer, tags_.of(from.channel),
                    context(from), &request),
          "MPI_Irecv");
    return {handle_of(request)};
  }
  // Not MPI_Testall for several: in Open MPI it makes progress only after it has looked.
  bool ended(Request& request) override {
    MPI_Request mine = request_of(request.handle);
    int done = 0;
    check(MPI_Test(&mine, &done, MPI_STATUS_IGNORE), "MPI_Test");
    if (done) request.handle = nullptr;
    return done != 0;
  }
  void cancel(std::span<Request> requests) noexcept override;

  Doorbell& bell(std::uint64_t channel) override { return session_->bells->own(channel); }
  bool can_ring(int peer) const override { return session_->bells->has(peer); }
  void ring(int peer, std::uint64_t channel) override { session_->bells->ring(peer, channel); }
  bool copies(int peer) const override { return session_->bells->has(peer); }

  void abort(const std::string& reason) override;
  void throw_if_aborted(bool listen) override {
    abort_.check();
    if (!listen) return;
    listen_for_abort();
    abort_.check();
  }

 private:
  MPI_Comm context(const Route& route) const { return contexts_[static_cast<std::size_t>(route.part)]; }
  void listen_for_abort();

  const std::shared_ptr<MpiSession::State> session_;
  std::array<Context, kParts> contexts_;
  Context aborts_;
  Tags tags_;
  AbortFlag abort_;
  std::mutex abort_mutex_;  // guards the pending receive below
  std::array<char, 1024> abort_in_{};
  MPI_Request abort_request_ = MPI_REQUEST_NULL;
  std::string abort_out_;
};

// Waits up to a tenth of a second for MPI to end them.
void MpiTransport::cancel(std::span<Request> requests) noexcept {
  for (Request& r : requests)
    if (r.handle) {
      MPI_Request mine = request_of(r.handle);
      MPI_Cancel(&mine);
    }
  bool all = false;
  for (int attempt = 0; attempt < 100 && !all; ++attempt) {
    all = true;
    for (Request& r : requests) {
      if (!r.handle) continue;
      MPI_Request mine = request_of(r.handle);
      int done = 0;
      if (MPI_Test(&mine, &done, MPI_STATUS_IGNORE) != MPI_SUCCESS) return;
      if (done) r.handle = nullptr;
      all = all && done;
    }
    if (!all) sleep_until(std::chrono::steady_clock::now() + std::chrono::milliseconds(1));
  }
}

void MpiTransport::abort(const std::string& reason) {
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

void MpiTransport::listen_for_abort() {
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

// Open MPI writes to the sockets of ranks that are gone, and SIGPIPE would end this process without a word.
void ignore_broken_pipes() {
  struct sigaction now {};
  if (sigaction(SIGPIPE, nullptr, &now) == 0 && now.sa_handler == SIG_DFL) std::signal(SIGPIPE, SIG_IGN);
}

}  // namespace

MpiSession::State::State(const MpiStart& start) : start(start), launch(launch_environment()) {
  if (launch.size > 1) ignore_broken_pipes();
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
  std::optional<FirstMeeting> meeting;  // a run that was not watched may end when it likes
  if (was_watched) meeting.emplace(launch, start.patience, start.deadline, start.tell);
  if (bells) bells->free();
  if (owner) MPI_Finalize();
}

bool has_mpi() { return true; }
MpiSession::MpiSession(const MpiStart& start) : state_(std::make_shared<State>(start)) {}
MpiSession::~MpiSession() = default;
int MpiSession::rank() const { return state_->rank; }
int MpiSession::size() const { return state_->size; }
int MpiSession::local_rank() const { return state_->launch.local_rank; }
int MpiSession::ranks_on_these_cores() {
  const MpiStart& start = state_->start;
  const FirstMeeting meeting(state_->launch, start.patience, start.deadline, start.tell);
  MPI_Comm machine = MPI_COMM_NULL;
  check(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &machine),
        "MPI_Comm_split_type");
  int size = 0;
  MPI_Comm_size(machine, &size);
  cpu_set_t own;
  if (sched_getaffinity(0, sizeof own, &own) != 0) std::memset(&own, 0xff, sizeof own);  // not known: all
  std::vector<cpu_set_t> of_ranks(static_cast<std::size_t>(size));
  check(MPI_Allgather(&own, sizeof own, MPI_BYTE, of_ranks.data(), sizeof own, MPI_BYTE, machine),
        "MPI_Allgather");
  MPI_Comm_free(&machine);
  return static_cast<int>(std::ranges::count_if(of_ranks, [&](const cpu_set_t& others) {
    cpu_set_t both;
    CPU_AND(&both, &own, &others);
    return CPU_COUNT(&both) > 0;
  }));
}
void MpiSession::agree(std::span<const Agreed> mine) {
  const MpiStart& start = state_->start;
  const auto all = comm();
  const FirstMeeting meeting(state_->launch, start.patience, start.deadline, start.tell);
  engine::agree(*all, mine, 0);
}
std::unique_ptr<Comm> MpiSession::comm(const CommOptions& options) {
  const MpiStart& start = state_->start;
  const FirstMeeting meeting(state_->launch, start.patience, start.deadline, start.tell);
  std::unique_ptr<Transport> transport = std::make_unique<MpiTransport>(state_);
  if (options.link) transport = slow_transport(std::move(transport), *options.link);
  auto comm = std::make_unique<MessageComm>(std::move(transport), options);
  std::shared_ptr<CollectiveWatch> watch = state_->watch.lock();
  if (!watch && options.watch) {
    watch = std::make_shared<CollectiveWatch>(std::make_unique<MpiTransport>(state_), *options.watch);
    state_->watch = watch;
    state_->was_watched = true;
  }
  if (!watch) return comm;
  return watched(std::move(comm), std::move(watch));
}
std::shared_ptr<CollectiveWatch> MpiSession::watch() const { return state_->watch.lock(); }

void end_mpi_job(int code) {
  int initialized = 0, finalized = 0;
  MPI_Initialized(&initialized);
  MPI_Finalized(&finalized);
  if (initialized && !finalized) MPI_Abort(MPI_COMM_WORLD, code);
  std::_Exit(code);
}

}  // namespace tandem::engine

#endif
