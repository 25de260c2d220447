// SPDX-License-Identifier: Apache-2.0
#include "compress/codec/sparse/select/selection_floor.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <functional>
#include <limits>

namespace slimps {
namespace {

constexpr size_t kSample = 8192;         // elements of a large tensor that are sampled
constexpr size_t kSparsest = 32;         // a small tensor: one element in so many
constexpr size_t kWorthSampling = 4096;  // a tensor with fewer elements has no sample
// How many standard deviations more sample elements than expected lie over the floor. Of a normal
// distribution one value in 30,000 is that far off on one side.
constexpr double kDeviations = 4;
constexpr size_t kBucketBits = 11;
constexpr size_t kFewKeys = 4096;  // from here down nth_element does without the counting pass

}  // namespace

SamplePlan::SamplePlan(size_t elements)
    : size_(elements < kWorthSampling ? 0 : std::min(kSample, elements / kSparsest)),
      stride_(size_ == 0 ? 0 : elements / size_) {}

size_t SamplePlan::Element(size_t i) const {
  // Multiplying by 2^64 / the golden ratio spreads consecutive numbers.
  const uint64_t hash = (i + 1) * 0x9E3779B97F4A7C15u;
  return i * stride_ + static_cast<size_t>((hash >> 32) * stride_ >> 32);
}

float GuessFloor(std::span<float> keys, size_t rank, size_t elements) {
  constexpr float kSmallest = std::numeric_limits<float>::denorm_min();
  const double expected =
      static_cast<double>(keys.size()) * static_cast<double>(rank) / static_cast<double>(elements);
  // The count is about Poisson-distributed: its variance is about its mean.
  const double at = expected + kDeviations * std::sqrt(expected) + kDeviations;
  if (keys.empty() || at >= static_cast<double>(keys.size())) return kSmallest;
  const auto nth = keys.begin() + static_cast<ptrdiff_t>(at);
  std::nth_element(keys.begin(), nth, keys.end(), std::greater<>());
  return std::max(*nth, kSmallest);
}

float RankedKey(std::span<float> keys, size_t rank) {
  // The bits of positive floats are ordered like the floats. One counting pass leaves few keys for
  // nth_element.
  if (keys.size() > kFewKeys) {
    uint32_t least = ~0u, most = 0;
    for (const float key : keys) {
      const auto bits = std::bit_cast<uint32_t>(key);
      least = std::min(least, bits);
      most = std::max(most, bits);
    }
    const int width = std::bit_width(most - least);
    const int shift = std::max(0, width - static_cast<int>(kBucketBits));
    std::array<uint32_t, size_t{1} << kBucketBits> counts = {};
    const auto bucket_of = [&](float key) {
      return (std::bit_cast<uint32_t>(key) - least) >> shift;
    };
    for (const float key : keys) ++counts[bucket_of(key)];
    size_t bucket = counts.size() - 1;
    while (counts[bucket] < rank) rank -= counts[bucket--];
    size_t kept = 0;
    // `kept` never passes the key that is read. Each key is stored without a branch; the next one
    // overwrites it unless it is in the bucket.
    for (const float key : keys) {
      keys[kept] = key;
      kept += bucket_of(key) == bucket ? 1 : 0;
    }
    keys = keys.first(kept);
  }
  const auto nth = keys.begin() + static_cast<ptrdiff_t>(rank - 1);
  std::nth_element(keys.begin(), nth, keys.end(), std::greater<>());
  return *nth;
}

}  // namespace slimps
