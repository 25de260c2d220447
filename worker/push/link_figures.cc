// SPDX-License-Identifier: Apache-2.0
#include "worker/push/link_figures.h"

#include <algorithm>

namespace slimps {
namespace {

// No link is faster. A time per byte of 0 would mean that nothing is known.
constexpr double kFastestNsPerByte = 1e-3;

double Median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::ranges::nth_element(values, middle);
  return *middle;
}

}  // namespace

double LinkFigures::BytesSince(SteadyTime when) const {
  const auto first = std::ranges::upper_bound(answers_, when, {}, &Answer::at);
  return first == answers_.end() ? 0 : answered_bytes_ - first->bytes_before;
}

void LinkFigures::Answered(uint64_t round, SteadyTime now, size_t bytes,
                           absl::Duration round_trip) {
  answers_.push_back({.at = now, .bytes_before = answered_bytes_});
  if (answers_.size() > kKeptAnswers) answers_.pop_front();
  answered_bytes_ += static_cast<double>(bytes);
  if (round_trip <= absl::ZeroDuration()) return;
  const double passed = BytesSince(now - round_trip);
  const double ns = absl::ToDoubleNanoseconds(round_trip);
  if (passed <= kSmallBytes && small_ns_.size() < kKeptSmall) small_ns_.push_back(ns);
  Sums& sums = rounds_[round];
  sums.bytes += passed;
  sums.bytes2 += passed * passed;
  sums.bytes_ns += passed * ns;
}

double LinkFigures::NsPerByte() const {
  std::vector<double> slopes, bounds;
  Sums all;
  for (const auto& [round, sums] : rounds_) {
    if (sums.bytes == 0) continue;
    slopes.push_back((sums.bytes_ns - startup_ns_ * sums.bytes) / sums.bytes2);
    bounds.push_back((sums.bytes_ns - shortest_ns_ * sums.bytes) / sums.bytes2);
    all.bytes += sums.bytes;
    all.bytes_ns += sums.bytes_ns;
  }
  if (slopes.empty()) return ns_per_byte_;
  if (all.bytes_ns >= kConclusive * startup_ns_ * all.bytes) {
    return std::max(Median(std::move(slopes)), kFastestNsPerByte);
  }
  const double bound = std::max(Median(std::move(bounds)), kFastestNsPerByte);
  return ns_per_byte_ == 0 ? bound : std::min(bound, ns_per_byte_);
}

LinkReport LinkFigures::Take() {
  if (!small_ns_.empty()) {
    startup_ns_ = Median(small_ns_);
    shortest_ns_ = std::ranges::min(small_ns_);
  }
  ns_per_byte_ = NsPerByte();
  small_ns_.clear();
  rounds_.clear();
  return {.startup_ns = startup_ns_, .ns_per_byte = ns_per_byte_};
}

}  // namespace slimps
