// SPDX-License-Identifier: Apache-2.0
// Broadcasts of bytes over whole clusters: only what differs travels, and nothing stays.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <random>
#include <string>
#include <vector>

#include "tests/cluster/hooked_transport.h"
#include "tests/cluster/in_process_cluster.h"

namespace slimps {
namespace {

using ::testing::HasSubstr;

std::vector<std::byte> RandomBytes(size_t bytes, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<std::byte> made(bytes);
  for (std::byte& one : made) one = static_cast<std::byte>(random());
  return made;
}

using Buffers = std::vector<std::vector<std::byte>>;

// Returns buffers of these sizes: the seeds of all but the odd ones are equal on all workers.
Buffers Make(const std::vector<size_t>& sizes, uint32_t worker) {
  Buffers made;
  for (size_t i = 0; i < sizes.size(); ++i) {
    made.push_back(
        RandomBytes(sizes[i], static_cast<uint32_t>(i) + (i % 2 == 0 ? 0 : 100 * worker)));
  }
  return made;
}

absl::StatusOr<std::vector<bool>> Broadcast(KVStore& store, Buffers& buffers) {
  std::vector<std::span<std::byte>> spans(buffers.begin(), buffers.end());
  return store.BroadcastBytes(spans);
}

// Over a chunk, of no bytes, and odd sizes.
const std::vector<size_t> kSizes = {1000, 3 << 20, 5, 777, 0, 0, 1 << 20, (1 << 20) + 1};

// Broadcasts three times, the last time what is equal.
void BroadcastThrice(KVStore& store) {
  for (const uint32_t offset : {0, 10}) {
    Buffers buffers = Make(kSizes, store.rank() + offset);
    const auto written = Broadcast(store, buffers);
    ASSERT_STATUS_OK(written.status());
    EXPECT_EQ(buffers, Make(kSizes, offset));
    for (size_t i = 0; i < kSizes.size(); ++i) {
      EXPECT_EQ((*written)[i], store.rank() > 0 && i % 2 == 1 && kSizes[i] > 0) << i;
    }
  }
  Buffers equal = Make(kSizes, 0);
  const auto written = Broadcast(store, equal);
  ASSERT_STATUS_OK(written.status());
  EXPECT_EQ(*written, std::vector<bool>(kSizes.size()));
}

TEST(ByteBroadcast, AllWorkersGetWhatDiffersFromRankZero) {
  for (const uint32_t servers : {1, 3}) {
    InProcessCluster cluster({.workers = 3, .servers = servers});
    cluster.RunWorkers(BroadcastThrice);
  }
}

TEST(ByteBroadcast, LostAndRepeatedMessagesDoNoHarm) {
  ClusterOptions options{.workers = 3, .servers = 2};
  options.store.retry_interval = absl::Milliseconds(20);
  options.worker_faults = options.server_faults = {.seed = 5, .drop = 0.1, .duplicate = 0.1};
  InProcessCluster cluster(options);
  cluster.RunWorkers(BroadcastThrice);
}

TEST(ByteBroadcast, OnlyWhatDiffersTravels) {
  std::atomic<int> relays = 0;
  const SendHook count = [&](const Message& message) {
    if (message.header.has_relay()) ++relays;
    return absl::OkStatus();
  };
  InProcessCluster cluster({.workers = 2, .servers = 1, .wrap = Hooked({count, count})});
  cluster.RunWorkers([&](KVStore& store) {
    Buffers equal = Make({4 << 20, 100}, 0);
    ASSERT_STATUS_OK(Broadcast(store, equal).status());
    EXPECT_EQ(relays, 0);
    ASSERT_STATUS_OK(store.Barrier());
    Buffers differ = Make({4 << 20, 100}, store.rank());
    ASSERT_STATUS_OK(Broadcast(store, differ).status());
    ASSERT_STATUS_OK(store.Barrier());
    EXPECT_EQ(relays, 3) << "one chunk for the second buffer: given, taken, and the end";
  });
}

TEST(ByteBroadcast, OtherSizesAreRefusedOnAllWorkers) {
  InProcessCluster cluster({.workers = 2, .servers = 1});
  cluster.RunWorkers([](KVStore& store) {
    Buffers buffers = Make({8, store.rank() == 0 ? 16u : 17u}, 0);
    const absl::Status refused = Broadcast(store, buffers).status();
    EXPECT_THAT(std::string(refused.message()),
                HasSubstr(store.rank() == 0
                              ? "1 other workers have buffers of other sizes"
                              : "buffer 1 of worker 1: expected 16 bytes as on worker 0, got 17"));
  });
}

}  // namespace
}  // namespace slimps
