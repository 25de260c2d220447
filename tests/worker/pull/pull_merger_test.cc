// SPDX-License-Identifier: Apache-2.0
// What a PullMerger does with answers, for each kind of pull.
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/worker/pull/pull_merger_fixture.h"

namespace slimps {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST_F(PullMergerTest, APlainPullTakesWeightsAndNothingElse) {
  Make();
  std::vector<float> out(4);
  Pull(1, PullKind::kPlain, out, 5);
  Outcome outcome;
  Submit(2, PullKind::kPlain, out, outcome);
  const std::vector<wire::PullItem> asked = Asked();
  EXPECT_FALSE(asked[0].takes_change());
  EXPECT_EQ(asked[0].min_version(), 2);
  EXPECT_EQ(asked[1].elements(), 1);
  Answer(asked[0], {.version = 2, .value = 1, .base = 1});
  Answer(asked[1], {.version = 2, .value = 7});
  EXPECT_EQ(outcome.Await().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(out, ElementsAre(5, 5, 5, 7));
}

TEST_F(PullMergerTest, ChangesAreAddedToTheMemoryThatHoldsTheLastPull) {
  Make();
  std::vector<float> out = {-1, -1, -1, -1};
  Outcome outcome;
  const std::vector<wire::PullItem> asked = AskOnto(out, 2, outcome);
  EXPECT_TRUE(asked[0].takes_change());
  EXPECT_EQ(asked[0].held_version(), 1);
  Answer(asked[1], {.version = 2, .value = 1, .base = 1});
  Answer(asked[0], {.version = 2, .value = 2, .base = 1});
  ASSERT_TRUE(outcome.Await().ok());
  EXPECT_THAT(out, ElementsAre(12, 12, 12, 11));
  EXPECT_EQ(merger_->totals().changes, 2);
  EXPECT_EQ(merger_->totals().payload_bytes, 32);
  std::vector<float> elsewhere(4);
  Outcome last;
  Submit(3, PullKind::kOnto, elsewhere, last);
  for (const wire::PullItem& item : Asked()) {
    EXPECT_FALSE(item.takes_change()) << "other memory holds nothing";
    Answer(item, {.version = 3, .value = 1});
  }
  EXPECT_TRUE(last.Await().ok());
}

TEST_F(PullMergerTest, ThroughTheCopyTheCallersMemoryMayHoldAnything) {
  Make();
  std::vector<float> out(4);
  Pull(1, PullKind::kThroughCopy, out, 10);
  EXPECT_THAT(out, ElementsAre(10, 10, 10, 10));
  std::vector<float> other = {9, 9, 9, 9};
  Pull(2, PullKind::kThroughCopy, other, 1, /*base=*/1);
  EXPECT_THAT(other, ElementsAre(11, 11, 11, 11));
  EXPECT_THAT(out, ElementsAre(10, 10, 10, 10));
  out = {0, 0, 0, 0};
  Pull(2, PullKind::kPlain, out, 3);  // does not touch the copy
  Pull(3, PullKind::kThroughCopy, out, 1, /*base=*/2);
  EXPECT_THAT(out, ElementsAre(12, 12, 12, 12));
}

TEST_F(PullMergerTest, APullThatFailedHalfWayGoesOnFromWhatEachPartitionHolds) {
  Make();
  std::vector<float> out(4);
  Outcome failed;
  std::vector<wire::PullItem> asked = AskOnto(out, 2, failed);
  Answer(asked[0], {.version = 2, .value = 1, .base = 1});
  Refuse(asked[1], absl::UnavailableError("gone"));
  const absl::Status status = failed.Await();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()), HasSubstr("partition 1"));
  Outcome again;
  Submit(2, PullKind::kOnto, out, again);
  asked = Asked();
  EXPECT_EQ(asked[0].held_version(), 2);
  EXPECT_EQ(asked[1].held_version(), 1);
  Answer(asked[0], {.version = 2, .value = 11});  // whole: the worker already holds this version
  Answer(asked[1], {.version = 2, .value = 1, .base = 1});
  ASSERT_TRUE(again.Await().ok());
  EXPECT_THAT(out, ElementsAre(11, 11, 11, 11));
}

TEST_F(PullMergerTest, AnAnswerThatComesTwiceCountsOnce) {
  Make();
  std::vector<float> out(4);
  Outcome outcome;
  const std::vector<wire::PullItem> asked = AskOnto(out, 2, outcome);
  Answer(asked[0], {.version = 2, .value = 1, .base = 1});
  Answer(asked[0], {.version = 2, .value = 1, .base = 1});
  Answer(asked[1], {.version = 2, .value = 1, .base = 1});
  ASSERT_TRUE(outcome.Await().ok());
  Answer(asked[1], {.version = 2, .value = 1, .base = 1});
  Pull(3, PullKind::kOnto, out, 1, 2);
  EXPECT_THAT(out, ElementsAre(12, 12, 12, 12));
}

TEST_F(PullMergerTest, AnOldVersionIsRefusedAndNotAdded) {
  Make();
  std::vector<float> out(4);
  Outcome outcome;
  for (const wire::PullItem& asked : AskOnto(out, 3, outcome))
    Answer(asked, {.version = 2, .value = 1, .base = 1});
  const absl::Status status = outcome.Await();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("expected version 3, got 2"));
  EXPECT_THAT(out, ElementsAre(10, 10, 10, 10));
}

TEST_F(PullMergerTest, PullsThroughOneCopyTakeTurns) {
  Make();
  std::vector<float> first(4), second(4), plain(4);
  Outcome first_done, second_done, plain_done;
  Submit(1, PullKind::kThroughCopy, first, first_done);
  const std::vector<wire::PullItem> asked = Asked();
  Submit(1, PullKind::kThroughCopy, second, second_done);
  Submit(1, PullKind::kPlain, plain, plain_done);
  for (const wire::PullItem& item : Asked())
    Answer(item, {.version = 1, .value = 4});  // the plain pull does not wait
  ASSERT_TRUE(plain_done.Await().ok());
  EXPECT_TRUE(transport_.idle());
  EXPECT_FALSE(second_done.done());
  Refuse(asked[0], absl::UnavailableError("gone"));
  Answer(asked[1], {.version = 1, .value = 5});
  EXPECT_FALSE(first_done.Await().ok());
  const std::vector<wire::PullItem> next = Asked();  // the second's turn, though the first failed
  EXPECT_FALSE(next[0].takes_change());
  EXPECT_EQ(next[1].held_version(), 1);
  Answer(next[0], {.version = 1, .value = 6});
  Answer(next[1], {.version = 1, .value = 6});
  ASSERT_TRUE(second_done.Await().ok());
  EXPECT_THAT(second, ElementsAre(6, 6, 6, 6));
  EXPECT_THAT(first, ElementsAre(0, 0, 0, 0)) << "a failed pull writes nothing out";
}

TEST_F(PullMergerTest, WhoWaitsIsToldWhenAllFails) {
  Make();
  std::vector<float> out(4);
  Outcome first, second;
  Submit(1, PullKind::kThroughCopy, out, first);
  Asked();
  Submit(1, PullKind::kThroughCopy, out, second);
  courier_.FailAll(absl::AbortedError("the job is over"));
  EXPECT_EQ(first.Await().code(), absl::StatusCode::kAborted);
  EXPECT_EQ(second.Await().code(), absl::StatusCode::kAborted);
}

class MeasuredPulls : public PullMergerTest {
 protected:
  void SetUp() override {
    Make({.change_codec = [this](const TensorPlan&, uint64_t) { return codec_; },
          .measures = [](const TensorPlan&, uint64_t version) { return version == 2; },
          .on_measured =
              [this](const PullMeasurement& measured) {
                MutexLock lock(&mutex_);
                measured_.push_back(measured);
                changed_.NotifyAll();
              }});
  }
  std::vector<PullMeasurement> AwaitMeasured() {
    MutexLock lock(&mutex_);
    changed_.Await(&mutex_, kLong, [this] { return !measured_.empty(); });
    return measured_;
  }
  std::vector<PullMeasurement> measured() {
    MutexLock lock(&mutex_);
    return measured_;
  }

  std::string codec_ = "1bit";  // set before a pull is asked for
  Mutex mutex_;
  CondVar changed_;
  std::vector<PullMeasurement> measured_;
};

TEST_F(MeasuredPulls, AreAskedForOnceMoreAndThrownAway) {
  std::vector<float> out(4);
  Pull(1, PullKind::kOnto, out, 10);
  Pull(2, PullKind::kOnto, out, 1, 1);
  const uint64_t bytes = merger_->totals().payload_bytes;
  const std::vector<wire::PullItem> asked = Asked();
  EXPECT_EQ(asked[0].min_version(), 2);
  EXPECT_TRUE(asked[0].takes_change());
  EXPECT_EQ(asked[0].held_version(), 1) << "as the first time, so that the answer is the same";
  Answer(asked[0], {.version = 2, .value = 1, .base = 1, .encode_ns = 1'000'000});
  Answer(asked[1], {.version = 2, .value = 1, .base = 1, .encode_ns = 2'000'000});
  const std::vector<PullMeasurement> measured = AwaitMeasured();
  ASSERT_EQ(measured.size(), 1);
  EXPECT_EQ(measured[0].version, 2);
  EXPECT_EQ(measured[0].tensor, &tensor_);
  EXPECT_GT(measured[0].communication, absl::ZeroDuration());
  EXPECT_GE(measured[0].coding, absl::Milliseconds(3));
  EXPECT_THAT(out, ElementsAre(11, 11, 11, 11));
  EXPECT_EQ(merger_->totals().payload_bytes, bytes);
  Outcome held;
  Submit(2, PullKind::kOnto, out, held, /*is_newest=*/true);
  EXPECT_TRUE(held.Await().ok()) << "nothing is asked for, and nothing measured";
  Pull(3, PullKind::kOnto, out, 1, 2);  // version 3 is not measured
  EXPECT_THAT(out, ElementsAre(12, 12, 12, 12));
  EXPECT_TRUE(transport_.idle());
}

TEST_F(MeasuredPulls, OfTheWrongKindAreNoSamples) {
  std::vector<float> out(4);
  Pull(2, PullKind::kOnto, out, 10);
  for (const wire::PullItem& asked : Asked()) {
    Answer(asked, {.version = 2, .value = 10});  // weights where a change was agreed
  }
  Pull(2, PullKind::kOnto, out, 10);
  std::vector<wire::PullItem> asked = Asked();
  Refuse(asked[0], absl::UnavailableError("gone"));
  Answer(asked[1], {.version = 2, .value = 10});
  Pull(3, PullKind::kOnto, out, 1, 2);
  EXPECT_THAT(measured(), IsEmpty());
  Pull(2, PullKind::kOnto, out, 10);
  for (const wire::PullItem& item : Asked())
    Answer(item, {.version = 3, .value = 1, .base = 2});  // a change, but of a newer version
  Pull(3, PullKind::kOnto, out, 1, 2);
  EXPECT_THAT(measured(), IsEmpty());
  codec_ = "";
  Pull(2, PullKind::kOnto, out, 10);
  for (const wire::PullItem& item : Asked()) Answer(item, {.version = 2, .value = 10});
  EXPECT_EQ(AwaitMeasured().at(0).coding, absl::ZeroDuration());
}

TEST_F(MeasuredPulls, WholeWeightsOfANewerVersionAreSamplesToo) {
  codec_ = "";
  std::vector<float> out(4);
  Pull(2, PullKind::kOnto, out, 10);
  for (const wire::PullItem& item : Asked())
    Answer(item, {.version = 4, .value = 12});  // the server does not keep version 2 any more
  EXPECT_EQ(AwaitMeasured().at(0).version, 2);
  EXPECT_THAT(out, ElementsAre(10, 10, 10, 10));
}

}  // namespace
}  // namespace slimps
