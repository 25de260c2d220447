// SPDX-License-Identifier: Apache-2.0
#include "proto/base/thread.h"

#include <gtest/gtest.h>
#include <pthread.h>
#include <signal.h>

#include <atomic>
#include <future>
#include <memory>
#include <string>

namespace slimps {
namespace {

std::string OwnName() {
  char name[16] = "";
  pthread_getname_np(pthread_self(), name, sizeof(name));
  return name;
}

TEST(Thread, RunsItsBodyUnderItsNameUntilItIsJoined) {
  std::string name;
  Thread::Id id;
  Thread thread("slimps-test", [&] {
    name = OwnName();
    id = Thread::CurrentId();
  });
  EXPECT_TRUE(thread.joinable());
  const Thread::Id of_thread = thread.id();
  thread.Join();
  EXPECT_FALSE(thread.joinable());
  EXPECT_EQ("slimps-test", name);
  EXPECT_EQ(of_thread, id);
  EXPECT_NE(Thread::CurrentId(), id);
}

TEST(Thread, ALongNameIsCutOffAtWhatTheSystemKeeps) {
  std::string name;
  Thread("a name of more than fifteen", [&] { name = OwnName(); }).Join();
  EXPECT_EQ("a name of more ", name);
}

TEST(Thread, OneOfNothingIsNotJoinableAndTakesAnothers) {
  Thread empty;
  EXPECT_FALSE(empty.joinable());
  Thread other("other", [] {});
  empty = std::move(other);
  EXPECT_FALSE(other.joinable());  // NOLINT(bugprone-use-after-move): that is promised
  empty.Join();
}

TEST(Thread, ASignalReachesTheThreadItIsSentTo) {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGUSR1);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);  // the thread inherits it
  int got = 0;
  Thread thread("waiter", [&] { sigwait(&signals, &got); });
  thread.Kill(SIGUSR1);
  thread.Join();
  EXPECT_EQ(SIGUSR1, got);
}

TEST(Thread, ADetachedOneRunsUnderItsNameToo) {
  const auto name = std::make_shared<std::promise<std::string>>();
  std::future<std::string> told = name->get_future();
  Thread::StartDetached("detached", [name] { name->set_value(OwnName()); });
  EXPECT_EQ("detached", told.get());
}

TEST(ThreadDeathTest, DestroyingOneThatWasNotJoinedEndsTheProcess) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH({ Thread lost("lost", [] {}); }, "");
}

}  // namespace
}  // namespace slimps
