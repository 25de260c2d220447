// SPDX-License-Identifier: Apache-2.0
// What a PushPipeline does with a gradient on loan: how long its bytes count, and when it is given
// back.
#include <chrono>
#include <future>
#include <memory>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tests/worker/push/push_pipeline_fixture.h"
#include "worker/push/lent_gradient.h"
#include "worker/push/push_pipeline.h"

namespace slimps {
namespace {

constexpr size_t kPartitionBytes = kLargeElements * sizeof(float);

enum class Until { kEncoded, kAcknowledged };

class LentPushes : public PushPipelineTest {
 protected:
  struct Lent {
    absl::Status submitted;
    std::future<absl::Status> back;  // ready when the gradient was given back
  };

  // Lends a gradient for two partitions, which travel apart if they are raw. Waits as Submit does.
  Lent Submit(uint64_t round, Until until) {
    static const std::vector<float> gradient(2 * kLargeElements, 1.0f);
    const auto loan = std::make_shared<GradientLoan>(
        LentGradient{.values = gradient,
                     .place = {},
                     .returned = nullptr,
                     .until_acknowledged = until == Until::kAcknowledged});
    PushJob job{.tensor = tensor_, .round = round, .grad_bufs = LendPartitions(*tensor_, loan)};
    job.loan = loan;
    const auto returned = std::make_shared<std::promise<absl::Status>>();
    Lent lent = {pipeline_->Submit(std::move(job)), returned->get_future()};
    loan->Accept([returned](const absl::Status& status) { returned->set_value(status); });
    return lent;
  }
  std::future<Lent> SubmitOnAThread(uint64_t round, Until until) {
    return std::async(std::launch::async, [=, this] { return Submit(round, until); });
  }
  template <typename T>
  static bool Waits(const std::future<T>& future) {
    return future.wait_for(std::chrono::milliseconds(100)) == std::future_status::timeout;
  }
  static void ExpectGivenBack(std::future<absl::Status>& back) {
    ASSERT_EQ(back.wait_for(absl::ToChronoSeconds(kLong)), std::future_status::ready);
    const absl::Status status = back.get();
    EXPECT_TRUE(status.ok()) << status;
  }

  const TensorPlan* const tensor_ = Tensor("w", kLargeElements, /*partitions=*/2);
};

TEST_F(LentPushes, SubmitWaitsUntilTheLoanIsAnsweredAndGivenBack) {
  Make({}, /*max_bytes_waiting=*/kPartitionBytes - 1);
  Lent first = Submit(1, Until::kAcknowledged);
  ASSERT_TRUE(first.submitted.ok()) << first.submitted;
  ASSERT_TRUE(transport_.AwaitSent(2));
  EXPECT_FALSE(pipeline_->HasRoom(1));
  std::future<Lent> submits = SubmitOnAThread(2, Until::kAcknowledged);
  transport_.DropPayloads(0);
  transport_.DropPayloads(1);
  EXPECT_TRUE(Waits(submits));
  Answer(0);
  EXPECT_TRUE(Waits(submits)) << "the other partition is unanswered";
  EXPECT_TRUE(Waits(first.back)) << "it may have to be sent again";
  Answer(1);
  Lent second = submits.get();
  ASSERT_TRUE(second.submitted.ok()) << second.submitted;
  ExpectGivenBack(first.back);
  ASSERT_TRUE(transport_.AwaitSent(4));
  for (const size_t message : {2, 3}) {
    transport_.DropPayloads(message);
    Answer(message);
  }
  ExpectGivenBack(second.back);
  EXPECT_TRUE(pipeline_->Drain(kLong).ok());
  EXPECT_TRUE(pipeline_->HasRoom(kPartitionBytes - 1));
}

TEST_F(LentPushes, WhatIsEncodedIsGivenBackAndCountsInFullUntilTheAnswer) {
  Make({.compression = "1bit", .fixed_threshold_bytes = 0},
       /*max_bytes_waiting=*/kPartitionBytes - 1);
  Lent first = Submit(1, Until::kEncoded);
  ASSERT_TRUE(first.submitted.ok()) << first.submitted;
  ASSERT_TRUE(transport_.AwaitSent(1)) << "both partitions in one message";
  ExpectGivenBack(first.back);
  EXPECT_FALSE(pipeline_->HasRoom(1));
  std::future<Lent> submits = SubmitOnAThread(2, Until::kEncoded);
  EXPECT_TRUE(Waits(submits));
  Answer(0);
  Lent second = submits.get();
  ASSERT_TRUE(second.submitted.ok()) << second.submitted;
  ExpectGivenBack(second.back);
  ASSERT_TRUE(transport_.AwaitSent(2));
  Answer(1);
  EXPECT_TRUE(pipeline_->Drain(kLong).ok());
  EXPECT_TRUE(pipeline_->HasRoom(kPartitionBytes - 1));
}

}  // namespace
}  // namespace slimps
