// SPDX-License-Identifier: Apache-2.0
// Pulls of a version that a PullMerger holds by the time of their turn, and pulls that find no
// memory for a copy.
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/worker/pull/pull_merger_fixture.h"

// Without this, sanitizers end a program that asks for too much memory. The system only refuses.
extern "C" const char* __asan_default_options() { return "allocator_may_return_null=1"; }
extern "C" const char* __tsan_default_options() { return "allocator_may_return_null=1"; }

namespace slimps {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST_F(PullMergerTest, TheNewestVersionIsNotAskedForTwice) {
  Make();
  std::vector<float> out(4), other(4);
  Pull(0, PullKind::kThroughCopy, out, 10);
  Pull(0, PullKind::kOnto, other, 20);
  for (const PullKind kind : {PullKind::kThroughCopy, PullKind::kOnto}) {
    Outcome held;
    Submit(0, kind, kind == PullKind::kOnto ? other : out, held, /*is_newest=*/true);
    EXPECT_TRUE(held.Await().ok());
  }
  EXPECT_THAT(out, ElementsAre(10, 10, 10, 10));
  EXPECT_THAT(other, ElementsAre(20, 20, 20, 20));
  EXPECT_TRUE(transport_.idle());
  // Other memory must be filled by a new request, and so must a version that may not be the newest.
  std::vector<float> elsewhere(4);
  Outcome asked, maybe_old;
  Submit(0, PullKind::kOnto, elsewhere, asked, /*is_newest=*/true);
  for (const wire::PullItem& item : Asked()) Answer(item, {.version = 0, .value = 20});
  EXPECT_TRUE(asked.Await().ok());
  Submit(0, PullKind::kThroughCopy, out, maybe_old);
  for (const wire::PullItem& item : Asked()) Answer(item, {.version = 3, .value = 30});
  EXPECT_TRUE(maybe_old.Await().ok());
  EXPECT_THAT(out, ElementsAre(30, 30, 30, 30));
}

TEST_F(PullMergerTest, AVersionOfWhichSomePartitionIsAnotherIsAskedForAgain) {
  Make();
  std::vector<float> out(4);
  Outcome first, second;
  Submit(1, PullKind::kThroughCopy, out, first, /*is_newest=*/true);
  const std::vector<wire::PullItem> asked = Asked();
  Answer(asked[0], {.version = 1, .value = 5});
  Answer(asked[1], {.version = 2, .value = 6});
  ASSERT_TRUE(first.Await().ok());
  Submit(1, PullKind::kThroughCopy, out, second, /*is_newest=*/true);
  for (const wire::PullItem& item : Asked()) Answer(item, {.version = 2, .value = 7});
  EXPECT_TRUE(second.Await().ok());
}

// The pulls must share one answer: by the time of their turn the server may have dropped the
// version.
TEST_F(PullMergerTest, WhoWaitsForTheSameVersionSharesTheAnswer) {
  Make();
  // If one pull's answer were handled inside another's, this many would overflow the stack.
  constexpr size_t kPulls = 20000;
  std::vector<std::vector<float>> outs(kPulls, std::vector<float>(4));
  std::vector<Outcome> done(kPulls);
  Submit(1, PullKind::kThroughCopy, outs[0], done[0], /*is_newest=*/true);
  const std::vector<wire::PullItem> asked = Asked();
  for (size_t i = 1; i < kPulls; ++i) {
    Submit(1, PullKind::kThroughCopy, outs[i], done[i], /*is_newest=*/true);
  }
  for (const wire::PullItem& item : asked) Answer(item, {.version = 1, .value = 5});
  for (size_t i = 0; i < kPulls; ++i) {
    ASSERT_TRUE(done[i].Await().ok());
    ASSERT_THAT(outs[i], ElementsAre(5, 5, 5, 5)) << i;
  }
  EXPECT_TRUE(transport_.idle());
}

TEST_F(PullMergerTest, TheTimeThatAPullWaitsForItsTurnIsOfItsTimeout) {
  Make({.timeout = absl::Milliseconds(300), .clock = &clock_});
  std::vector<float> out(4);
  Outcome first, second, third;
  Submit(1, PullKind::kThroughCopy, out, first);
  std::vector<wire::PullItem> asked = Asked();
  EXPECT_EQ(asked[0].timeout_ms(), 281u) << "15/16 of it";
  Submit(2, PullKind::kThroughCopy, out, second);
  clock_.Advance(absl::Milliseconds(310));
  Submit(3, PullKind::kThroughCopy, out, third);
  for (const wire::PullItem& item : asked) Answer(item, {.version = 1, .value = 5});
  ASSERT_TRUE(first.Await().ok());
  const absl::Status late = second.Await();
  EXPECT_EQ(late.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(late.message()), HasSubstr("pull of key s:w: its turn did not come"));
  for (const wire::PullItem& item : Asked())
    Answer(item, {.version = 3, .value = 6});  // the next has its turn
  EXPECT_TRUE(third.Await().ok());
}

TEST_F(PullMergerTest, ACopyThatThereIsNoMemoryForIsAnErrorOfThatPull) {
  Make();
  const size_t elements = size_t{1} << 60;
  const TensorPlan huge{.key = Key("huge"), .info = {}, .elements = elements, .partitions = {{}}};
  Outcome outcome;
  merger_->Submit({.tensor = &huge,
                   .min_version = 1,
                   .out = {},
                   .kind = PullKind::kThroughCopy,
                   .done = outcome.Setter()});
  const absl::Status status = outcome.Await();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()), HasSubstr("s:huge: out of memory"));
  EXPECT_TRUE(transport_.idle());
}

}  // namespace
}  // namespace slimps
