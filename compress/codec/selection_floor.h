// Order statistics for SelectionRun: a guess from a sample, and the exact key of a given rank among a few.
#ifndef SLIMPS_COMPRESS_CODEC_SELECTION_FLOOR_H_
#define SLIMPS_COMPRESS_CODEC_SELECTION_FLOOR_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "compress/kernels/select.h"

namespace slimps {

inline float KeyOf(SelectBy by, float x) {
  if (by == SelectBy::kMagnitude) return __builtin_fabsf(x);
  return by == SelectBy::kPositive ? x : 0.0f - x;
}

// Which elements of n are sampled: one at a place that looks random in each of Size() equal parts, so that no period in
// the tensor agrees with the sample's.
class SamplePlan final {
 public:
  explicit SamplePlan(size_t elements);
  size_t Size() const { return size_; }
  size_t Element(size_t i) const;

 private:
  size_t size_, stride_;
};

// The smallest number over 0, or a key of the sample such that, were the sample drawn at random, at least `rank` of
// `elements` keys would reach it but for one time in 30,000. Reorders `keys`.
float GuessFloor(std::span<float> keys, size_t rank, size_t elements);

// The rank-th largest, from 1, of keys over 0. Reorders `keys`. REQUIRES: 1 <= rank <= keys.size().
float RankedKey(std::span<float> keys, size_t rank);

}  // namespace slimps

#endif  // SLIMPS_COMPRESS_CODEC_SELECTION_FLOOR_H_
