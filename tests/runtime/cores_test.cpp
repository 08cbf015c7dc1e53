// The cores on which the lanes of a device run.
#include <sched.h>

#include <cstddef>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <utility>

#include <gtest/gtest.h>

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
