// SPDX-License-Identifier: Apache-2.0
// One generator at a time of those in compress/kernels/loops/xoshiro_loops.h, for comparison.
#ifndef SLIMPS_TESTS_COMPRESS_FORMAT_XOSHIRO_H_
#define SLIMPS_TESTS_COMPRESS_FORMAT_XOSHIRO_H_

#include <array>
#include <bit>
#include <cstdint>

#include "compress/format/philox.h"

namespace slimps {

class Xoshiro128Plus {
 public:
  // REQUIRES: not all zeros, the one state that gives no random numbers.
  constexpr explicit Xoshiro128Plus(std::array<uint32_t, 4> state) : state_(state) {}

  // Starts generator `lane` of a block.
  constexpr Xoshiro128Plus(const PhiloxStream& stream, uint32_t block, uint32_t lane)
      : state_(Philox({16 * block + lane, stream.round, stream.worker, stream.partition},
                      {stream.key0, stream.key1})) {}

  // Returns the next 32 random bits.
  constexpr uint32_t operator()() {
    const uint32_t word = state_[0] + state_[3];
    const uint32_t shifted = state_[1] << 9;
    state_[2] ^= state_[0];
    state_[3] ^= state_[1];
    state_[1] ^= state_[2];
    state_[0] ^= state_[3];
    state_[2] ^= shifted;
    state_[3] = std::rotl(state_[3], 11);
    return word;
  }

 private:
  std::array<uint32_t, 4> state_;
};

// Returns the 16 random bits of a block's element i.
constexpr uint32_t RoundingShort(const PhiloxStream& stream, uint32_t block, uint32_t i) {
  Xoshiro128Plus generator(stream, block, i % 16);
  for (uint32_t step = 0; step < i / 32; ++step) generator();
  return generator() >> (i % 32 < 16 ? 0 : 16) & 0xffff;
}

}  // namespace slimps

#endif  // SLIMPS_TESTS_COMPRESS_FORMAT_XOSHIRO_H_
