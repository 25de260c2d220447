// SPDX-License-Identifier: Apache-2.0
#include "worker/capi/pushes_under_way.h"

#include <algorithm>

namespace slimps {
namespace {

// grad_buf's smallest size, and the bytes that a store lets wait for the network
// (PushPipelineOptions).
constexpr size_t kRoomForLaterPushes = size_t{64} << 20;
constexpr size_t kBytesWaiting = size_t{1} << 30;

}  // namespace

bool PushesUnderWay::Add(KeyId key, size_t bytes) {
  MutexLock lock(&mutex_);
  OfKey& pushed = by_key_[key];
  const bool only_first = later_ == 0 && pushed.first == 0;
  bytes_ += bytes;
  if (pushed.first == 0) {
    pushed.first = bytes;
  } else {
    pushed.later += bytes;
    later_ += bytes;
  }
  return bytes_ > (only_first ? kBytesWaiting : kRoomForLaterPushes);
}

PushesUnderWay::Mark PushesUnderWay::MarkOf(KeyId key) const {
  MutexLock lock(&mutex_);
  return {key, BytesOf(key)};
}

size_t PushesUnderWay::BytesOf(KeyId key) const {
  const auto pushed = by_key_.find(key);
  return pushed == by_key_.end() ? 0 : pushed->second.first + pushed->second.later;
}

void PushesUnderWay::Acknowledged(const std::vector<Mark>& marks) {
  MutexLock lock(&mutex_);
  for (const auto& [key, bytes] : marks) {
    const auto pushed = by_key_.find(key);
    if (pushed == by_key_.end()) continue;
    const size_t before = BytesOf(key);
    const size_t left = before - std::min(bytes, before);
    bytes_ -= before - left;
    later_ -= pushed->second.later;
    if (left > 0) {
      pushed->second = {.first = left};
    } else {
      by_key_.erase(pushed);
    }
  }
}

void PushesUnderWay::AllAcknowledged() {
  MutexLock lock(&mutex_);
  by_key_.clear();
  bytes_ = later_ = 0;
}

}  // namespace slimps
