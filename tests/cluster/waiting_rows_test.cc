// SPDX-License-Identifier: Apache-2.0
// Pulls of many rows of a round that is not complete yet. They wait at the server, and no worker
// asks twice.
#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "proto/base/mutex.h"
#include "tests/cluster/hooked_transport.h"
#include "tests/cluster/in_process_cluster.h"

namespace slimps {
namespace {

TEST(WaitingRows, EverySingleElementOfAPartitionIsAskedForOnce) {
  constexpr size_t kRows = size_t{1} << 20;  // of one partition
  constexpr int kRequests = 16;
  Mutex mutex;
  CondVar changed;
  int asked = 0;
  ClusterOptions options{.workers = 2, .servers = 1};
  options.store.partition_bytes = kRows * sizeof(float);
  options.store.retry_interval = absl::Seconds(60);
  options.wrap = Hooked({[&](const Message& message) {
    MutexLock lock(&mutex);
    asked += message.header.pull().items_size();
    changed.NotifyAll();
    return absl::OkStatus();
  }});
  InProcessCluster cluster(options);
  cluster.RunWorkers([&](KVStore& store) {
    const std::vector<float> value(kRows, 5.0f);
    ASSERT_STATUS_OK(store.Init({{.key = "w", .shape = {kRows}, .value = value}}));
    const std::vector<int64_t> row = {static_cast<int64_t>(store.rank())};
    std::vector<int64_t> rows;
    std::vector<float> values;
    if (store.rank() == 1) {
      {
        MutexLock lock(&mutex);
        ASSERT_TRUE(changed.Await(&mutex, absl::Seconds(30), [&] { return asked >= kRequests; }));
      }
      // The server answers this pull after it has let the other worker's requests wait, or has
      // refused them.
      ASSERT_STATUS_OK(store.PullRows("w", row, &rows, &values, 0));
    }
    ASSERT_STATUS_OK(store.PushRowSparse("w", row, std::vector<float>{3}, 0));
    if (store.rank() == 1) return;
    std::vector<int64_t> all(kRows);
    std::iota(all.begin(), all.end(), 0);
    std::vector<float> expected(kRows, 0.0f);
    expected[0] = expected[1] = 3;
    ASSERT_STATUS_OK(store.PullRows("w", all, &rows, &values, 0));
    EXPECT_TRUE(rows == all);
    EXPECT_TRUE(values == expected);
    MutexLock lock(&mutex);
    EXPECT_EQ(asked, kRequests);
  });
}

}  // namespace
}  // namespace slimps
