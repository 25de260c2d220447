// SPDX-License-Identifier: Apache-2.0
#include "proto/net/queue/wakeup.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <thread>
#include <vector>

#include "proto/base/clock.h"

namespace slimps {
namespace {

// Returns how long Sleep took, without other descriptors.
absl::Duration Slept(Wakeup& wakeup, absl::Duration limit) {
  std::vector<pollfd> none;
  const SteadyTime start = MachineClock()->Now();
  wakeup.Sleep(&none, start + limit);
  EXPECT_TRUE(none.empty());
  return MachineClock()->Now() - start;
}

TEST(Wakeup, SleepsUntilTheTimeAndNotAtAllWhenItHasPassed) {
  Wakeup wakeup;
  ASSERT_TRUE(wakeup.ok());
  EXPECT_GE(Slept(wakeup, absl::Milliseconds(20)), absl::Milliseconds(19));
  std::vector<pollfd> none;
  wakeup.Sleep(&none, SteadyTime::InfinitePast());
}

TEST(Wakeup, ASignalBeforeSleepIsKeptUntilCleared) {
  Wakeup wakeup;
  wakeup.Signal();
  wakeup.Signal();
  EXPECT_LT(Slept(wakeup, absl::Hours(1)), absl::Minutes(5));
  EXPECT_LT(Slept(wakeup, absl::Hours(1)), absl::Minutes(5)) << "nobody has looked for the work";
  wakeup.Clear();
  EXPECT_GE(Slept(wakeup, absl::Milliseconds(20)), absl::Milliseconds(19));
}

TEST(Wakeup, ASleeperIsWokenAndEveryPieceOfWorkIsSeen) {
  Wakeup wakeup;
  constexpr int kWorks = 20000;
  std::atomic<int> posted{0};
  std::thread poster([&] {
    for (int i = 0; i < kWorks; ++i) {
      ++posted;
      wakeup.Signal();
      if (i % 100 == 0) std::this_thread::yield();
    }
  });
  // If a signal were lost, the sleeper would sleep for ever.
  for (int seen = 0; seen < kWorks;) {
    wakeup.Clear();
    seen = posted;
    std::vector<pollfd> none;
    if (seen < kWorks) wakeup.Sleep(&none, SteadyTime::InfiniteFuture());
  }
  poster.join();
}

TEST(Wakeup, OtherDescriptorsWakeItToo) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  Wakeup wakeup;
  std::vector<pollfd> fds = {{ends[1], POLLIN, 0}, {ends[0], POLLIN, 0}};
  wakeup.Signal();
  wakeup.Sleep(&fds, SteadyTime::InfiniteFuture());
  EXPECT_EQ(fds[1].revents, 0);
  wakeup.Clear();
  ASSERT_EQ(write(ends[1], "x", 1), 1);
  wakeup.Sleep(&fds, SteadyTime::InfiniteFuture());
  EXPECT_EQ(fds[0].revents, 0);
  EXPECT_EQ(fds[1].revents, POLLIN);
  EXPECT_EQ(fds.size(), 2u);
  close(ends[0]);
  close(ends[1]);
}

}  // namespace
}  // namespace slimps
