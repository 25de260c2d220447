// SPDX-License-Identifier: Apache-2.0
#include "worker/push/push_tally.h"

#include <variant>

#include "compress/format/format.h"

namespace slimps {

void PushTally::Prepared(const TensorPlan& tensor, const PreparedPush& prepared,
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

void PushTally::Acknowledged(size_t payload_bytes, absl::Duration send) {
  totals_.payload_bytes += payload_bytes;
  totals_.send += send;
}

PushTally::OfKey PushTally::Of(const Key& key) const {
  const auto found = of_keys_.find(key.id());
  return found == of_keys_.end() ? OfKey() : found->second;
}

}  // namespace slimps
