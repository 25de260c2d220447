// SPDX-License-Identifier: Apache-2.0
#include "proto/net/shared/process_watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <limits>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "tests/proto/net/shared/child_process.h"

namespace slimps {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class ProcessWatchTest : public ::testing::Test {
 protected:
  // Returns true if an ended process can be taken within `milliseconds`.
  bool IsReadable(int milliseconds) {
    pollfd item{watch_.fd(), POLLIN, 0};
    return poll(&item, 1, milliseconds) == 1;
  }
  static constexpr int kLong = 30000;  // only a failing test waits this long

  ProcessWatch watch_;
};

TEST_F(ProcessWatchTest, AProcessIsNamedOnceWhenItHasEnded) {
  Child stays, goes;
  ASSERT_TRUE(watch_.ok());
  ASSERT_TRUE(watch_.Add(stays.pid()).ok());
  ASSERT_TRUE(watch_.Add(goes.pid()).ok());
  EXPECT_FALSE(IsReadable(0));
  EXPECT_THAT(watch_.TakeEnded(), IsEmpty());
  goes.Kill();
  ASSERT_TRUE(IsReadable(kLong));
  EXPECT_THAT(watch_.TakeEnded(), ElementsAre(goes.pid()));
  EXPECT_THAT(watch_.TakeEnded(), IsEmpty());
  EXPECT_FALSE(IsReadable(0));
}

TEST_F(ProcessWatchTest, WatchingTwiceIsWatchingOnce) {
  Child child;
  EXPECT_TRUE(watch_.Add(child.pid()).ok());
  EXPECT_TRUE(watch_.Add(child.pid()).ok());
  child.Kill();
  ASSERT_TRUE(IsReadable(kLong));
  EXPECT_THAT(watch_.TakeEnded(), ElementsAre(child.pid()));
  EXPECT_THAT(watch_.TakeEnded(), IsEmpty());
}

TEST_F(ProcessWatchTest, WhoHasEndedIsNotTakenForAlive) {
  Child watched, stranger;
  ASSERT_TRUE(watch_.Add(watched.pid()).ok());
  watched.Kill();
  ASSERT_TRUE(IsReadable(kLong));
  const absl::Status ended = watch_.Add(watched.pid());
  EXPECT_EQ(ended.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(ended.message()),
              HasSubstr("process " + std::to_string(watched.pid()) + " cannot be watched: it has"));
  // The process is killed but not waited for, so its number still belongs to it.
  stranger.Kill();
  siginfo_t info;
  ASSERT_EQ(waitid(P_PID, static_cast<id_t>(stranger.pid()), &info, WEXITED | WNOWAIT), 0);
  EXPECT_EQ(watch_.Add(stranger.pid()).code(), absl::StatusCode::kNotFound);
}

TEST_F(ProcessWatchTest, ASignalIsNotTakenForAnEnd) {
  Child child;
  ASSERT_TRUE(watch_.Add(child.pid()).ok());
  struct sigaction handled = {}, before = {};
  handled.sa_handler = [](int) {};
  ASSERT_EQ(sigaction(SIGUSR1, &handled, &before), 0);
  std::atomic<bool> over{false};
  std::thread signals([&over, self = pthread_self()] {
    while (!over) pthread_kill(self, SIGUSR1);
  });
  int ended = 0;
  for (int i = 0; i < 100000; ++i) ended += !watch_.Add(child.pid()).ok();
  over = true;
  signals.join();
  sigaction(SIGUSR1, &before, nullptr);
  EXPECT_EQ(ended, 0);
}

TEST_F(ProcessWatchTest, ARemovedProcessIsNamedNoMore) {
  Child removed, watched;
  ASSERT_TRUE(watch_.Add(removed.pid()).ok());
  ASSERT_TRUE(watch_.Add(watched.pid()).ok());
  watch_.Remove(removed.pid());
  watch_.Remove(12345678);  // never watched
  removed.Kill();
  watched.Kill();
  ASSERT_TRUE(IsReadable(kLong));
  EXPECT_THAT(watch_.TakeEnded(), ElementsAre(watched.pid()));
}

TEST_F(ProcessWatchTest, NumbersOfNoProcessAreRefused) {
  // Peers name these numbers. Cut to 32 bits, a number would name another process.
  const uint64_t beyond = (uint64_t{1} << 32) | static_cast<uint64_t>(getpid());
  for (const uint64_t pid :
       {uint64_t{0}, beyond, uint64_t{1} << 31, std::numeric_limits<uint64_t>::max()}) {
    const absl::Status status = watch_.Add(pid);
    EXPECT_EQ(status.code(),
              pid == 0 ? absl::StatusCode::kUnavailable : absl::StatusCode::kNotFound)
        << pid;
    EXPECT_THAT(std::string(status.message()), HasSubstr("process " + std::to_string(pid) + " "));
  }
}

TEST_F(ProcessWatchTest, ManyThatEndTogetherAreAllNamed) {
  std::vector<Child> children(40);
  std::set<uint64_t> expected;
  for (Child& child : children) {
    ASSERT_TRUE(watch_.Add(child.pid()).ok());
    expected.insert(child.pid());
  }
  for (Child& child : children) {
    child.Kill();
    siginfo_t info;
    ASSERT_EQ(waitid(P_PID, static_cast<id_t>(child.pid()), &info, WEXITED | WNOWAIT), 0);
  }
  const std::vector<uint64_t> ended = watch_.TakeEnded();
  EXPECT_EQ(std::set<uint64_t>(ended.begin(), ended.end()), expected);
  EXPECT_EQ(ended.size(), expected.size());
}

}  // namespace
}  // namespace slimps
