// SPDX-License-Identifier: Apache-2.0
// Counts the bytes of pushes that wait for their round in all partitions of a server, and bounds
// them.
//
//   auto waiting = std::make_shared<WaitingBytes>(size_t{4} << 30);      // one for all shards
//   if (!waiting->TryAdd(payload.size())) return absl::ResourceExhaustedError(...);
//   waiting->Remove(payload.size());                                    // applied
#ifndef SLIMPS_SERVER_ROUND_WAITING_BYTES_H_
#define SLIMPS_SERVER_ROUND_WAITING_BYTES_H_

#include <atomic>
#include <cstddef>

namespace slimps {

// Thread-safe. The count publishes nothing but itself.
class WaitingBytes final {
 public:
  static constexpr size_t kMax = size_t{4} << 30;

  explicit WaitingBytes(size_t most = kMax) : most_(most) {}
  WaitingBytes(const WaitingBytes&) = delete;
  WaitingBytes& operator=(const WaitingBytes&) = delete;

  // Adds `bytes`. Returns false, having added nothing, if more than most() would wait then.
  [[nodiscard]] bool TryAdd(size_t bytes) {
    size_t now = bytes_.load(std::memory_order_relaxed);
    do {
      if (now > most_ || bytes > most_ - now) return false;
    } while (!bytes_.compare_exchange_weak(now, now + bytes, std::memory_order_relaxed));
    return true;
  }

  // Adds bytes that must be accepted, even beyond most().
  void Add(size_t bytes) { bytes_.fetch_add(bytes, std::memory_order_relaxed); }

  // Takes `bytes` off the count.
  // REQUIRES: they were added.
  void Remove(size_t bytes) { bytes_.fetch_sub(bytes, std::memory_order_relaxed); }

  size_t bytes() const { return bytes_.load(std::memory_order_relaxed); }
  size_t most() const { return most_; }

  // True if over half of most() waits: holders should now make what they hold smaller.
  bool is_tight() const { return bytes() > most_ / 2; }

 private:
  const size_t most_;
  std::atomic<size_t> bytes_{0};
};

}  // namespace slimps

#endif  // SLIMPS_SERVER_ROUND_WAITING_BYTES_H_
