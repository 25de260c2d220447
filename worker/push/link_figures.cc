// SPDX-License-Identifier: Apache-2.0
#include "worker/push/link_figures.h"

#include <algorithm>
#include <utility>

namespace slimps {

void LinkFigures::Sent(SteadyTime now) {
  if (under_way_++ == 0) busy_since_ = now;
}

void LinkFigures::Answered(SteadyTime now, size_t bytes, absl::Duration round_trip) {
  current_.ns += absl::ToDoubleNanoseconds(now - busy_since_);
  current_.bytes += static_cast<double>(bytes);
  busy_since_ = now;
  if (--under_way_ == 0) EndStretch();
  if (bytes <= kSmallBytes) shortest_ = std::min(shortest_.value_or(round_trip), round_trip);
}

void LinkFigures::EndStretch() {
  const Stretch ended = std::exchange(current_, {});
  if (ended.bytes > kSmallBytes) {
    if (stretches_.size() < kMaxStretches) stretches_.push_back(ended);
  } else if (small_ns_.size() < kMaxStretches) {
    small_ns_.push_back(ended.ns);
  }
}

double LinkFigures::NsPerByte() {
  std::ranges::sort(stretches_, {}, [](const Stretch& one) { return one.ns / one.bytes; });
  double all_bytes = 0;
  for (const Stretch& one : stretches_) all_bytes += one.bytes;
  Stretch quicker;
  size_t count = 0;
  while (count < stretches_.size() && 2 * quicker.bytes < all_bytes) {
    quicker.ns += stretches_[count].ns;
    quicker.bytes += stretches_[count++].bytes;
  }
  if (count == 0) return 0;
  const double measured = quicker.ns / quicker.bytes;
  if (small_ns_.empty() || ns_per_byte_ == 0) return measured;
  const auto middle = small_ns_.begin() + static_cast<std::ptrdiff_t>(small_ns_.size() / 2);
  std::ranges::nth_element(small_ns_, middle);
  const bool is_conclusive = quicker.ns >= kConclusive * *middle * static_cast<double>(count);
  return is_conclusive ? measured : std::min(measured, ns_per_byte_);
}

LinkReport LinkFigures::Take() {
  if (current_.bytes > 0) EndStretch();
  if (const double measured = NsPerByte(); measured > 0) ns_per_byte_ = measured;
  LinkReport link{.push_ns_per_byte = ns_per_byte_, .pull_ns_per_byte = ns_per_byte_};
  if (shortest_.has_value()) {
    link.push_startup_ns = absl::ToDoubleNanoseconds(*shortest_);
    link.pull_startup_ns = link.push_startup_ns;
  }
  stretches_.clear();
  small_ns_.clear();
  shortest_.reset();
  return link;
}

}  // namespace slimps
