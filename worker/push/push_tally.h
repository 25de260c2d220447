// SPDX-License-Identifier: Apache-2.0
// PushTally: what a pipeline has sent, in all and by tensor. Thread-compatible.
#ifndef SLIMPS_WORKER_PUSH_PUSH_TALLY_H_
#define SLIMPS_WORKER_PUSH_PUSH_TALLY_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "absl/time/time.h"
#include "compress/codec/codec.h"
#include "proto/slimps.pb.h"
#include "worker/push/push_item_maker.h"
#include "worker/tensor/key_table.h"
#include "worker/tensor/push_counts.h"

namespace slimps {

struct PushTotals {
  PushCounts prepared;         // handed over to be sent
  uint64_t payload_bytes = 0;  // acknowledged
  absl::Duration encode, send;
};

// What a push was made of: its format and, if that is a codec's, the codec's name. The name lives
// as long as the pipeline.
using PushedForm = std::pair<wire::Format, std::string_view>;

class PushTally final {
 public:
  void Prepared(const TensorPlan& tensor, const PreparedPush& prepared, const Codec& codec);
  void Acknowledged(size_t payload_bytes, absl::Duration send);

  const PushTotals& totals() const { return totals_; }

  // Returns the bytes of payloads that were handed over to be sent.
  const std::map<PushedForm, uint64_t>& bytes() const { return bytes_; }

  // Returns one tensor's counts; zeros if it was never pushed.
  PushCounts counts(const Key& key) const { return Of(key).counts; }

  // Returns the form of the tensor's newest push; ABSENT if there was none.
  PushedForm newest_form(const Key& key) const { return Of(key).newest; }

 private:
  struct OfKey {
    PushCounts counts;
    PushedForm newest;
  };
  OfKey Of(const Key& key) const;

  PushTotals totals_;
  std::unordered_map<KeyId, OfKey> of_keys_;
  std::map<PushedForm, uint64_t> bytes_;
};

}  // namespace slimps

#endif  // SLIMPS_WORKER_PUSH_PUSH_TALLY_H_
