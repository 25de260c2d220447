// SPDX-License-Identifier: Apache-2.0
// Each case runs in a process of its own, because a hard limit never rises again.
#include "proto/net/descriptors.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <iostream>

namespace slimps {
namespace {

using ::testing::ExitedWithCode;

// Reserves, says why not, and ends this process: with 0 if it could, with 1 if it could not, and
// with 9 if a limit fell or the soft one is not `at_least` so high.
[[noreturn]] void Reserve(const rlimit& before, const ConnectionCounts& counts, rlim_t at_least) {
  setrlimit(RLIMIT_NOFILE, &before);
  const absl::Status reserved = ReserveDescriptors(counts);
  std::cerr << reserved.message() << std::endl;
  rlimit after{};
  getrlimit(RLIMIT_NOFILE, &after);
  const bool kept = after.rlim_max == before.rlim_max && after.rlim_cur >= before.rlim_cur;
  _exit(kept && after.rlim_cur >= at_least ? (reserved.ok() ? 0 : 1) : 9);
}

TEST(Descriptors, ASoftLimitIsRaisedToWhatIsNeeded) {
  const ConnectionCounts counts{.accepted = 1000, .made = 10};
  EXPECT_EXIT(Reserve({200, 4000}, counts, DescriptorsFor(counts)), ExitedWithCode(0), "");
}

TEST(Descriptors, ASoftLimitIsNeverRaisedBeyondTheHardOne) {
  const ConnectionCounts counts{.accepted = 10};
  EXPECT_EXIT(Reserve({100, 300}, counts, 300), ExitedWithCode(0), "");
}

TEST(Descriptors, AHardLimitThatIsTooLowIsToldWithWhatIsNeededAndWhatToDo) {
  EXPECT_EXIT(
      Reserve({100, 300}, {.accepted = 1000, .made = 10}, 100), ExitedWithCode(1),
      "expected 2[0-9]+ .* for 1010 connections.*got a hard limit of 300: raise it .ulimit");
}

TEST(Descriptors, ALimitThatIsHighEnoughIsLeftAlone) {
  const ConnectionCounts counts{.made = 1};
  EXPECT_EXIT(Reserve({2000, 2000}, counts, 2000), ExitedWithCode(0), "");
}

}  // namespace
}  // namespace slimps
