// SPDX-License-Identifier: Apache-2.0
// One worker pulls what the servers' optimizer keeps, without the others. All of them put it back.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <string>
#include <vector>

#include "absl/synchronization/notification.h"
#include "tests/cluster/hooked_transport.h"
#include "tests/cluster/in_process_cluster.h"
#include "tests/cluster/random_values.h"

namespace slimps {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;

constexpr size_t kElements = 60;
const std::vector<Key> kKeys = {Key("a"), Key("b")};

wire::OptimizerSpec Adam() {
  wire::OptimizerSpec spec;
  spec.set_kind(wire::OptimizerSpec::ADAM);
  spec.set_learning_rate(0.1);
  spec.set_beta1(0.5);
  spec.set_beta2(0.75);
  spec.set_epsilon(1e-8);
  return spec;
}

ClusterOptions Cluster(std::vector<SendHook> hooks = {}, wire::StoreMode mode = wire::DIST_SYNC) {
  ClusterOptions options{
      .workers = 2, .servers = 2, .mode = mode, .wrap = Hooked(std::move(hooks))};
  options.store.partition_bytes = 100;
  return options;
}

void Begin(KVStore& store) {
  for (const Key& key : kKeys) {
    ASSERT_STATUS_OK(
        store.Init({{.key = key, .shape = {kElements}, .value = std::vector<float>(kElements)}}));
  }
  ASSERT_STATUS_OK(store.SetOptimizer(Adam()));
  ASSERT_STATUS_OK(store.Barrier());
}

void PushAll(KVStore& store, float value = 1) {
  for (const Key& key : kKeys) {
    ASSERT_STATUS_OK(store.Push(key, std::vector<float>(kElements, value), 0));
  }
}

// States with memory of their own.
struct Own {
  explicit Own(float value = 9, uint64_t updates = 0) {
    for (size_t i = 0; i < kKeys.size(); ++i) {
      for (size_t number = 0; number < 2; ++number) {
        memory[i][number].assign(kElements, value);
        states[i].tensors[number] = memory[i][number];
      }
      states[i].count = 2;
      states[i].updates = updates;
    }
  }
  std::array<std::array<std::vector<float>, 2>, 2> memory;
  std::vector<LentOptimizerState> states = std::vector<LentOptimizerState>(kKeys.size());
};

TEST(LentStates, AWorkerPullsThoseOfItsRoundWhileTheOtherGoesOn) {
  absl::Notification pushed_on;
  InProcessCluster cluster(Cluster());
  cluster.RunWorkers([&](KVStore& store) {
    Begin(store);
    PushAll(store);
    PushAll(store);
    if (store.rank() == 1) {
      PushAll(store, 100);  // the third round lacks the other's push
      ASSERT_STATUS_OK(store.Wait());
      pushed_on.Notify();
      return;
    }
    pushed_on.WaitForNotification();
    Own own;
    ASSERT_STATUS_OK(store.PullOptimizerStates(kKeys, own.states));
    for (const LentOptimizerState& state : own.states) {
      EXPECT_EQ(state.count, 2u);
      EXPECT_EQ(state.updates, 2u);
      EXPECT_EQ(state.round, 2u);
      EXPECT_THAT(state.tensors[0], Each(1.5f));  // of gradients 2 and 2
      EXPECT_THAT(state.tensors[1], Each(1.75f));
    }
    PushAll(store, 100);
  });
}

TEST(LentStates, RankZerosArePutOnServersAndOthersBringNone) {
  InProcessCluster cluster(Cluster());
  cluster.RunWorkers([&](KVStore& store) {
    Begin(store);
    Own own(/*value=*/7, /*updates=*/41);
    own.memory[1][0].assign(kElements, 0);
    const bool leads = store.rank() == 0;
    ASSERT_STATUS_OK(store.PutOptimizerStates(
        kKeys, leads ? own.states : std::vector<LentOptimizerState>(), absl::OkStatus()));
    Own found;
    ASSERT_STATUS_OK(store.PullOptimizerStates(kKeys, found.states));
    EXPECT_EQ(found.memory, own.memory);
    EXPECT_EQ(found.states[0].updates, 41u);
    EXPECT_EQ(found.states[0].round, 0u);
    // Some keys alone, and nothing but their description.
    std::vector<LentOptimizerState> bare(1);
    ASSERT_STATUS_OK(store.PullOptimizerStates({&kKeys[1], 1}, bare));
    EXPECT_EQ(bare[0].count, 2u);
    EXPECT_EQ(bare[0].updates, 41u);
  });
}

TEST(LentStates, ZerosTakeNoBytesOnTheWayThereAndBack) {
  std::atomic<size_t> bytes = 0;
  const auto count = [&bytes](const Message& message) {
    if (message.header.init().items_size() > 0 && message.header.init().items(0).has_state()) {
      for (const wire::InitItem& item : message.header.init().items()) {
        bytes += item.payload_bytes();
      }
    }
    return absl::OkStatus();
  };
  InProcessCluster cluster(Cluster({count, nullptr}));
  cluster.RunWorkers([&](KVStore& store) {
    Begin(store);
    const uint64_t before = store.totals().bytes_pulled;
    Own own;
    ASSERT_STATUS_OK(store.PullOptimizerStates(kKeys, own.states));
    for (const auto& of_key : own.memory) EXPECT_THAT(of_key, Each(Each(0.0f)));
    ASSERT_STATUS_OK(store.PutOptimizerStates(kKeys, own.states, absl::OkStatus()));
    EXPECT_EQ(store.totals().bytes_pulled, before);
  });
  EXPECT_EQ(bytes, 0u);
}

TEST(LentStates, AWorkerThatHasLeftPullsThoseOfOneRound) {
  InProcessCluster cluster(Cluster());
  cluster.RunWorkers([&](KVStore& store) {
    Begin(store);
    PushAll(store);
    if (store.rank() == 1) ASSERT_STATUS_OK(store.Leave());
    ASSERT_STATUS_OK(store.Barrier());
    if (store.rank() == 0) PushAll(store);
    if (store.rank() == 0) ASSERT_STATUS_OK(store.Wait());
    ASSERT_STATUS_OK(store.Barrier());
    Own own;
    ASSERT_STATUS_OK(store.PullOptimizerStates(kKeys, own.states));
    for (const LentOptimizerState& state : own.states) EXPECT_EQ(state.round, 2u);
  });
}

TEST(LentStates, WithoutRoundsTheyHaveTheWorkersOwnPushes) {
  InProcessCluster cluster(Cluster({}, wire::DIST_ASYNC));
  cluster.RunWorkers([&](KVStore& store) {
    Begin(store);
    PushAll(store);
    Own own;
    ASSERT_STATUS_OK(store.PullOptimizerStates(kKeys, own.states));
    for (const LentOptimizerState& state : own.states) {
      EXPECT_GE(state.updates, 1u);
      EXPECT_LE(state.updates, 2u);
    }
    ASSERT_STATUS_OK(store.Barrier());
  });
}

TEST(LentStates, WhatDoesNotFitIsRefusedOnAllWorkersAndChangesNothing) {
  InProcessCluster cluster(Cluster());
  cluster.RunWorkers([&](KVStore& store) {
    Begin(store);
    PushAll(store);
    Own before;
    ASSERT_STATUS_OK(store.PullOptimizerStates(kKeys, before.states));
    const bool leads = store.rank() == 0;
    const auto refuse = [&](std::vector<LentOptimizerState> states, const std::string& why) {
      const absl::Status status = store.PutOptimizerStates(kKeys, states, absl::OkStatus());
      EXPECT_FALSE(status.ok());
      if (leads) {
        EXPECT_THAT(std::string(status.message()), HasSubstr(why));
      } else {
        EXPECT_EQ(status.code(), absl::StatusCode::kAborted) << status;
      }
    };
    std::vector<LentOptimizerState> bad = Own().states;
    std::vector<float> shorter(kElements - 1);
    bad[1].tensors[0] = shorter;
    refuse(bad, "optimizer state of key s:b: expected 60 elements, got 59");
    bad = before.states;
    for (LentOptimizerState& state : bad) state.count = 1;
    refuse(bad,
           "expected those of ADAM with 2 state tensors, as the store has it, got ADAM with 1");
    bad[0].count = 2;
    bad[0].tensors[1] = {};
    refuse(bad, "key s:a: tensor 2 is missing");
    refuse({before.states[0]}, "expected those of 2 keys, got 1");
    const absl::Status mine = leads ? absl::OkStatus() : absl::DataLossError("unreadable");
    const absl::Status mixed = store.PutOptimizerStates(kKeys, before.states, mine);
    EXPECT_EQ(mixed.code(), leads ? absl::StatusCode::kAborted : absl::StatusCode::kDataLoss);
    const std::vector<Key> unknown = {Key("c")};
    std::vector<LentOptimizerState> one(1);
    EXPECT_TRUE(absl::IsNotFound(store.PullOptimizerStates(unknown, one)));
    Own after;
    ASSERT_STATUS_OK(store.PullOptimizerStates(kKeys, after.states));
    EXPECT_EQ(after.memory, before.memory);
  });
}

TEST(LentStates, WithoutAnOptimizerThereAreNone) {
  InProcessCluster cluster(Cluster());
  cluster.RunWorkers([&](KVStore& store) {
    ASSERT_STATUS_OK(
        store.Init({{.key = "a", .shape = {kElements}, .value = std::vector<float>(kElements)}}));
    std::vector<LentOptimizerState> one(1);
    const absl::Status refused = store.PullOptimizerStates({kKeys.data(), 1}, one);
    EXPECT_TRUE(absl::IsFailedPrecondition(refused)) << refused;
    EXPECT_THAT(std::string(refused.message()), HasSubstr("expected an optimizer"));
    ASSERT_STATUS_OK(store.Barrier());
  });
}

}  // namespace
}  // namespace slimps
