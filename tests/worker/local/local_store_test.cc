// SPDX-License-Identifier: Apache-2.0
#include "worker/local/local_store.h"

#include <cmath>
#include <stdexcept>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/worker/local/local_store_fixture.h"

namespace slimps {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(LocalStore, IsAJobOfOne) {
  const auto store = Make("local");
  EXPECT_EQ(store->type(), "local");
  EXPECT_EQ(Make("device")->type(), "device");
  EXPECT_EQ(store->rank(), 0);
  EXPECT_EQ(store->num_workers(), 1);
  EXPECT_TRUE(store->is_capable("optimizer"));
  EXPECT_FALSE(store->is_capable("flight"));
  EXPECT_FALSE(store->codec_map().has_value());
  EXPECT_TRUE(store->Barrier().ok());
  EXPECT_TRUE(store->Wait().ok());
  EXPECT_TRUE(store->Leave().ok());
  EXPECT_THAT(store->AllReduceSum({1.5, -2}).value(), ElementsAre(1.5, -2));
}

TEST(LocalStore, WithoutAnOptimizerTheLastPushIsTheValue) {
  const auto store = Make("local");
  ASSERT_TRUE(InitKey(*store, "w", {1, 2}).ok());
  EXPECT_THAT(PullOf(*store, "w", 2), ElementsAre(1, 2));
  ASSERT_TRUE(store->Push("w", Values{5, 6}, 0).ok());
  ASSERT_TRUE(store->Push("w", Values{7, 8}, 0).ok());
  EXPECT_THAT(PullOf(*store, "w", 2), ElementsAre(7, 8));
  ASSERT_TRUE(store->PushNothing("w").ok());
  EXPECT_THAT(PullOf(*store, "w", 2), ElementsAre(0, 0)) << "the sum of no gradients";
}

TEST(LocalStore, AKeyMayHaveHyperparametersOfItsOwn) {
  const auto store = Make("local");
  wire::OptimizerSpec spec = Spec(wire::OptimizerSpec::SGD, 1);
  spec.set_weight_decay(0.5);
  ASSERT_TRUE(InitKey(*store, "a", {8}).ok());
  ASSERT_TRUE(InitKey(*store, "b", {8}).ok());
  ASSERT_TRUE(store->SetOptimizer(spec).ok());
  ASSERT_TRUE(store->SetHyper("a", Hyper{.learning_rate = 0.25}).ok());
  for (const char* key : {"a", "b"}) ASSERT_TRUE(store->Push(key, Values{4}, 0).ok());
  EXPECT_THAT(PullOf(*store, "a", 1), ElementsAre(7));
  EXPECT_THAT(PullOf(*store, "b", 1), ElementsAre(0));
  ASSERT_TRUE(store->SetHyper("a", Hyper{.learning_rate = 0.5, .weight_decay = 2}).ok());
  ASSERT_TRUE(store->Push("a", Values{4}, 0).ok());
  EXPECT_THAT(PullOf(*store, "a", 1), ElementsAre(-2));
  ASSERT_TRUE(store->SetHyper("a", std::nullopt).ok());
  ASSERT_TRUE(store->Push("a", Values{4}, 0).ok());
  EXPECT_THAT(PullOf(*store, "a", 1), ElementsAre(-5));
  EXPECT_EQ(store->SetHyper("c", std::nullopt).code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(store->SetHyper("a", Hyper{.weight_decay = -3}).message()),
              HasSubstr("key s:a: weight_decay: expected at least 0, got -3"));
}

TEST(LocalStore, AKeysMomentumIsUsedIfTheOptimizerHasOne) {
  for (const double own : {0.0, 0.5}) {
    const auto store = Make("local");
    wire::OptimizerSpec spec = Spec(wire::OptimizerSpec::SGD, 1);
    spec.set_momentum(own);
    ASSERT_TRUE(InitKey(*store, "a", {0}).ok());
    ASSERT_TRUE(store->SetOptimizer(spec).ok());
    ASSERT_TRUE(store->SetHyper("a", Hyper{.learning_rate = 1, .momentum = 0.75}).ok());
    ASSERT_TRUE(store->Push("a", Values{4}, 0).ok());
    ASSERT_TRUE(store->Push("a", Values{0}, 0).ok());
    EXPECT_THAT(PullOf(*store, "a", 1), ElementsAre(own == 0 ? -4 : -4 - 0.75f * 4));
  }
}

TEST(LocalStore, AnOptimizerSkipsAPushOfNothing) {
  const auto store = Make("local");
  wire::OptimizerSpec spec = Spec(wire::OptimizerSpec::SGD, 1);
  spec.set_momentum(0.5);
  spec.set_weight_decay(0.5);
  ASSERT_TRUE(InitKey(*store, "w", {8}).ok());
  ASSERT_TRUE(store->SetOptimizer(spec).ok());
  ASSERT_TRUE(store->Push("w", Values{0}, 0).ok());
  EXPECT_THAT(PullOf(*store, "w", 1), ElementsAre(4)) << "decay alone";
  ASSERT_TRUE(store->PushNothing("w").ok());
  EXPECT_THAT(PullOf(*store, "w", 1), ElementsAre(4));
  ASSERT_TRUE(store->Push("w", Values{0}, 0).ok());
  EXPECT_THAT(PullOf(*store, "w", 1), ElementsAre(0)) << "momentum 0.5 * 4 + 0.5 * 4";
  int calls = 0;
  ASSERT_TRUE(store
                  ->SetUpdater([&](const Key&, std::span<const float> gradient, std::span<float>) {
                    calls += gradient[0] == 0 ? 1 : 100;
                  })
                  .ok());
  ASSERT_TRUE(store->PushNothing("w").ok());
  EXPECT_EQ(calls, 0) << "nothing was pushed that an updater could run for";
}

TEST(LocalStore, DevicesAreSummed) {
  const auto store = Make("local");
  ASSERT_TRUE(InitKey(*store, 3, {0, 0}).ok());
  const Values a = {1, 2}, b = {10, 20};
  ASSERT_TRUE(store->PushSum(3, DeviceArrays{a, b, a}, 0).ok());
  EXPECT_THAT(PullOf(*store, 3, 2), ElementsAre(12, 24));
  EXPECT_THAT(a, ElementsAre(1, 2)) << "gradients are the caller's";
}

TEST(LocalStore, TheScaleOfGradientsIsThatOfDistributedStores) {
  const auto store = Make("local", {.grad_scale = 4});
  ASSERT_TRUE(InitKey(*store, "w", {0}).ok());
  const Values a = {1}, b = {2};
  ASSERT_TRUE(store->PushSum("w", DeviceArrays{a, b}, 0).ok());
  EXPECT_THAT(PullOf(*store, "w", 1), ElementsAre(12));
  ASSERT_TRUE(store->Push("w", a, 0).ok());
  EXPECT_THAT(PullOf(*store, "w", 1), ElementsAre(4));
  const absl::Status refused = store->Push("w", Values{2e38f}, 0);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("is 2e+38, times 4 not finite"));
}

TEST(LocalStore, PushPullReadsBeforeItWritesAndBroadcastIsInitAndPull) {
  const auto store = Make("local");
  Values w = {1, 2};
  Values out(2);
  ASSERT_TRUE(store->Broadcast({.key = "w", .shape = {2}, .value = w}, out).ok());
  EXPECT_EQ(out, w);
  ASSERT_TRUE(store->SetUpdater(Add).ok());
  ASSERT_TRUE(store->PushPull("w", w, w, 0).ok()) << "in place";
  EXPECT_THAT(w, ElementsAre(2, 4));
  absl::Status told = absl::UnknownError("nobody called");
  store->PullAsync("w", out, 0, [&](absl::Status status) { told = status; });
  EXPECT_TRUE(told.ok()) << told;
  EXPECT_THAT(out, ElementsAre(2, 4));
  EXPECT_EQ(store->PushPull("w", w, std::span<float>(out).first(1), 0).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(PullOf(*store, "w", 2), ElementsAre(2, 4)) << "refused before it was pushed";
}

TEST(LocalStore, AnUpdaterRunsOncePerPushWithTheSumAndTheKey) {
  const auto store = Make("local");
  ASSERT_TRUE(InitKey(*store, "a", {100}).ok());
  ASSERT_TRUE(InitKey(*store, "b", {200}).ok());
  std::vector<std::pair<std::string, float>> calls;
  ASSERT_TRUE(store
                  ->SetUpdater([&](const Key& key, std::span<const float> gradient,
                                   std::span<float> weight) {
                    calls.emplace_back(key.typed_name(), gradient[0]);
                    weight[0] -= gradient[0] / 2;
                  })
                  .ok());
  const Values one = {1}, two = {2};
  ASSERT_TRUE(store->PushSum("a", DeviceArrays{one, two, one}, 0).ok());
  ASSERT_TRUE(store->Push("b", two, 0).ok());
  using Call = std::pair<std::string, float>;
  EXPECT_THAT(calls, ElementsAre(Call("s:a", 4), Call("s:b", 2)));
  EXPECT_THAT(PullOf(*store, "a", 1), ElementsAre(98));
  EXPECT_THAT(PullOf(*store, "b", 1), ElementsAre(199));
  ASSERT_TRUE(store->SetUpdater(nullptr).ok());
  ASSERT_TRUE(store->Push("a", one, 0).ok());
  EXPECT_THAT(PullOf(*store, "a", 1), ElementsAre(1)) << "pushes replace again";
}

TEST(LocalStore, WhatAnUpdaterThrowsLeavesThePushAndTheStoreGoesOn) {
  const auto store = Make("local");
  ASSERT_TRUE(InitKey(*store, "w", {1}).ok());
  ASSERT_TRUE(store
                  ->SetUpdater([](const Key&, std::span<const float>, std::span<float>) {
                    throw std::runtime_error("no");
                  })
                  .ok());
  EXPECT_THROW((void)store->Push("w", Values{1}, 0), std::runtime_error);
  ASSERT_TRUE(store->SetUpdater(Add).ok());
  ASSERT_TRUE(store->Push("w", Values{1}, 0).ok());
  EXPECT_THAT(PullOf(*store, "w", 1), ElementsAre(2));
}

TEST(LocalStore, TheRuleSetLastIsInForce) {
  const auto store = Make("local");
  ASSERT_TRUE(InitKey(*store, "w", {0}).ok());
  ASSERT_TRUE(store->SetUpdater(Add).ok());
  ASSERT_TRUE(store->SetOptimizer(Spec(wire::OptimizerSpec::SGD, 1)).ok());
  ASSERT_TRUE(store->Push("w", Values{3}, 0).ok());
  EXPECT_THAT(PullOf(*store, "w", 1), ElementsAre(-3));
  ASSERT_TRUE(store->SetUpdater(Add).ok());
  ASSERT_TRUE(store->Push("w", Values{3}, 0).ok());
  EXPECT_THAT(PullOf(*store, "w", 1), ElementsAre(0));
  wire::OptimizerSpec test = Spec(wire::OptimizerSpec::TEST);
  test.set_rescale_grad(2);
  ASSERT_TRUE(store->SetOptimizer(test).ok());
  ASSERT_TRUE(store->Push("w", Values{3}, 0).ok());
  EXPECT_THAT(PullOf(*store, "w", 1), ElementsAre(6));
}

TEST(LocalStore, AnOptimizerOfTheSameKindKeepsItsStateAndAnotherBeginsAnew) {
  const auto store = Make("local");
  ASSERT_TRUE(InitKey(*store, "w", {0}).ok());
  wire::OptimizerSpec momentum = Spec(wire::OptimizerSpec::SGD, 1);
  momentum.set_momentum(0.5);
  ASSERT_TRUE(store->SetOptimizer(momentum).ok());
  ASSERT_TRUE(store->Push("w", Values{-1}, 0).ok());  // buf -1, w 1
  momentum.set_learning_rate(10);
  ASSERT_TRUE(store->SetOptimizer(momentum).ok());
  ASSERT_TRUE(store->Push("w", Values{-1}, 0).ok());  // buf -1.5
  EXPECT_THAT(PullOf(*store, "w", 1), ElementsAre(16));
  ASSERT_TRUE(store->SetOptimizer(Spec(wire::OptimizerSpec::TEST)).ok());
  ASSERT_TRUE(store->Push("w", Values{0}, 0).ok());
  ASSERT_TRUE(store->SetOptimizer(momentum).ok());
  ASSERT_TRUE(store->Push("w", Values{-1}, 0).ok());  // buf -1
  EXPECT_THAT(PullOf(*store, "w", 1), ElementsAre(26));
}

TEST(LocalStore, TheLearningRateFollowsItsSchedule) {
  const auto store = Make("local");
  ASSERT_TRUE(InitKey(*store, "w", {0}).ok());
  wire::OptimizerSpec sgd = Spec(wire::OptimizerSpec::SGD, 8);
  sgd.mutable_schedule()->set_kind(wire::LearningRateSchedule::STEP);
  sgd.mutable_schedule()->set_every(2);
  sgd.mutable_schedule()->set_factor(0.5);
  ASSERT_TRUE(store->SetOptimizer(sgd).ok());
  for (const float expected : {8, 16, 20, 24, 26}) {
    ASSERT_TRUE(store->Push("w", Values{-1}, 0).ok());
    EXPECT_THAT(PullOf(*store, "w", 1), ElementsAre(expected));
  }
}

TEST(LocalStore, HalfPrecisionIsPulledAsSuchAndKeptInFull) {
  const auto store = Make("local");
  const float fine = 1.0f + 1.0f / 4096;
  ASSERT_TRUE(InitKey(*store, "h", {fine, 2}, wire::FLOAT16).ok());
  ASSERT_TRUE(InitKey(*store, "b", {fine, 2}, wire::BFLOAT16).ok());
  EXPECT_THAT(PullOf(*store, "h", 2), ElementsAre(1, 2));
  EXPECT_THAT(PullOf(*store, "b", 2), ElementsAre(1, 2));
  ASSERT_TRUE(store->SetUpdater(Add).ok());
  ASSERT_TRUE(store->Push("h", Values{fine, 70000}, 0).ok());
  EXPECT_THAT(PullOf(*store, "h", 2), ElementsAre(2 * fine, 70002)) << "more than fp16 holds";
}

TEST(LocalStore, BadArgumentsAreRefusedAndChangeNothing) {
  const auto store = Make("local");
  ASSERT_TRUE(InitKey(*store, "w", {1, 2}).ok());
  Values out(2);
  EXPECT_EQ(store->Push("v", out, 0), absl::NotFoundError("key s:v was never initialised"));
  EXPECT_EQ(store->Pull("v", out, 0), absl::NotFoundError("key s:v was never initialised"));
  EXPECT_EQ(store->PushNothing("v").code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(store->PushPull("v", out, out, 0).code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(InitKey(*store, "w", {1, 2}),
            absl::AlreadyExistsError("key s:w was initialised before"));
  EXPECT_THAT(std::string(InitKey(*store, 5, {1}).message()), HasSubstr("of another kind"));
  EXPECT_EQ(store->Push("w", Values{1}, 0),
            absl::InvalidArgumentError("push of key s:w: expected 2 elements, got 1"));
  EXPECT_EQ(store->Pull("w", std::span<float>(out).first(1), 0).code(),
            absl::StatusCode::kInvalidArgument);
  for (const float bad : {kInfinity, -kInfinity, std::nanf("")}) {
    const absl::Status refused = store->Push("w", Values{9, bad}, 0);
    EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(refused.message()), HasSubstr("push of key s:w: element 1 is "));
  }
  const Values large = {3e38f, 0}, one = {1};
  EXPECT_THAT(std::string(store->PushSum("w", DeviceArrays{large, large}, 0).message()),
              HasSubstr("sum of the push of key s:w: element 0 is inf"));
  EXPECT_EQ(store->PushSum("w", DeviceArrays{large, one}, 0),
            absl::InvalidArgumentError(
                "push of key s:w: device 1 has 1 elements, expected 2 as device 0 has"));
  EXPECT_THAT(std::string(store->PushSum("w", {}, 0).message()), HasSubstr("at least one device"));
  EXPECT_EQ(store->SetOptimizer(Spec(wire::OptimizerSpec::SGD, -1)),
            absl::InvalidArgumentError("learning_rate: expected at least 0, got -1"));
  EXPECT_THAT(PullOf(*store, "w", 2), ElementsAre(1, 2));
}

TEST(LocalStore, AnInitIsTakenWholeOrNotAtAll) {
  const auto store = Make("local");
  const Values one = {1}, bad = {NAN};
  const auto tensor = [](const Key& key, const Values& value, int64_t extent) {
    return InitTensor{.key = key, .shape = {extent}, .value = value};
  };
  const auto message = [&](const std::vector<InitTensor>& tensors) {
    return std::string(store->Init(tensors).message());
  };
  EXPECT_THAT(message({tensor("a", one, 1), tensor("a", one, 1)}),
              HasSubstr("names key s:a twice"));
  EXPECT_THAT(message({tensor("a", one, 1), tensor(1, one, 1)}), HasSubstr("a store has one kind"));
  EXPECT_THAT(message({tensor("a", one, 1), tensor("b", bad, 1)}),
              HasSubstr("initial value of key s:b: element 0 is nan"));
  EXPECT_THAT(message({tensor("a", one, 1), tensor("b", one, -1)}),
              HasSubstr("init of key s:b: shape [-1]: expected 1 to "));
  EXPECT_THAT(message({tensor("a", one, 1), tensor("b", one, 2)}),
              HasSubstr("initial value of key s:b: expected 2 elements, got 1"));
  const InitTensor huge{.key = "h", .shape = {int64_t{1} << 40, int64_t{1} << 40}, .value = one};
  EXPECT_THAT(message({tensor("a", one, 1), huge}), HasSubstr("key s:h: shape [10995"));
  EXPECT_THAT(message({tensor("a", one, 1), {.key = "none", .shape = {0, 7}}}),
              HasSubstr("key s:none: shape [0, 7]: expected 1 to "));
  EXPECT_TRUE(store->Init({tensor("a", one, 1)}).ok()) << "no refused call added it";
}

TEST(LocalStore, AfterItsEndNothingGoes) {
  const auto store = Make("local");
  Values w = {1};
  ASSERT_TRUE(InitKey(*store, "w", w).ok());
  EXPECT_TRUE(store->Close().ok());
  EXPECT_TRUE(store->Close().ok());
  const absl::Status closed = absl::FailedPreconditionError("the store was closed");
  EXPECT_EQ(store->Push("w", w, 0), closed);
  EXPECT_EQ(store->Pull("w", w, 0), closed);
  EXPECT_EQ(InitKey(*store, "v", w), closed);
  EXPECT_EQ(store->Barrier(), closed);
  EXPECT_EQ(store->SetOptimizer({}), closed);
  EXPECT_EQ(store->AllReduceSum({1}).status(), closed);
  const auto other = Make("local");
  other->Abort(absl::DataLossError("disk"));
  EXPECT_EQ(other->Wait(), absl::DataLossError("disk"));
}

}  // namespace
}  // namespace slimps
