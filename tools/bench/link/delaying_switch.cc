// SPDX-License-Identifier: Apache-2.0
#include "tools/bench/link/delaying_switch.h"

#include <algorithm>
#include <utility>

namespace slimps {
namespace {

constexpr size_t kEthernetHeaderBytes = 14;  // two addresses, and what follows them
constexpr std::byte kGroup{1};               // of an address's first byte: broadcast or multicast

}  // namespace

DelayingSwitch::DelayingSwitch(size_t ports, absl::Duration hold, size_t max_bytes)
    : ports_(ports), hold_(hold), max_bytes_(max_bytes) {}

void DelayingSwitch::Receive(size_t port, std::span<const std::byte> frame, SteadyTime now) {
  if (frame.size() < kEthernetOffset + kEthernetHeaderBytes) {
    ++lost_;
    return;
  }
  Address destination;
  Address source;
  const std::span<const std::byte> ethernet = frame.subspan(kEthernetOffset);
  std::copy_n(ethernet.begin(), destination.size(), destination.begin());
  std::copy_n(ethernet.begin() + destination.size(), source.size(), source.begin());
  port_of_.insert_or_assign(source, port);
  const auto known = port_of_.find(destination);
  if (known != port_of_.end() && (destination[0] & kGroup) == std::byte{0}) {
    if (known->second != port) Hold(known->second, frame, now + hold_);
    return;
  }
  for (size_t other = 0; other < ports_; ++other) {
    if (other != port) Hold(other, frame, now + hold_);
  }
}

void DelayingSwitch::Hold(size_t port, std::span<const std::byte> frame, SteadyTime due) {
  if (frame.size() > max_bytes_ - held_bytes_) {
    ++lost_;
    return;
  }
  held_bytes_ += frame.size();
  held_.push_back({due, port, std::vector<std::byte>(frame.begin(), frame.end())});
}

std::optional<DelayingSwitch::Held> DelayingSwitch::TakeDue(SteadyTime now) {
  if (held_.empty() || held_.front().due > now) return std::nullopt;
  Held first = std::move(held_.front());
  held_.pop_front();
  held_bytes_ -= first.frame.size();
  return first;
}

SteadyTime DelayingSwitch::due() const {
  return held_.empty() ? SteadyTime::InfiniteFuture() : held_.front().due;
}

}  // namespace slimps
