// SPDX-License-Identifier: Apache-2.0
// 1bit (scaling=l1) and 2bit with error feedback on a GPU. Only `slimps bench gpu` uses them: it
// compares them with the codecs on the CPU.
//
// The payload is that of compress/format/levels.h. Payload and residual have the bits that the CPU
// codec leaves, the scales too: each rounding is the same, and sums of |x| are added up in the same
// order, 16 lanes and then a fold. So no multiplication may be fused with an addition. The kernels
// do not look for NaN and infinity, which the library refuses before it encodes.
//
// A block of the grid encodes a block of kBlockElements. A thread packs the bits of one byte.
#include "tools/bench/gpu/device_words.h"

namespace slimps::device {
namespace {

constexpr uint32_t kBlockElements = 4096;
constexpr uint32_t kLanes = 16;
constexpr uint32_t kHeaderBytes = 16;
static_assert(kBlockElements == 8 * kThreads);

// Returns element i's place in shared memory. A gap behind every 8 elements keeps threads that read
// 8 elements each out of each other's banks.
constexpr SLIMPS_DEVICE uint32_t Slot(uint32_t i) { return i + i / 8; }

SLIMPS_DEVICE bool IsNegative(float x) {
  uint32_t bits;
  __builtin_memcpy(&bits, &x, sizeof bits);
  return bits >> 31 != 0;
}

SLIMPS_DEVICE float Magnitude(float x) { return IsNegative(x) ? -x : x; }

template <typename T>
SLIMPS_DEVICE void Store(T value, uint8_t* payload) {
  __builtin_memcpy(payload, &value, sizeof value);
}

SLIMPS_DEVICE void StoreHeader(uint8_t bits, uint8_t scales, uint32_t elements, float value,
                               uint8_t* payload) {
  const uint8_t start[] = {0xB7, bits, scales, 0};
  for (uint32_t i = 0; i < sizeof start; ++i) payload[i] = start[i];
  Store(elements, payload + 4);
  Store(kBlockElements, payload + 8);  // and two bytes of 0: the largest level, and what is unused
  Store(value, payload + 12);
}

// The part of a tensor that a block encodes.
struct Part {
  SLIMPS_DEVICE explicit Part(uint32_t elements)
      : blocks((elements - 1) / kBlockElements + 1),
        first(BlockIndex() * kBlockElements),
        n(elements - first < kBlockElements ? elements - first : kBlockElements) {}

  uint32_t blocks;  // of the tensor
  uint32_t first;   // element
  uint32_t n;       // elements
};

// Puts gradient * grad_scale + residual into x, as one thread.
SLIMPS_DEVICE void LoadInput(const Part& part, const float* gradient, const float* residual,
                             float grad_scale, uint32_t thread, float* x) {
  for (uint32_t i = thread; i < part.n; i += kThreads) {
    x[Slot(i)] = gradient[part.first + i] * grad_scale + residual[part.first + i];
  }
}

SLIMPS_DEVICE float LaneSum(const float* x, uint32_t n, uint32_t lane) {
  float sum = 0;
  for (uint32_t i = lane; i < n; i += kLanes) sum += Magnitude(x[Slot(i)]);
  return sum;
}

SLIMPS_DEVICE float FoldedSum(const float* lane_sums) {
  float sums[kLanes];
  for (uint32_t i = 0; i < kLanes; ++i) sums[i] = lane_sums[i];
  for (uint32_t width = kLanes / 2; width > 0; width /= 2) {
    for (uint32_t i = 0; i < width; ++i) sums[i] += sums[i + width];
  }
  return sums[0];
}

}  // namespace

// REQUIRES: a grid of ceil(elements / kBlockElements) blocks, elements > 0.
SLIMPS_KERNEL slimps_encode_1bit(const float* gradient, float* residual, float grad_scale,
                                 uint32_t elements, uint8_t* payload) {
  SLIMPS_SHARED float x[Slot(kBlockElements)];
  SLIMPS_SHARED float lane_sums[kLanes];
  const Part part(elements);
  uint8_t* const scale_place = payload + kHeaderBytes + BlockIndex() * sizeof(float);
  uint8_t* const plane = payload + kHeaderBytes + part.blocks * sizeof(float) + part.first / 8;
  SLIMPS_PHASE(thread) { LoadInput(part, gradient, residual, grad_scale, thread, x); }
  SLIMPS_PHASE(thread) {
    if (thread < kLanes) lane_sums[thread] = LaneSum(x, part.n, thread);
    uint32_t bits = 0;
    for (uint32_t i = 8 * thread; i < 8 * thread + 8 && i < part.n; ++i) {
      bits |= static_cast<uint32_t>(!IsNegative(x[Slot(i)])) << i % 8;
    }
    if (8 * thread < part.n) plane[thread] = static_cast<uint8_t>(bits);
  }
  SLIMPS_PHASE(thread) {
    const float scale = FoldedSum(lane_sums) / static_cast<float>(part.n);
    for (uint32_t i = thread; i < part.n; i += kThreads) {
      const float value = x[Slot(i)];
      residual[part.first + i] = value - (IsNegative(value) ? -scale : scale);
    }
    if (thread == 0) Store(scale, scale_place);
    if (thread == 0 && part.first == 0) StoreHeader(1, 1, elements, 0, payload);
  }
}

// REQUIRES: as above, and threshold > 0.
SLIMPS_KERNEL slimps_encode_2bit(const float* gradient, float* residual, float grad_scale,
                                 float threshold, uint32_t elements, uint8_t* payload) {
  SLIMPS_SHARED float x[Slot(kBlockElements)];
  const Part part(elements);
  uint8_t* const plane0 = payload + kHeaderBytes + part.first / 4;
  uint8_t* const plane1 = plane0 + (part.n + 7) / 8;
  SLIMPS_PHASE(thread) { LoadInput(part, gradient, residual, grad_scale, thread, x); }
  SLIMPS_PHASE(thread) {
    uint32_t positive = 0, negative = 0;
    for (uint32_t i = 8 * thread; i < 8 * thread + 8 && i < part.n; ++i) {
      const float value = x[Slot(i)];
      positive |= static_cast<uint32_t>(value >= threshold) << i % 8;
      negative |= static_cast<uint32_t>(value <= -threshold) << i % 8;
    }
    if (8 * thread < part.n) {
      plane0[thread] = static_cast<uint8_t>(positive);
      plane1[thread] = static_cast<uint8_t>(negative);
    }
    for (uint32_t i = thread; i < part.n; i += kThreads) {
      const float value = x[Slot(i)];
      const float sent = IsNegative(value) ? -threshold : threshold;
      residual[part.first + i] = Magnitude(value) >= threshold ? value - sent : value;
    }
    if (thread == 0 && part.first == 0) StoreHeader(2, 0, elements, threshold, payload);
  }
}

}  // namespace slimps::device
