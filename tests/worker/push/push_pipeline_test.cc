// SPDX-License-Identifier: Apache-2.0
// What leaves a PushPipeline, in which order and in which messages, and what the pipeline holds
// back.
#include "worker/push/push_pipeline.h"

#include <chrono>
#include <future>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/net/send_priority.h"
#include "tests/worker/push/push_pipeline_fixture.h"

namespace slimps {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST_F(PushPipelineTest, AFrontLayersPartitionsOvertakeWhatWaits) {
  Make();
  std::promise<void> go = HoldUp();
  const TensorPlan* back = Tensor("back", kLargeElements, 2);
  const TensorPlan* front = Tensor("front", kLargeElements, 2);
  ASSERT_TRUE(pipeline_->Submit(Job(back, /*priority=*/-2)).ok());
  ASSERT_TRUE(pipeline_->Submit(Job(front, /*priority=*/-1)).ok());
  go.set_value();
  ASSERT_TRUE(transport_.AwaitSent(5));
  EXPECT_THAT(KeysOf(1), ElementsAre(front->key.id()));
  EXPECT_THAT(KeysOf(2), ElementsAre(front->key.id()));
  EXPECT_EQ(transport_.header(2).push().items(0).id().partition(), 1u);
  EXPECT_EQ(transport_.priority(2), SendPriority(/*round=*/1, -1));
  EXPECT_THAT(KeysOf(3), ElementsAre(back->key.id()));
}

TEST_F(PushPipelineTest, SmallTensorsThatWaitTogetherTravelTogether) {
  Make();
  std::promise<void> go = HoldUp();
  std::vector<KeyId> expected;
  for (const char* name : {"a", "b", "c"}) {
    const TensorPlan* tensor = Tensor(name, 4);
    expected.push_back(tensor->key.id());
    ASSERT_TRUE(pipeline_->Submit(Job(tensor)).ok());
  }
  go.set_value();
  ASSERT_TRUE(transport_.AwaitSent(2));
  EXPECT_EQ(KeysOf(1), expected);
  EXPECT_EQ(transport_.payloads(1).size(), 3u);
}

TEST_F(PushPipelineTest, ASmallTensorAloneWaitsForNobody) {
  Make();
  ASSERT_TRUE(pipeline_->Submit(Job(Tensor("a", 4))).ok());
  EXPECT_TRUE(transport_.AwaitSent(1));
}

TEST_F(PushPipelineTest, APartitionThatHasArrivedGoesOnBeforeTheOthers) {
  Make({}, /*max_bytes_waiting=*/8 * kLargeElements);
  const TensorPlan* tensor = Tensor("w", kLargeElements, /*partitions=*/2);
  PushJob job = Job(tensor);
  const GradientBuffers grad_bufs = std::exchange(job.grad_bufs, {});
  const auto announced = pipeline_->Announce(job);
  ASSERT_TRUE(announced.ok()) << announced.status();
  EXPECT_FALSE(pipeline_->HasRoom(1)) << "what is on its way counts";
  EXPECT_TRUE(absl::IsDeadlineExceeded(pipeline_->Drain(absl::Milliseconds(20))));
  pipeline_->Arrive(*announced, /*partition=*/1, grad_bufs[1], 1);
  ASSERT_TRUE(transport_.AwaitSent(1));
  EXPECT_EQ(transport_.header(0).push().items(0).id().partition(), 1u);
  Answer(0);
  EXPECT_TRUE(absl::IsDeadlineExceeded(pipeline_->Drain(absl::Milliseconds(20))));
  pipeline_->Arrive(*announced, /*partition=*/0, grad_bufs[0], 1);
  ASSERT_TRUE(transport_.AwaitSent(2));
  Answer(1);
  EXPECT_TRUE(pipeline_->Drain(kLong).ok());
}

TEST_F(PushPipelineTest, SubmitWaitsWhileTooManyBytesAreUnanswered) {
  Make({}, /*max_bytes_waiting=*/100);
  const TensorPlan* tensor = Tensor("w", 100);
  EXPECT_TRUE(pipeline_->HasRoom(100));
  EXPECT_FALSE(pipeline_->HasRoom(101));
  ASSERT_TRUE(pipeline_->Submit(Job(tensor)).ok());
  ASSERT_TRUE(transport_.AwaitSent(1));
  EXPECT_FALSE(pipeline_->HasRoom(1));
  auto second = std::async(std::launch::async,
                           [&] { return pipeline_->Submit(Job(tensor, 0, /*round=*/2)); });
  // The first push has left but is not answered. Payloads on their way count too.
  EXPECT_EQ(second.wait_for(std::chrono::milliseconds(100)), std::future_status::timeout);
  Answer(0);
  EXPECT_TRUE(second.get().ok());
}

TEST_F(PushPipelineTest, SubmitGivesUpWhenNothingIsAnswered) {
  Make({}, /*max_bytes_waiting=*/100, absl::Milliseconds(50));
  const TensorPlan* tensor = Tensor("w", 100);
  ASSERT_TRUE(pipeline_->Submit(Job(tensor)).ok());
  const absl::Status refused = pipeline_->Submit(Job(tensor, 0, /*round=*/2));
  EXPECT_TRUE(absl::IsDeadlineExceeded(refused));
  EXPECT_THAT(std::string(refused.message()), HasSubstr("s:w"));
  EXPECT_THAT(std::string(refused.message()), HasSubstr("400 bytes"));
}

TEST_F(PushPipelineTest, DrainWaitsForEveryAnswerAndWhoAsksForAKeyForTheKeys) {
  Make();
  const TensorPlan* a = Tensor("a", kLargeElements);
  const TensorPlan* b = Tensor("b", kLargeElements);
  ASSERT_TRUE(pipeline_->Submit(Job(a)).ok());
  ASSERT_TRUE(pipeline_->Submit(Job(b)).ok());
  ASSERT_TRUE(transport_.AwaitSent(2));
  std::string told;
  const auto tell = [&](const char* key) {
    return [&told, key](const absl::Status& status) { absl::StrAppend(&told, key, status.ok()); };
  };
  pipeline_->WhenAcknowledged(*a, tell("a"));
  pipeline_->WhenAcknowledged(*b, tell("b"));
  EXPECT_EQ(told, "");
  Answer(0);
  EXPECT_EQ(told, "a1");
  pipeline_->WhenAcknowledged(*a, tell("again"));
  EXPECT_EQ(told, "a1again1") << "at once, where nothing is under way";
  EXPECT_TRUE(absl::IsDeadlineExceeded(pipeline_->Drain(absl::Milliseconds(20))));
  Answer(1);
  EXPECT_EQ(told, "a1again1b1");
  EXPECT_TRUE(pipeline_->Drain(kLong).ok());
  EXPECT_EQ(pipeline_->totals().payload_bytes, 2 * kLargeElements * sizeof(float));
}

TEST_F(PushPipelineTest, WhoWaitsForAKeyLearnsOfTheFailure) {
  Make();
  const TensorPlan* tensor = Tensor("w", 4);
  ASSERT_TRUE(pipeline_->Submit(Job(tensor)).ok());
  std::vector<absl::Status> told;
  const auto tell = [&](const absl::Status& status) { told.push_back(status); };
  pipeline_->WhenAcknowledged(*tensor, tell);
  pipeline_->Fail(absl::UnavailableError("server 0 is lost"));
  pipeline_->WhenAcknowledged(*tensor, tell);
  EXPECT_EQ(told, std::vector(2, absl::UnavailableError("server 0 is lost")));
}

TEST_F(PushPipelineTest, ARefusedPushIsAnErrorOfTheStores) {
  Make();
  ASSERT_TRUE(pipeline_->Submit(Job(Tensor("w", 4))).ok());
  ASSERT_TRUE(transport_.AwaitSent(1));
  Answer(0, absl::AlreadyExistsError("pushed before"));
  const absl::Status error = AwaitError();
  EXPECT_TRUE(absl::IsAlreadyExists(error));
  EXPECT_THAT(std::string(error.message()), HasSubstr("push of key s:w partition 0 to server 0"));
}

TEST_F(PushPipelineTest, FailureEndsEveryWait) {
  Make({}, /*max_bytes_waiting=*/100);
  const TensorPlan* tensor = Tensor("w", 100);
  ASSERT_TRUE(pipeline_->Submit(Job(tensor)).ok());
  auto blocked = std::async(std::launch::async,
                            [&] { return pipeline_->Submit(Job(tensor, 0, /*round=*/2)); });
  auto drained = std::async(std::launch::async, [&] { return pipeline_->Drain(kLong); });
  pipeline_->Fail(absl::AbortedError("the server died"));
  EXPECT_TRUE(absl::IsAborted(blocked.get()));
  EXPECT_TRUE(absl::IsAborted(drained.get()));
}

TEST_F(PushPipelineTest, APushOfNothingCarriesNothingAndCounts) {
  Make();
  ASSERT_TRUE(pipeline_->Submit({Tensor("w", 4), /*round=*/3, 0, {}}).ok());
  ASSERT_TRUE(transport_.AwaitSent(1));
  const wire::PushItem item = transport_.header(0).push().items(0);
  EXPECT_EQ(item.format(), wire::ABSENT);
  EXPECT_EQ(item.round(), 3u);
  EXPECT_TRUE(transport_.payloads(0).empty());
}

TEST_F(PushPipelineTest, HyperparametersTravelWithWhateverAPushCarries) {
  Make();
  wire::Hyper hyper;
  hyper.set_learning_rate(0.25);
  hyper.set_weight_decay(0.5);
  const TensorPlan* tensor = Tensor("cut", kLargeElements, 2);
  PushJob dense = Job(tensor);
  dense.hyper = hyper;
  ASSERT_TRUE(pipeline_->Submit(std::move(dense)).ok());
  ASSERT_TRUE(transport_.AwaitSent(2));
  PushJob nothing{.tensor = tensor, .round = 2, .grad_bufs = {}, .hyper = hyper};
  ASSERT_TRUE(pipeline_->Submit(std::move(nothing)).ok());
  ASSERT_TRUE(transport_.AwaitSent(3));
  for (size_t message = 0; message < 3; ++message) {
    const wire::Header sent = transport_.header(message);
    for (const wire::PushItem& item : sent.push().items()) {
      EXPECT_EQ(item.hyper().learning_rate(), 0.25) << message;
      EXPECT_EQ(item.hyper().weight_decay(), 0.5) << message;
    }
  }
  ASSERT_TRUE(pipeline_->Submit(Job(tensor, 0, /*round=*/3)).ok());
  ASSERT_TRUE(transport_.AwaitSent(4));
  const size_t last = transport_.sent() - 1;
  EXPECT_FALSE(transport_.header(last).push().items(0).has_hyper()) << "the optimizer's own";
}

TEST_F(PushPipelineTest, StatesAreUsedOnceAllIsAnsweredAndNothingIsEncodedMeanwhile) {
  Make({.compression = "1bit", .fixed_threshold_bytes = 0});
  ASSERT_TRUE(pipeline_->Submit(Job(Tensor("w", 8))).ok());
  ASSERT_TRUE(transport_.AwaitSent(1));
  std::promise<void> used, go;
  auto user = std::async(std::launch::async, [&] {
    return pipeline_->UseStates([&](StateStore& states, LevelProbe&) {
      EXPECT_NE(states.Find(Key("w").id(), 0), nullptr);
      used.set_value();
      go.get_future().wait();
      return absl::OkStatus();
    });
  });
  auto is_used = used.get_future();
  EXPECT_EQ(is_used.wait_for(std::chrono::milliseconds(20)), std::future_status::timeout)
      << "an answer is missing";
  Answer(0);
  is_used.wait();
  EXPECT_FALSE(pipeline_->PrepareNow(Job(Tensor("v", 8)))->has_value());
  ASSERT_TRUE(pipeline_->Submit(Job(Tensor("u", 8))).ok());
  EXPECT_EQ(transport_.sent(), 1u);
  go.set_value();
  EXPECT_TRUE(user.get().ok());
  EXPECT_TRUE(transport_.AwaitSent(2)) << "it goes on with what waited";
}

TEST_F(PushPipelineTest, StatesThatCannotBeHadAreAnErrorAndThePipelineGoesOn) {
  Make({}, size_t{1} << 30, absl::Milliseconds(50));
  const absl::Status memory = pipeline_->UseStates(
      [](StateStore&, LevelProbe&) { return absl::ResourceExhaustedError("too large"); });
  EXPECT_EQ(memory, absl::ResourceExhaustedError("too large"));
  ASSERT_TRUE(pipeline_->Submit(Job(Tensor("w", 8))).ok());
  ASSERT_TRUE(transport_.AwaitSent(1));
  const auto never = [](StateStore&, LevelProbe&) {
    ADD_FAILURE() << "an answer is missing";
    return absl::OkStatus();
  };
  EXPECT_TRUE(absl::IsDeadlineExceeded(pipeline_->UseStates(never)));
  pipeline_->Fail(absl::AbortedError("the server died"));
  EXPECT_TRUE(absl::IsAborted(pipeline_->UseStates(never)));
}

TEST_F(PushPipelineTest, AThresholdSaysWhatIsCompressed) {
  Make({.compression = "1bit", .fixed_threshold_bytes = 1024});
  ASSERT_TRUE(pipeline_->Submit(Job(Tensor("below", 255))).ok());
  ASSERT_TRUE(transport_.AwaitSent(1));
  ASSERT_TRUE(pipeline_->Submit(Job(Tensor("at", 256))).ok());
  ASSERT_TRUE(transport_.AwaitSent(2));
  EXPECT_EQ(transport_.header(0).push().items(0).format(), wire::RAW_F32);
  EXPECT_EQ(transport_.header(1).push().items(0).format(), wire::LEVELS);
  EXPECT_LT(transport_.payloads(1)[0].size(), 128u);
}

TEST_F(PushPipelineTest, APartitionsGradBufGoesOnceItIsEncoded) {
  Make({.compression = "1bit", .fixed_threshold_bytes = 0});
  std::promise<void> stands, go;
  transport_.before_send = [&stands, go = go.get_future().share(), first = true]() mutable {
    if (!std::exchange(first, false)) return;
    stands.set_value();
    go.wait();
  };
  // Large enough that the pipeline sends one partition before it encodes the next.
  PushJob job = Job(Tensor("w", 32 * kLargeElements, 2));
  const std::vector<std::weak_ptr<HostBuffer>> bufs(job.grad_bufs.begin(), job.grad_bufs.end());
  ASSERT_TRUE(pipeline_->Submit(std::move(job)).ok());
  stands.get_future().wait();
  EXPECT_TRUE(bufs[0].expired());
  EXPECT_FALSE(bufs[1].expired());
  go.set_value();
  ASSERT_TRUE(transport_.AwaitSent(2));
}

TEST_F(PushPipelineTest, ARawPartitionsGradBufStaysUntilItIsAnswered) {
  Make();
  PushJob job = Job(Tensor("w", kLargeElements));
  const std::weak_ptr<HostBuffer> buf = job.grad_bufs[0];
  ASSERT_TRUE(pipeline_->Submit(std::move(job)).ok());
  ASSERT_TRUE(transport_.AwaitSent(1));
  EXPECT_FALSE(buf.expired());
}

TEST_F(PushPipelineTest, AnIdlePipelinePreparesASmallPushForItsCaller) {
  Make();
  const TensorPlan* tensor = Tensor("w", 4);
  absl::StatusOr<std::optional<OutgoingItem>> item = pipeline_->PrepareNow(Job(tensor));
  ASSERT_TRUE(item.ok()) << item.status();
  ASSERT_TRUE(item->has_value());
  EXPECT_EQ(transport_.sent(), 0u);
  EXPECT_TRUE(absl::IsDeadlineExceeded(pipeline_->Drain(absl::Milliseconds(20))));
  std::vector<OutgoingItem> items;
  items.push_back(**std::move(item));
  courier_.Dispatch(0, std::move(items), 0);
  Answer(0);
  EXPECT_TRUE(pipeline_->Drain(kLong).ok());
  EXPECT_EQ(pipeline_->counts(Key("w")).elements, 4u);
}

TEST_F(PushPipelineTest, NothingIsPreparedOutOfTurn) {
  Make();
  EXPECT_FALSE(pipeline_->PrepareNow(Job(Tensor("large", kLargeElements)))->has_value());
  EXPECT_FALSE(pipeline_->PrepareNow(Job(Tensor("cut", 4, 2)))->has_value());
  std::promise<void> go = HoldUp();
  EXPECT_FALSE(pipeline_->PrepareNow(Job(Tensor("behind", 4)))->has_value());
  go.set_value();
  ASSERT_TRUE(transport_.AwaitSent(1));
}

}  // namespace
}  // namespace slimps
