// SPDX-License-Identifier: Apache-2.0
#include "tools/bench/cluster/link_meter.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/base/clock.h"

namespace slimps {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr char kText[] =
    "Inter-|   Receive                                                |  Transmit\n"
    " face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs\n"
    "    lo:  100 1 0 0 0 0 0 0 100 1 0 0 0 0 0 0\n"
    "  eth0: 18446744073709551615 12 0 0 0 0 0 0 4567 9 0 0 0 0 0 0\n"
    " eth01:7 1 0 0 0 0 0 0 8 1 0 0 0 0 0 0\n";

TEST(LinkCounters, AreReadByName) {
  const auto eth0 = ParseLinkCounters(kText, "eth0");
  ASSERT_TRUE(eth0.ok()) << eth0.status();
  EXPECT_EQ(eth0->in, UINT64_MAX);
  EXPECT_EQ(eth0->out, 4567u);
  const auto other = ParseLinkCounters(kText, "eth01");  // no blank before the number
  ASSERT_TRUE(other.ok()) << other.status();
  EXPECT_EQ(other->in, 7u);
  EXPECT_EQ(other->out, 8u);
}

TEST(LinkCounters, AnInterfaceThatIsNotThereIsNamed) {
  const auto none = ParseLinkCounters(kText, "eth");
  EXPECT_EQ(none.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(none.status().message(), HasSubstr("interface eth "));
}

TEST(LinkCounters, ALineWithoutItsNumbersIsRefused) {
  for (const char* line :
       {"eth0: 1 2 3", "eth0: x 1 0 0 0 0 0 0 4 9", "eth0: 1 1 0 0 0 0 0 0 -4 9"}) {
    EXPECT_EQ(ParseLinkCounters(line, "eth0").status().code(), absl::StatusCode::kDataLoss) << line;
  }
}

TEST(LinkCounters, OfThisMachinesLoopbackCanBeRead) {
  EXPECT_TRUE(ReadLinkCounters("lo").ok());
  EXPECT_FALSE(ReadLinkCounters("no-such-link").ok());
}

SteadyTime At(int64_t ms) { return SteadyTime() + absl::Milliseconds(ms); }

TEST(BusyIntervals, AreWhereEitherDirectionMovedEnough) {
  const std::vector<LinkSample> samples = {
      {At(0), {0, 0}},        {At(2), {1000, 10}},  // 0.5 MB/s in
      {At(4), {9000, 10}},                          // 4 MB/s in
      {At(6), {9000, 9010}},                        // 4.5 MB/s out
      {At(8), {9000, 9010}},                        // nothing
      {At(28), {50000, 9010}}};                     // 2.05 MB/s in, over a longer time
  EXPECT_THAT(BusyIntervals(samples, 2e6).parts(),
              ElementsAre(Interval{At(2), At(6)}, Interval{At(8), At(28)}));
  EXPECT_THAT(BusyIntervals(samples, 1e9).parts(), IsEmpty());
}

TEST(BusyIntervals, NothingMovedIsNeverBusy) {
  const std::vector<LinkSample> samples = {{At(0), {5, 5}}, {At(2), {5, 5}}};
  EXPECT_THAT(BusyIntervals(samples, 0).parts(), IsEmpty());
  EXPECT_THAT(BusyIntervals({}, 0).parts(), IsEmpty());
}

TEST(LinkMeter, StopsAtOnceAndMayBeDroppedWithout) {
  LinkMeter meter("lo");
  meter.Stop();
  const LinkMeter dropped("lo");
}

}  // namespace
}  // namespace slimps
