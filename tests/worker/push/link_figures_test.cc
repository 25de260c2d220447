// SPDX-License-Identifier: Apache-2.0
#include "worker/push/link_figures.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace slimps {
namespace {

constexpr size_t kMegabyte = 1'000'000;

SteadyTime At(double milliseconds) { return SteadyTime() + absl::Milliseconds(milliseconds); }

// A link that carries one push at a time, in the order in which they are handed over.
class Link {
 public:
  Link(LinkFigures* figures, double ns_per_byte, double startup_ms)
      : figures_(figures), ns_per_byte_(ns_per_byte), startup_ms_(startup_ms) {}

  void set_ns_per_byte(double ns) { ns_per_byte_ = ns; }

  // Hands over a push and returns when its answer comes. Pushes must come by rising times.
  double Push(uint64_t round, double ms, size_t bytes) {
    free_ms_ = std::max(free_ms_, ms) + static_cast<double>(bytes) * ns_per_byte_ / 1e6;
    const double answer_ms = free_ms_ + startup_ms_;
    figures_->Answered(round, At(answer_ms), bytes, absl::Milliseconds(answer_ms - ms));
    return answer_ms;
  }

  // A round: a push every millisecond, for 20 ms, of that many bytes.
  void Round(uint64_t round, size_t bytes) {
    const double start = 10'000 * static_cast<double>(round);
    for (int i = 0; i < 20; ++i) Push(round, start + i, i % 4 == 0 ? 100 : bytes);
  }

 private:
  LinkFigures* const figures_;
  double ns_per_byte_;
  const double startup_ms_;
  double free_ms_ = 0;
};

TEST(LinkFigures, NothingIsKnownWithoutPushes) {
  const LinkReport link = LinkFigures().Take();
  EXPECT_EQ(link.ns_per_byte, 0);
  EXPECT_EQ(link.startup_ns, 0);
}

TEST(LinkFigures, TimePerByteIsTheLinksHoweverFullItIs) {
  for (const double ns_per_byte : {1.0, 8.0, 80.0}) {
    // From a link that idles between pushes to one that has a queue all the time.
    for (const size_t bytes : {20'000u, 200'000u, 2'000'000u}) {
      if (ns_per_byte * static_cast<double>(bytes) < 1e6) continue;  // nearly all start-up
      LinkFigures figures;
      Link link(&figures, ns_per_byte, 0.5);
      for (uint64_t round = 1; round <= 5; ++round) link.Round(round, bytes);
      const LinkReport report = figures.Take();
      EXPECT_NEAR(report.ns_per_byte / ns_per_byte, 1, 0.3) << ns_per_byte << " " << bytes;
    }
  }
}

TEST(LinkFigures, ManySmallPushesInAChainDoNotSlowTheLinkDown) {
  // Each push is answered after the next was handed over, so something is under way all the time.
  // The link carries something in a fiftieth of it.
  LinkFigures figures;
  Link link(&figures, 1, 2);
  for (int i = 0; i < 1000; ++i) link.Push(1 + i / 100, i, i % 10 == 0 ? 200'000 : 1000);
  EXPECT_LT(figures.Take().ns_per_byte, 2);
}

TEST(LinkFigures, WithoutNewsTheFiguresStay) {
  LinkFigures figures;
  Link link(&figures, 80, 1);
  link.Round(1, kMegabyte);
  const LinkReport first = figures.Take(), again = figures.Take();
  EXPECT_EQ(first.ns_per_byte, again.ns_per_byte);
  EXPECT_EQ(first.startup_ns, again.startup_ns);
}

TEST(LinkFigures, StartUpIsTheMedianRoundTripWithNextToNothingMeanwhile) {
  LinkFigures figures;
  for (int i = 0; i < 5; ++i) {
    const int milliseconds[] = {7, 3, 5, 4, 900};
    figures.Answered(1, At(1000 * (i + 1)), 100, absl::Milliseconds(milliseconds[i]));
  }
  // Behind a large one, a small one waits for it.
  figures.Answered(1, At(9000), kMegabyte, absl::Milliseconds(100));
  figures.Answered(1, At(9001), 100, absl::Milliseconds(99));
  EXPECT_DOUBLE_EQ(figures.Take().startup_ns, 5e6);
}

TEST(LinkFigures, AHiccupInLessThanHalfOfTheRoundsCountsNothing) {
  LinkFigures figures;
  Link link(&figures, 80, 0);
  for (uint64_t round = 1; round <= 5; ++round) {
    link.set_ns_per_byte(round == 2 || round == 4 ? 900 : 80);
    link.Push(round, 10'000 * static_cast<double>(round), kMegabyte);
  }
  EXPECT_NEAR(figures.Take().ns_per_byte, 80, 1e-6);
}

TEST(LinkFigures, APushThatWasSentTwiceTellsNothing) {
  LinkFigures figures;
  figures.Answered(1, At(100), kMegabyte, absl::ZeroDuration());
  EXPECT_EQ(figures.Take().ns_per_byte, 0);
}

TEST(LinkFigures, ALinkSeemsNotTheSlowerWherePushesAreSmall) {
  LinkFigures figures;
  Link link(&figures, 80, 2);
  link.Round(1, kMegabyte);
  const double known = figures.Take().ns_per_byte;
  EXPECT_NEAR(known, 80, 8);
  link.set_ns_per_byte(800);  // of a few bytes: less than the start-up
  for (uint64_t round = 2; round <= 4; ++round) {
    const double start = 10'000 * static_cast<double>(round);
    link.Push(round, start, 100);
    link.Push(round, start + 100, 4'000);
  }
  EXPECT_EQ(figures.Take().ns_per_byte, known) << "an upper bound only";
  link.set_ns_per_byte(40);
  for (uint64_t round = 5; round <= 7; ++round) link.Round(round, 100'000);
  EXPECT_NEAR(figures.Take().ns_per_byte, 40, 8) << "the link is faster";
  link.set_ns_per_byte(800);
  for (uint64_t round = 8; round <= 10; ++round) link.Round(round, 100'000);
  EXPECT_NEAR(figures.Take().ns_per_byte, 800, 80) << "the link has become slower";
}

}  // namespace
}  // namespace slimps
