// SPDX-License-Identifier: Apache-2.0
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/worker/local/local_store_fixture.h"
#include "worker/saved/optimizer_states.h"

namespace slimps {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::unique_ptr<KVStore> MakeStepping(const wire::OptimizerSpec& spec) {
  auto store = Make("local");
  EXPECT_TRUE(InitKey(*store, "a", {1, 2, 3}).ok());
  EXPECT_TRUE(InitKey(*store, "b", {4}).ok());
  EXPECT_TRUE(store->SetOptimizer(spec).ok());
  return store;
}

wire::OptimizerSpec Momentum(double momentum) {
  wire::OptimizerSpec spec = Spec(wire::OptimizerSpec::SGD, 1);
  spec.set_momentum(momentum);
  return spec;
}

std::vector<wire::OptimizerSpec> Specs() {
  wire::OptimizerSpec adam = Spec(wire::OptimizerSpec::ADAM, 0.1);
  adam.set_beta1(0.9);
  adam.set_beta2(0.999);
  adam.set_epsilon(1e-8);
  return {Momentum(0), Momentum(0.5), adam};
}

// A store steps twice, saves, and steps once more. Another store with those weights and that state
// takes the same third step.
TEST(LocalStates, AStoreThatWasSavedGoesOnBitForBit) {
  for (const wire::OptimizerSpec& spec : Specs()) {
    const auto store = MakeStepping(spec);
    for (const float gradient : {1.0f, -3.0f}) {
      ASSERT_TRUE(store->Push("a", Values{gradient, 2, 0.25f}, 0).ok());
    }
    const auto saved = store->SaveOptimizerStates();
    ASSERT_TRUE(saved.ok()) << saved.status();
    const Values weights = PullOf(*store, "a", 3);
    const auto other = Make("device");
    ASSERT_TRUE(InitKey(*other, "a", weights).ok());
    ASSERT_TRUE(InitKey(*other, "b", {4}).ok());
    ASSERT_TRUE(other->SetOptimizer(spec).ok());
    const absl::Status loaded = other->LoadOptimizerStates(*saved);
    ASSERT_TRUE(loaded.ok()) << loaded;
    EXPECT_EQ(*saved, *other->SaveOptimizerStates());
    for (KVStore* one : {store.get(), other.get()}) {
      ASSERT_TRUE(one->Push("a", Values{0.5f, 0.5f, 0.5f}, 0).ok());
      ASSERT_TRUE(one->Push("b", Values{2}, 0).ok());
    }
    EXPECT_EQ(PullOf(*store, "a", 3), PullOf(*other, "a", 3)) << spec.ShortDebugString();
    EXPECT_EQ(PullOf(*store, "b", 1), PullOf(*other, "b", 1)) << spec.ShortDebugString();
  }
}

TEST(LocalStates, AreWhatTheOptimizerKeeps) {
  const auto store = MakeStepping(Momentum(0.5));
  ASSERT_TRUE(store->Push("a", Values{1, 2, 3}, 0).ok());
  ASSERT_TRUE(store->Push("a", Values{1, 0, 0}, 0).ok());
  const auto states = ParseOptimizerStates(*store->SaveOptimizerStates());
  ASSERT_TRUE(states.ok()) << states.status();
  EXPECT_EQ(states->kind, wire::OptimizerSpec::SGD);
  EXPECT_EQ(states->keys.at("s:a").updates, 2);
  EXPECT_THAT(states->keys.at("s:a").tensors, ElementsAre(ElementsAre(1.5f, 1, 1.5f)));
  EXPECT_EQ(states->keys.at("s:b").updates, 0);
  EXPECT_THAT(states->keys.at("s:b").tensors, ElementsAre(ElementsAre(0)));
}

TEST(LocalStates, OfSomethingElseAreRefusedAndChangeNothing) {
  const auto store = MakeStepping(Momentum(0.5));
  ASSERT_TRUE(store->Push("a", Values{1, 2, 3}, 0).ok());
  const std::string saved = *store->SaveOptimizerStates();
  const auto expect = [&](const std::string& content, absl::StatusCode code, const char* message) {
    const absl::Status loaded = store->LoadOptimizerStates(content);
    EXPECT_EQ(loaded.code(), code) << loaded;
    EXPECT_THAT(std::string(loaded.message()), HasSubstr(message));
    EXPECT_EQ(saved, *store->SaveOptimizerStates());
  };
  expect(saved.substr(0, saved.size() - 1), absl::StatusCode::kDataLoss, "");
  expect(*MakeStepping(Momentum(0))->SaveOptimizerStates(), absl::StatusCode::kFailedPrecondition,
         "expected those of SGD with 1 state tensors, as the store has it, got SGD with 0");
  OptimizerStates states = *ParseOptimizerStates(saved);
  states.keys.at("s:b") = {.elements = 2, .updates = 0, .tensors = {{0, 0}}};
  expect(BuildOptimizerStates(states), absl::StatusCode::kInvalidArgument,
         "key s:b: expected 1 elements, got 2");
  states.keys.erase("s:b");
  expect(BuildOptimizerStates(states), absl::StatusCode::kInvalidArgument,
         "key s:b is not in them");
}

TEST(LocalStates, NeedAnOptimizer) {
  const auto store = Make("local");
  ASSERT_TRUE(InitKey(*store, "a", {1}).ok());
  EXPECT_EQ(store->SaveOptimizerStates().status().code(), absl::StatusCode::kFailedPrecondition);
  ASSERT_TRUE(store->SetUpdater(Add).ok());
  const absl::Status loaded = store->LoadOptimizerStates("");
  EXPECT_EQ(loaded.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(loaded.message()), HasSubstr("got an updater, whose state is its own"));
}

TEST(LocalFigures, AnUpdaterMayAskWhatWasCounted) {
  const auto store = Make("local");
  ASSERT_TRUE(InitKey(*store, "w", {1}).ok());
  uint64_t elements = 1;
  ASSERT_TRUE(store
                  ->SetUpdater([&](const Key& key, std::span<const float>, std::span<float>) {
                    elements = store->totals().pushed.elements + store->push_counts(key).elements;
                  })
                  .ok());
  ASSERT_TRUE(store->Push("w", Values{1}, 0).ok());
  EXPECT_EQ(elements, 0);
}

}  // namespace
}  // namespace slimps
