// SPDX-License-Identifier: Apache-2.0
// A server that takes snapshots is gone without warning, and another one goes on from them, with
// what the workers send again. Frames are built and parsed.
#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "proto/status_proto.h"
#include "tests/server/service/snapshots_fixture.h"

namespace slimps {
namespace {

struct Tensor {
  std::string key;
  size_t elements = 0;
  std::string codec;  // of pulls
};

// Workers that keep what is not durable, and send it again to a server that has come back.
class RecoveryTest : public SnapshotsTest, public ::testing::WithParamInterface<wire::StoreMode> {
 protected:
  static constexpr uint64_t kRounds = 12;
  const std::vector<Tensor> tensors_ = {
      {"a", 5000, GetParam() == wire::DIST_SYNC ? "1bit" : ""}, {"b", 3, ""}, {"c", 600, ""}};

  // Sends a push or an Init, and forgets what is durable.
  void Send(const Tensor& tensor, uint32_t worker, uint64_t round) {
    const wire::ItemStatus status =
        round == 0 ? StatusOf(InitOf(tensor.key, tensor.elements, GetParam()))
                   : StatusOf(PushOf(worker, tensor.key, round, tensor.elements, tensor.codec));
    ASSERT_EQ(FromStatusProto(status.status()), absl::OkStatus());
    ASSERT_TRUE(status.has_durable());
    uint64_t& durable = durable_[{tensor.key, worker}];
    durable = std::max(durable, status.durable());
  }

  // Sends all up to `round` of the last tensor and worker that may be lost.
  void SendAgain(const std::map<std::pair<std::string, uint32_t>, uint64_t>& sent) {
    for (const Tensor& tensor : tensors_) {
      for (uint64_t round = 0; round <= kRounds; ++round) {
        for (uint32_t worker = 0; worker < kWorkers; ++worker) {
          if (round == 0 && worker != 0) continue;
          const auto found = sent.find({tensor.key, worker});
          if (found == sent.end() || round > found->second) continue;
          const uint64_t durable = durable_[{tensor.key, worker}];
          if (durable > round) continue;  // 0: not even the Init; n + 1: rounds up to n
          Send(tensor, worker, round);
        }
      }
    }
  }

  // Runs the job. Returns all that workers pulled.
  std::vector<std::string> Train(uint64_t seed) {
    std::mt19937_64 random(seed);
    std::vector<std::string> pulled;
    std::map<std::pair<std::string, uint32_t>, uint64_t> sent;
    const auto happens = [&] {
      if (seed == 0) return;
      if (random() % 4 == 0) {
        EXPECT_EQ(Persist(), absl::OkStatus());
      }
      if (random() % 5 != 0) return;
      server_.reset();
      ++crashes_;
      if (random() % 2 == 0 && DamageNewest()) ++damaged_;
      ASSERT_EQ(StartServer(), absl::OkStatus());
      ASSERT_TRUE(restored_);
      SendAgain(sent);
    };
    EXPECT_EQ(StartServer(), absl::OkStatus());
    EXPECT_EQ(SetOptimizer(SgdSpec(0.1, 0.9), GetParam()), absl::OkStatus());
    EXPECT_EQ(Persist(), absl::OkStatus());
    EXPECT_EQ(Persist(), absl::OkStatus());  // in both that are kept
    for (uint64_t round = 0; round <= kRounds; ++round) {
      for (const Tensor& tensor : tensors_) {
        for (uint32_t worker = 0; worker < (round == 0 ? 1 : kWorkers); ++worker) {
          Send(tensor, worker, round);
          sent[{tensor.key, worker}] = round;
          happens();
        }
        const uint64_t version = GetParam() == wire::DIST_SYNC ? round : round * kWorkers;
        for (uint32_t worker = 0; worker < kWorkers; ++worker) {
          pulled.push_back(Pulled(worker, tensor.key, version, tensor.elements));
          happens();
        }
        // A late pull.
        if (round > 0 && GetParam() == wire::DIST_SYNC) {
          pulled.push_back(Pulled(0, tensor.key, round - 1, tensor.elements));
        }
      }
    }
    server_.reset();
    std::filesystem::remove_all(root_.path() + "/job");
    durable_.clear();
    return pulled;
  }

  std::map<std::pair<std::string, uint32_t>, uint64_t> durable_;  // the newest word of it
  int crashes_ = 0, damaged_ = 0;
};

TEST_P(RecoveryTest, EachPullIsWhatItIsWithoutAFailure) {
  const std::vector<std::string> calm = Train(0);
  for (uint64_t seed = 1; seed <= 4; ++seed) {
    SCOPED_TRACE(seed);
    EXPECT_EQ(Train(seed), calm);
    if (HasFatalFailure()) return;
  }
  EXPECT_GT(crashes_, 15);
  EXPECT_GT(damaged_, 3);
}

INSTANTIATE_TEST_SUITE_P(Modes, RecoveryTest, ::testing::Values(wire::DIST_SYNC, wire::DIST_ASYNC),
                         [](const auto& info) { return wire::StoreMode_Name(info.param); });

}  // namespace
}  // namespace slimps
