// The cores on which the lanes of a device run.
#include <sched.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <tandem/core/base/core_watch.h>
#include <tandem/core/base/team.h>
#include <tandem/core/runtime/session.h>
#include <tandem/dist/thread_comm.h>
#include <tandem/ops/init.h>
#include <tandem/plan/build.h>

#include "temporary_directory.h"
#include "threads_of_process.h"
#include "training_run.h"

namespace tandem::testing {
using namespace engine;
namespace {

// The numbers of the cores that the calling thread can use.
std::set<int> own_cores() {
  cpu_set_t set;
  std::set<int> cores;
  if (sched_getaffinity(0, sizeof set, &set) != 0) return cores;
  for (int core = 0; core < CPU_SETSIZE; ++core)
    if (CPU_ISSET(core, &set)) cores.insert(core);
  return cores;
}

// Records the cores that the lanes of each device can use.
class CoreRecordingHost final : public Host {
 public:
  explicit CoreRecordingHost(const Job& job) : host_(job, 1) {}
  void fill(const HostInput& in) override {
    host_.fill(in);
    const std::lock_guard lock(mutex_);
    cores[in.rank.device].insert(own_cores());
  }
  void deliver(const HostResult& result) override { host_.deliver(result); }
  std::map<int, std::set<std::set<int>>> cores;

 private:
  JobHost host_;
  std::mutex mutex_;
};

std::map<int, std::set<std::set<int>>> cores_of_devices(const std::string& schedule, bool lockstep) {
  const Job job = small_residual_job();
  Strategy s;
  s.stages = 2;
  s.schedule = schedule;
  s.lockstep = lockstep;
  s.cuts = {"block2"};
  CoreRecordingHost host(job);
  Session session(build(trace_job(job, job.batch_size), s), thread_comms(s.ranks()), host);
  session.load(initial_state(job));
  session.run(0, 4);
  return host.cores;
}

TEST(Session, OnlyInLockstepLanesThatShareADeviceStayOnItsShareOfTheCores) {
  const std::set<int> all = own_cores();
  using Cores = std::map<int, std::set<std::set<int>>>;
  EXPECT_EQ(cores_of_devices("dualpipe", /*lockstep=*/false), (Cores{{0, {all}}, {1, {all}}}));
  EXPECT_EQ(cores_of_devices("pipedream", /*lockstep=*/true), (Cores{{0, {all}}, {1, {all}}}));
  std::set<int> first = all, second = all;  // an odd number of cores has no two equal shares
  if (all.size() % 2 == 0) {
    const auto middle = std::next(all.begin(), static_cast<std::ptrdiff_t>(all.size() / 2));
    first = {all.begin(), middle};
    second = {middle, all.end()};
  }
  EXPECT_EQ(cores_of_devices("dualpipe", /*lockstep=*/true), (Cores{{0, {first}}, {1, {second}}}));
  EXPECT_EQ(own_cores(), all) << "the caller keeps its cores";
}

// Calls stay_on in a thread of its own; returns the cores left to it, and to a thread that it starts.
std::pair<std::set<int>, std::set<int>> cores_of_share(const ShareOfCores& share) {
  std::pair<std::set<int>, std::set<int>> cores;
  std::thread([&] {
    stay_on(share);
    cores.first = own_cores();
    std::thread([&] { cores.second = own_cores(); }).join();
  }).join();
  return cores;
}

TEST(ShareOfCores, PartsAreEqualOrAllIsLeft) {
  const std::set<int> all = own_cores();
  const int count = static_cast<int>(all.size());
  EXPECT_EQ(cores_of_share({0, 1}), std::pair(all, all));
  EXPECT_EQ(cores_of_share({0, count + 1}), std::pair(all, all)) << "there are fewer cores than parts";
  int part = 0;
  for (const int core : all) {
    const std::set<int> own{core};
    EXPECT_EQ(cores_of_share({part++, count}), std::pair(own, own));
  }
}

// Lanes wait longer for a thread that is late if no other team sleeps (core/base/team.h).
TEST(Session, TheCallersTeamEndsBeforeLanesRun) {
#ifdef __clang__
  GTEST_SKIP() << "only the threads of GCC's OpenMP end";
#endif
  const Job job = small_residual_job();
  std::set<std::string> team, left;
  std::thread([&] {  // a new thread has no team yet
    const std::set<std::string> before = threads_of_process();
    const TeamSize two(2);
    init::uniform({DType::f32, {1 << 20}}, -1, 1, "weights", 0);
    for (const std::string& thread : threads_of_process())
      if (!before.contains(thread)) team.insert(thread);
    JobHost host(job, 1);
    Session session(build(trace_job(job, job.batch_size), Strategy()), thread_comms(1), host);
    session.load(initial_state(job));
    session.run(0, 1);
    for (const std::string& thread : threads_of_process())
      if (team.contains(thread)) left.insert(thread);
  })
      .join();
  if (team.empty()) GTEST_SKIP() << "without OpenMP there are no teams";
  EXPECT_EQ(team.size(), 1U);
  EXPECT_EQ(left, std::set<std::string>());
}

void bind(pid_t thread, int core) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(static_cast<std::size_t>(core), &set);
  ASSERT_EQ(0, sched_setaffinity(thread, sizeof set, &set));
}

// Returns whether `f` came true within ten seconds. Mostly sleeps, which leaves its core idle.
bool comes_true(const std::function<bool()>& f) {
  using namespace std::chrono_literals;
  for (const auto start = std::chrono::steady_clock::now(); !f(); std::this_thread::sleep_for(1ms))
    if (std::chrono::steady_clock::now() - start > 10s) return false;
  return true;
}

// A thread that sleeps or computes.
class Thread {
 public:
  Thread() : thread_([this](const std::stop_token& stop) { run(stop); }) { id_.wait(0); }
  ~Thread() {
    thread_.request_stop();
    compute(true);
  }
  void compute(bool on) {
    computes_ = on;
    computes_.notify_all();
  }
  TeamThread in_team() { return {id_, thread_.native_handle()}; }
  pid_t id() const { return id_; }
  int core() const { return core_; }  // on which it last computed

 private:
  void run(const std::stop_token& stop) {
    id_ = gettid();
    id_.notify_all();
    while (!stop.stop_requested()) {
      computes_.wait(false);
      core_ = sched_getcpu();
    }
  }
  std::atomic<pid_t> id_ = 0;
  std::atomic<int> core_ = -1;
  std::atomic<bool> computes_ = false;
  std::jthread thread_;  // the last member: it uses the others
};

// A team of two threads, of which the second one shares core `from` with a thread that computes all the time,
// and the first one sleeps. Returns whether the second one is moved to core `to`.
bool is_moved(Thread& second, int from, int to) {
  Thread other;
  bind(other.id(), from);
  other.compute(true);
  bind(second.id(), from);
  second.compute(true);
  const bool moved = comes_true([&] { return second.core() == to; });
  second.compute(false);
  return moved;
}

class CoreWatchTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::set<int> all = own_cores();
    if (all.size() != 2) GTEST_SKIP() << "the test is for two cores, and this process can use " << all.size();
    if (getpriority(PRIO_PROCESS, 0) > 0 || cores_by_quota() > 0)
      GTEST_SKIP() << "a process with a niceness or a limit of its time is not watched";
    a_ = *all.begin(), b_ = *all.rbegin();
  }
  bool team_is_free() const {
    return comes_true(
        [&] { return available_cores(first_.id()) == 2 && available_cores(second_.id()) == 2; });
  }
  int a_ = 0, b_ = 0;  // the cores
  Thread first_, second_;
};

TEST_F(CoreWatchTest, ThreadThatWaitsForItsCoreGetsAnIdleOne) {
  std::optional<CoreWatch> watch(std::in_place, std::vector{first_.in_team(), second_.in_team()});
  EXPECT_TRUE(is_moved(second_, b_, a_));
  EXPECT_TRUE(is_moved(second_, a_, b_)) << "back";
  EXPECT_TRUE(team_is_free()) << "while no thread waits for a core";
  const auto is_kept_on = [](const Thread& thread, int core) {
    cpu_set_t set;
    return sched_getaffinity(thread.id(), sizeof set, &set) == 0 && CPU_COUNT(&set) == 1 &&
           CPU_ISSET(static_cast<std::size_t>(core), &set);
  };
  // For a tenth of a second, which can pass before this thread has a core to look.
  EXPECT_TRUE(comes_true([&] { return is_moved(second_, b_, a_) && is_kept_on(first_, b_); }))
      << "the first one gets the core that the second one leaves";
  watch.reset();
  EXPECT_TRUE(team_is_free()) << "without a watch";
}

TEST_F(CoreWatchTest, LeavesThreadsWhereTasksetBindsThem) {
  const CoreWatch watch({first_.in_team(), second_.in_team()});
  EXPECT_TRUE(is_moved(second_, b_, a_));
  cpu_set_t all, one;
  ASSERT_EQ(0, sched_getaffinity(0, sizeof all, &all));
  CPU_ZERO(&one);
  CPU_SET(static_cast<std::size_t>(a_), &one);
  for (const std::string& thread : threads_of_process())  // as `taskset -ap` does
    sched_setaffinity(std::stoi(thread), sizeof one, &one);
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  EXPECT_EQ(available_cores(first_.id()), 1);
  EXPECT_EQ(available_cores(second_.id()), 1);
  EXPECT_EQ(0, sched_setaffinity(0, sizeof all, &all));
}

TEST_F(CoreWatchTest, OneTeamAtATimeIsWatched) {
  const std::vector team{first_.in_team(), second_.in_team()};
  const CoreWatch watch(team);
  {
    const CoreWatch of_another_team(team);
    std::this_thread::sleep_for(std::chrono::milliseconds(100));  // a look may have begun before
    Thread other;
    bind(other.id(), b_);
    other.compute(true);
    bind(second_.id(), b_);
    second_.compute(true);
    for (int i = 0; i < 200; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      EXPECT_NE(second_.core(), a_) << "moved by one of two watches";
    }
    second_.compute(false);
  }
  EXPECT_TRUE(is_moved(second_, b_, a_)) << "the other team has ended";
}

// A process is gone when all of its threads are, and one that watches needs a turn on its core to end.
TEST_F(CoreWatchTest, WatchedProcessEndsSoonBesideABusyOne) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "no threads can start after a fork";
#endif
  Thread other;
  bind(other.id(), b_);
  other.compute(true);
  auto fastest = std::chrono::steady_clock::duration::max();  // other programs can be busy, too
  for (int i = 0; i < 3; ++i) {
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      Thread first, second;
      const CoreWatch watch({first.in_team(), second.in_team()});
      is_moved(second, b_, a_);
      second.compute(true);
      std::this_thread::sleep_for(std::chrono::seconds(20));
      std::_Exit(0);
    }
    std::this_thread::sleep_for(std::chrono::seconds(1));
    const auto begin = std::chrono::steady_clock::now();
    ::kill(child, SIGKILL);
    EXPECT_EQ(child, ::waitpid(child, nullptr, 0));
    fastest = std::min(fastest, std::chrono::steady_clock::now() - begin);
  }
  EXPECT_LT(fastest, std::chrono::milliseconds(300));
}

// A container of two and a half cores, in a group of four.
TEST(Cores, LimitsOfControlGroupsCount) {
  const TemporaryDirectory directory;
  const auto write = [&](const std::string& name, const std::string& text) {
    const std::filesystem::path path = directory.file(name);
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << text;
  };
  const auto cores = [&](const std::string& groups) {
    write("groups", groups);
    return cores_by_quota(directory.file("groups"), directory.file("mount"));
  };
  write("mount/cgroup.procs", "");
  EXPECT_EQ(0, cores("0::/\n"));
  EXPECT_EQ(0, cores("3:cpu:/\n")) << "version 1";
  EXPECT_EQ(0, cores_by_quota(directory.file("none"), directory.file("mount")));
  write("mount/jobs/cpu.max", "400000 100000\n");
  write("mount/jobs/one/cpu.max", "250000 100000\n");
  write("mount/jobs/two/cpu.max", "max 100000\n");
  write("mount/jobs/small/cpu.max", "1000 100000\n");
  EXPECT_EQ(3, cores("3:cpu:/\n0::/jobs/one\n"));
  EXPECT_EQ(4, cores("0::/jobs/two\n"));
  EXPECT_EQ(1, cores("0::/jobs/small\n"));
  EXPECT_EQ(4, cores("0::/jobs/none/deep\n"));
  write("mount/cpu.max", "100000 100000\n");
  EXPECT_EQ(1, cores("0::/jobs/two\n"));
  EXPECT_EQ(1, cores("0::/../elsewhere\n")) << "a group outside of the container's own";
}

}  // namespace
}  // namespace tandem::testing
