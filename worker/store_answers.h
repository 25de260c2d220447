// SPDX-License-Identifier: Apache-2.0
// What a store answers when it is asked (kvstore.h): sums of its work, how it treats pushes, what a
// policy has chosen, what a checkpoint had. Plain structs.
#ifndef SLIMPS_WORKER_STORE_ANSWERS_H_
#define SLIMPS_WORKER_STORE_ANSWERS_H_

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "absl/time/time.h"
#include "proto/base/key.h"
#include "proto/slimps.pb.h"
#include "worker/tensor/clipped_norm.h"
#include "worker/tensor/push_counts.h"

namespace slimps {

class Codec;  // compress/codec/codec.h

// Sums over this worker since creation, without initialisation.
struct StoreTotals {
  PushCounts pushed;
  uint64_t bytes_pushed = 0;  // payload bytes that servers acknowledged
  uint64_t bytes_pulled = 0;
  uint64_t changes_pulled = 0;  // partitions that came as a change of the weights
  uint64_t bytes_shared = 0;    // sent and received through shared memory
  // All threads' times together. `send`: from the first byte handed over to the acknowledgement.
  absl::Duration copy, encode, send, wait, decode;
};

// What the servers' step depends on beside the optimizer. Code that predicts the step needs it.
struct PushTreatment {
  float grad_scale = 1;
  // May apply momentum, or make the servers take a vote. Lives as long as the store; null: no
  // codec.
  const Codec* codec = nullptr;
};

// What a policy that adapts has chosen for one key's pushes.
struct KeyCodec {
  Key key;
  // A codec spec; where each worker chooses among several for each round, these with " > " between
  // them, the most compressed first.
  std::string codec;
  std::string reason;  // in words
};

// What the servers' optimizer keeps of one key, in memory of the caller.
struct LentOptimizerState {
  // SGD's momentum; Adam's first and second moment. ONEBIT_ADAM with a frozen variance also has
  // what its answers left out. Each is as long as the key; empty: not wanted, or not there.
  std::array<std::span<float>, 3> tensors = {};
  uint32_t count = 0;    // how many tensors there are
  uint64_t updates = 0;  // how often they were updated
  uint64_t round = 0;    // after which they are what they are; dist_async, dist_ssp: some push
};

// What KVStore::Load found.
struct LoadedCheckpoint {
  uint64_t rounds = 0;  // of the key that this worker had pushed most often
  std::string own_state;
  std::optional<wire::OptimizerSpec> optimizer = std::nullopt;  // nullopt: none was set
};

}  // namespace slimps

#endif  // SLIMPS_WORKER_STORE_ANSWERS_H_
