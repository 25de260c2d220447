// SPDX-License-Identifier: Apache-2.0
// Somebody sets the machine's wall clock while a job runs. All clocks are real; this program moves
// only its wall clock.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <string>

#include "tests/proto/net/membership/membership_fixture.h"

namespace {
std::atomic<int64_t> wall_step_s{0};
}

// Replaces the C library's function for the whole program, including the libraries linked into it.
extern "C" int clock_gettime(clockid_t id, timespec* now) noexcept {
  const long result = syscall(SYS_clock_gettime, id, now);
  if (result == 0 && id == CLOCK_REALTIME) now->tv_sec += wall_step_s;
  return static_cast<int>(result);
}

namespace slimps {
namespace {

using ::testing::HasSubstr;

class WallStep : public MembershipTest {
 protected:
  void SetUp() override { wall_step_s = 0; }

  // Lets both workers pass a barrier, which shows that the scheduler and both workers are alive.
  void ExpectThatTheyMeet(const std::string& where) {
    std::thread other([&] {
      const absl::Status met = worker(1).Barrier(where, wire::WORKER, kLong);
      EXPECT_TRUE(met.ok()) << met;
    });
    const absl::Status met = worker(0).Barrier(where, wire::WORKER, kLong);
    EXPECT_TRUE(met.ok()) << met;
    other.join();
  }
};

TEST_F(WallStep, TheWallClockOfThisProgramCanBeMoved) {
  const RealClock clock;
  const absl::Time before = clock.WallNow();
  const SteadyTime steady = clock.Now();
  wall_step_s = 3600;
  EXPECT_LE(absl::Hours(1), clock.WallNow() - before);
  EXPECT_GT(absl::Hours(1), clock.Now() - steady);
}

TEST_F(WallStep, ForwardsItEndsNoJob) {
  TestScheduler scheduler(network_, Scheduler());
  JoinAll();
  wall_step_s = 3600;
  scheduler.service().Tick();
  ExpectThatTheyMeet("after the step");
  wall_step_s = 7200;
  scheduler.service().Tick();
  ExpectThatTheyMeet("after another");
  for (auto& node : nodes_) EXPECT_FALSE(node->membership().down().has_value());
  EXPECT_FALSE(scheduler.service().done());
}

TEST_F(WallStep, BackwardsItHidesNoDeath) {
  SchedulerOptions options = Scheduler();
  options.heartbeat_timeout = absl::Seconds(2);
  TestScheduler scheduler(network_, options);
  JoinAll();
  wall_step_s = -3600;
  nodes_[2]->Vanish();
  const auto down = nodes_[1]->AwaitDown();
  ASSERT_TRUE(down.has_value());
  EXPECT_THAT(std::string(down->message()), HasSubstr("worker 1"));
}

TEST_F(WallStep, BackwardsItHidesNoSchedulersDeath) {
  SchedulerOptions options = Scheduler();
  options.heartbeat_timeout = absl::Seconds(2);
  TestScheduler scheduler(network_, options);
  JoinAll();
  wall_step_s = -3600;
  scheduler.Stop();
  const auto down = nodes_[1]->AwaitDown();
  ASSERT_TRUE(down.has_value());
  EXPECT_THAT(std::string(down->message()), HasSubstr("has been silent"));
}

}  // namespace
}  // namespace slimps
