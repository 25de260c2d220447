// SPDX-License-Identifier: Apache-2.0
// The random numbers of codecs that round every element: xoshiro128+ (Blackman, Vigna: "Scrambled
// linear pseudorandom number generators", ACM Transactions on Mathematical Software 47, 2021),
// started by Philox. Philox itself, with ten rounds for every element, would cost as much as the
// rest of such a codec.
//
// Each block of 4,096 elements has sixteen generators. For block b:
//
//   state   of generator j: the four words that Philox gives for counter c0 = 16 * b + j, with
//           c1 to c3 and the key as in compress/format/philox.h
//   short   of element i of the block: generator i % 16, its step i / 32 (from 0); the lower half
//           of its 32 bits where i % 32 < 16, otherwise the upper half
//
// So sixteen lanes with sixteen generators give 32 consecutive elements per step without a shuffle.
// Blocks repeat bit for bit, whatever the threads and the order. No receiver needs these numbers.
#ifndef SLIMPS_COMPRESS_FORMAT_XOSHIRO_H_
#define SLIMPS_COMPRESS_FORMAT_XOSHIRO_H_

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

#endif  // SLIMPS_COMPRESS_FORMAT_XOSHIRO_H_
