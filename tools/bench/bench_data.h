// The memory that all measurements share: allocated once, on huge pages, and used again, as a worker's buffers are.
#ifndef SLIMPS_TOOLS_BENCH_BENCH_DATA_H_
#define SLIMPS_TOOLS_BENCH_BENCH_DATA_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "proto/base/buffer.h"

namespace slimps {

// Thread-compatible.
class BenchData final {
 public:
  enum Slot : size_t {
    kResidual,
    kMomentum,
    kResidualStart,
    kMomentumStart,
    kPayload,
    kSum,        // where payloads are added to
    kReference,  // d of d += s and d *= c
    kReferenceSource,
    kWeights,
    kNextWeights,
    kOptimizerState,
    kSlots,
  };

  // A round's gradient: the same normally distributed numbers, but another one for each element in every round, so that
  // residuals change as in training; over 2 * kShifts rounds they add up to 0.
  struct Gradient {
    std::span<const float> values;
    float sign = 1;
  };
  static constexpr size_t kShifts = 64;

  // For tensors of at most `max_elements`.
  explicit BenchData(size_t max_elements);

  Gradient OfRound(size_t elements, uint64_t round) const;
  // No |gradient| is over this.
  float gradient_bound() const { return gradient_bound_; }
  // ResidualStart::kAged.
  void FillAged(std::span<float> residual) const;
  static constexpr float kAgedBound = 10;

  // Grown when needed; contents are what the last user left.
  std::span<std::byte> Bytes(Slot slot, size_t bytes);
  std::span<float> Floats(Slot slot, size_t elements);

 private:
  AlignedBuffer gradient_;
  float gradient_bound_ = 0;
  std::array<AlignedBuffer, kSlots> slots_;
};

}  // namespace slimps

#endif  // SLIMPS_TOOLS_BENCH_BENCH_DATA_H_
