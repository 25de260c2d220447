// SPDX-License-Identifier: Apache-2.0
// The memory that all measurements share. Like a worker's buffers, it is on huge pages, allocated
// once and used again.
#ifndef SLIMPS_TOOLS_BENCH_CODEC_BENCH_DATA_H_
#define SLIMPS_TOOLS_BENCH_CODEC_BENCH_DATA_H_

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
    kSum,        // payloads are added to it
    kReference,  // d of d += s and d *= c
    kReferenceSource,
    kWeights,
    kNextWeights,
    kOptimizerState,
    kSlots,
  };

  // A round's gradient, `sign` * `values`. All rounds use the same numbers, but an element gets
  // another number in every round, so that residuals change as in training. Over 2 * kShifts rounds
  // the gradients of an element add up to 0.
  struct Gradient {
    std::span<const float> values;
    float sign = 1;
  };
  static constexpr size_t kShifts = 64;
  static constexpr size_t kShiftElements = 64;                        // whole cache lines
  static constexpr size_t kSpareElements = kShifts * kShiftElements;  // behind a tensor, for shifts

  // Draws normally distributed numbers for tensors of at most `max_elements` in all.
  explicit BenchData(size_t max_elements);

  // Takes these numbers. kSpareElements behind each tensor stand for the shifts.
  explicit BenchData(AlignedBuffer gradient);

  // Returns the gradient of a tensor in a round. `first`: where its numbers begin.
  // REQUIRES: there are first + elements + kSpareElements numbers.
  Gradient OfRound(size_t elements, uint64_t round, size_t first = 0) const;

  // Returns the largest absolute value of all gradients' elements.
  float gradient_bound() const { return gradient_bound_; }

  // Fills a residual for ResidualStart::kAged; absolute values are at most kAgedBound.
  void FillAged(std::span<float> residual) const;
  static constexpr float kAgedBound = 10;

  // Return a slot's memory, which grows when needed (and is then zeros). Otherwise it holds what
  // the last user left. Valid until the slot grows.
  std::span<std::byte> Bytes(Slot slot, size_t bytes);
  std::span<float> Floats(Slot slot, size_t elements);

 private:
  AlignedBuffer gradient_;
  float gradient_bound_ = 0;
  std::array<AlignedBuffer, kSlots> slots_;
};

}  // namespace slimps

#endif  // SLIMPS_TOOLS_BENCH_CODEC_BENCH_DATA_H_
