// SPDX-License-Identifier: Apache-2.0
#include "worker/push/link_figures.h"

#include <gtest/gtest.h>

namespace slimps {
namespace {

SteadyTime At(int milliseconds) { return SteadyTime() + absl::Milliseconds(milliseconds); }

// Sends one push alone, and waits for the answer.
void SendOne(LinkFigures* figures, size_t bytes, int milliseconds) {
  figures->Sent(At(0));
  figures->Answered(At(milliseconds), bytes, absl::Milliseconds(milliseconds));
}

TEST(LinkFigures, NothingIsKnownWithoutPushes) {
  const LinkReport link = LinkFigures().Take();
  EXPECT_EQ(link.push_ns_per_byte, 0);
  EXPECT_EQ(link.push_startup_ns, 0);
}

TEST(LinkFigures, TimeCountsOnceHoweverManyPushesAreUnderWay) {
  LinkFigures figures;
  figures.Sent(At(10));
  figures.Sent(At(12));
  figures.Answered(At(20), 1'000'000, absl::Milliseconds(10));
  figures.Answered(At(30), 1'000'000, absl::Milliseconds(18));
  figures.Sent(At(100));  // the worker computes in between
  figures.Answered(At(110), 1'000'000, absl::Milliseconds(10));
  const LinkReport link = figures.Take();
  EXPECT_DOUBLE_EQ(link.push_ns_per_byte, 10);  // 30 ms for 3 MB
  EXPECT_DOUBLE_EQ(link.pull_ns_per_byte, 10);
  EXPECT_EQ(link.push_startup_ns, 0) << "no small push";
  EXPECT_DOUBLE_EQ(figures.Take().push_ns_per_byte, 10) << "nothing since: as it was";
}

TEST(LinkFigures, PushesThatAreUnderWayAtAReportFallToBothSides) {
  LinkFigures figures;
  figures.Sent(At(0));
  figures.Sent(At(0));
  figures.Answered(At(10), 1'000'000, absl::Milliseconds(10));
  EXPECT_DOUBLE_EQ(figures.Take().push_ns_per_byte, 10);
  figures.Answered(At(30), 1'000'000, absl::Milliseconds(30));
  EXPECT_DOUBLE_EQ(figures.Take().push_ns_per_byte, 20);
}

TEST(LinkFigures, StartUpIsTheShortestRoundTripOfASmallPush) {
  LinkFigures figures;
  for (const int milliseconds : {7, 3, 5}) SendOne(&figures, 100, milliseconds);
  EXPECT_DOUBLE_EQ(figures.Take().push_startup_ns, 3e6);
}

TEST(LinkFigures, AHiccupOfLessThanHalfTheBytesCountsNothing) {
  LinkFigures figures;
  for (const int milliseconds : {80, 80, 900, 80, 700}) {
    SendOne(&figures, 1'000'000, milliseconds);
  }
  EXPECT_DOUBLE_EQ(figures.Take().push_ns_per_byte, 80);
}

TEST(LinkFigures, ALinkSeemsNotTheSlowerWherePushesAreSmall) {
  LinkFigures figures;
  SendOne(&figures, 1'000'000, 80);
  EXPECT_DOUBLE_EQ(figures.Take().push_ns_per_byte, 80);
  // 2 ms of start-up, and next to nothing for the bytes.
  for (int i = 0; i < 3; ++i) {
    SendOne(&figures, 100, 2);
    SendOne(&figures, 5'000, 2);
  }
  EXPECT_DOUBLE_EQ(figures.Take().push_ns_per_byte, 80) << "400 is an upper bound only";
  SendOne(&figures, 100, 2);
  SendOne(&figures, 100'000, 4);
  EXPECT_DOUBLE_EQ(figures.Take().push_ns_per_byte, 40) << "the link is faster than that";
  SendOne(&figures, 100, 2);
  SendOne(&figures, 100'000, 80);
  EXPECT_DOUBLE_EQ(figures.Take().push_ns_per_byte, 800) << "the link has become slower";
}

}  // namespace
}  // namespace slimps
