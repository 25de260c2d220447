// SPDX-License-Identifier: Apache-2.0
#include "tools/bench/cluster/arrivals.h"

#include <thread>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/base/clock.h"

namespace slimps {
namespace {

using ::testing::HasSubstr;

TEST(Arrivals, AVersionThatIsHereIsNotWaitedFor) {
  Arrivals arrivals(2, 3);
  EXPECT_EQ(arrivals.Wait(1, 3, absl::ZeroDuration()).value(), SteadyTime::InfinitePast());
  EXPECT_EQ(arrivals.Wait(1, 2, absl::ZeroDuration()).value(), SteadyTime::InfinitePast());
}

TEST(Arrivals, AWaiterIsWokenAndToldWhenItCame) {
  Arrivals arrivals(2, 0);
  const SteadyTime before = MachineClock()->Now();
  std::thread other([&] { arrivals.Arrived(1, 1); });
  const auto at = arrivals.Wait(1, 1, absl::Seconds(60));
  other.join();
  ASSERT_TRUE(at.ok()) << at.status();
  EXPECT_GE(*at, before);
  EXPECT_LE(*at, MachineClock()->Now());
}

TEST(Arrivals, OneThatDoesNotComeIsNamed) {
  Arrivals arrivals(2, 0);
  arrivals.Arrived(0, 1);
  const auto at = arrivals.Wait(1, 1, absl::Milliseconds(1));
  EXPECT_EQ(at.status().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(at.status().message(), HasSubstr("tensor 1: waited for version 1, has 0"));
}

TEST(Arrivals, TheFirstFailureEndsEveryWait) {
  Arrivals arrivals(1, 0);
  std::thread other([&] {
    arrivals.Fail(absl::DataLossError("first"));
    arrivals.Fail(absl::InternalError("second"));
  });
  EXPECT_EQ(arrivals.Wait(0, 1, absl::Seconds(60)).status(), absl::DataLossError("first"));
  other.join();
  EXPECT_EQ(arrivals.Wait(0, 0, absl::Seconds(60)).status(), absl::DataLossError("first"));
}

}  // namespace
}  // namespace slimps
