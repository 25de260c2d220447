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
#include <variant>

#include "absl/time/time.h"
#include "compress/codec/codec.h"
#include "compress/format/format.h"
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

inline void PushTally::Prepared(const TensorPlan& tensor, const PreparedPush& prepared,
                                const Codec& codec) {
  totals_.encode += prepared.encode;
  totals_.prepared.Add(prepared.elements, prepared.stats, prepared.compressed);
  OfKey& of_key = of_keys_[tensor.key.id()];
  of_key.counts.Add(prepared.elements, prepared.stats, prepared.compressed);
  const wire::Format format = std::get<wire::PushItem>(prepared.item.item).format();
  if (format == wire::ABSENT) return;
  const bool encoded = IsEncoded(static_cast<PayloadFormat>(format));
  of_key.newest = {format, encoded ? std::string_view(codec.spec().name) : ""};
  bytes_[of_key.newest] += prepared.item.payload.size();
}

inline void PushTally::Acknowledged(size_t payload_bytes, absl::Duration send) {
  totals_.payload_bytes += payload_bytes;
  totals_.send += send;
}

inline PushTally::OfKey PushTally::Of(const Key& key) const {
  const auto found = of_keys_.find(key.id());
  return found == of_keys_.end() ? OfKey() : found->second;
}

}  // namespace slimps

#endif  // SLIMPS_WORKER_PUSH_PUSH_TALLY_H_
