// SPDX-License-Identifier: Apache-2.0
// Order statistics for SelectionRun and DrydenRun: a guess from a sample, and the exact key of a
// given rank among a few. Thread-safe: all are pure functions.
//
//   const SamplePlan plan(elements);
//   for (size_t i = 0; i < plan.Size(); ++i) keys[i] = KeyOf(by, x[plan.Element(i)]);
//   const float floor = GuessFloor(keys, rank, elements);
#ifndef SLIMPS_COMPRESS_CODEC_SPARSE_SELECT_SELECTION_FLOOR_H_
#define SLIMPS_COMPRESS_CODEC_SPARSE_SELECT_SELECTION_FLOOR_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "compress/kernels/select.h"

namespace slimps {

// Returns the key by which elements are ranked: |x|, x or -x.
inline float KeyOf(SelectBy by, float x) {
  if (by == SelectBy::kMagnitude) return __builtin_fabsf(x);
  return by == SelectBy::kPositive ? x : 0.0f - x;
}

// Says which elements of a tensor to sample: one in each of Size() equal parts, at a place that
// looks random. So no period in the tensor agrees with the sample's. Small tensors have no sample.
// Thread-safe: constant after construction.
class SamplePlan final {
 public:
  explicit SamplePlan(size_t elements);
  size_t Size() const { return size_; }
  size_t Element(size_t i) const;

 private:
  size_t size_, stride_;
};

// Returns a floor, over 0, that at least `rank` of `elements` keys are expected to reach. If the
// sample `keys` is drawn at random, fewer reach it in one case of 30,000. The floor is a key of the
// sample or the smallest number over 0. Reorders `keys`.
float GuessFloor(std::span<float> keys, size_t rank, size_t elements);

// Returns the rank-th largest of keys that are over 0; rank 1 is the largest. Reorders and
// overwrites `keys`.
// REQUIRES: 1 <= rank <= keys.size().
float RankedKey(std::span<float> keys, size_t rank);

}  // namespace slimps

#endif  // SLIMPS_COMPRESS_CODEC_SPARSE_SELECT_SELECTION_FLOOR_H_
