// SPDX-License-Identifier: Apache-2.0
// RowTraffic: row-sparse pushes, and pulls of chosen rows. The caller's thread sums and cuts rows,
// and waits for those that it pulls.
//
//   RowTraffic rows(options, &keys, &node, &codecs, &tensors);
//   SLIMPS_RETURN_IF_ERROR(rows.Push("w", {{3, 1}}, two_rows, /*priority=*/0));
//   SLIMPS_RETURN_IF_ERROR(rows.Pull("w", {{3, 1}}, &rows_found, &values, /*priority=*/0));
//
// Owned by the store. Thread-safe.
#ifndef SLIMPS_WORKER_STORE_ROW_TRAFFIC_H_
#define SLIMPS_WORKER_STORE_ROW_TRAFFIC_H_

#include <cstdint>
#include <span>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "proto/base/mutex.h"
#include "worker/kvstore.h"
#include "worker/store/codec_choice.h"
#include "worker/store/tensor_traffic.h"
#include "worker/store/worker_node.h"
#include "worker/tensor/key_table.h"

namespace slimps {

class RowTraffic final {
 public:
  // REQUIRES: the arguments outlive this object.
  RowTraffic(const KVStoreOptions& options, const KeyTable* keys, WorkerNode* node,
             const CodecChoice* codecs, TensorTraffic* tensors)
      : options_(options), keys_(keys), node_(node), codecs_(codecs), tensors_(tensors) {}

  // KVStore::PushRowSparse.
  absl::Status Push(const Key& key, std::span<const int64_t> rows, std::span<const float> values,
                    int priority);

  // KVStore::PullRows.
  absl::Status Pull(const Key& key, std::span<const int64_t> row_ids, std::vector<int64_t>* rows,
                    std::vector<float>* values, int priority);

  // Adds what rows cost to `totals`.
  void AddTo(StoreTotals* totals) const;

  // Returns the bytes of rows that were pulled.
  uint64_t bytes_pulled() const;

 private:
  // Returns the values of the `unique` rows, which ascend, one row after another.
  absl::StatusOr<std::vector<float>> Fetch(const TensorPlan& tensor,
                                           std::span<const int64_t> unique, int priority);

  const KVStoreOptions& options_;
  const KeyTable* const keys_;
  WorkerNode* const node_;
  const CodecChoice* const codecs_;
  TensorTraffic* const tensors_;

  mutable Mutex mutex_;
  absl::Duration copy_ ABSL_GUARDED_BY(mutex_);
  absl::Duration wait_ ABSL_GUARDED_BY(mutex_);
  uint64_t bytes_pulled_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace slimps

#endif  // SLIMPS_WORKER_STORE_ROW_TRAFFIC_H_
