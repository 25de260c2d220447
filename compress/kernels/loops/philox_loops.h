// SPDX-License-Identifier: Apache-2.0
// Philox4x32-10 for any set of lanes: the words of sixteen counters at a time.
// compress/format/philox.h has the stream and the source. Its constants are repeated here, since a
// kernel shares no function with other code.
#ifndef SLIMPS_COMPRESS_KERNELS_LOOPS_PHILOX_LOOPS_H_
#define SLIMPS_COMPRESS_KERNELS_LOOPS_PHILOX_LOOPS_H_

#include "compress/kernels/lanes/lanes.h"
#include "compress/kernels/quantize.h"

namespace slimps {
namespace {

struct PhiloxWords {
  I32x16 word[4];
};

// In registers a word is the lower half of a 64-bit lane. So products go in and come out without a
// shuffle, and a round takes eight operations per vector. Counters differ only in their first
// number. So half of round 0 and half of round 1 are the same for all counters, and the constructor
// computes them once.
class PhiloxLanes {
 public:
  explicit PhiloxLanes(const RandomStream& stream) {
    uint32_t key0[kRounds], key1[kRounds];
    for (uint32_t round = 0; round < kRounds; ++round) {
      key0[round] = stream.key0 + round * kStep0;
      key1[round] = stream.key1 + round * kStep1;
    }
    // Round 0: words 0 and 1 come from counter words 1 and 2. Word 2 lacks only the product of
    // counter word 0.
    const uint64_t product = uint64_t{kFactor1} * stream.worker;
    const uint32_t word0 = static_cast<uint32_t>(product >> 32) ^ stream.round ^ key0[0];
    const auto word1 = static_cast<uint32_t>(product);
    key1[0] ^= stream.partition;
    // Round 1: word 0's product is known. So is what becomes word 3, and round 2 mixes it into its
    // word 2.
    const uint64_t next = uint64_t{kFactor0} * word0;
    key0[1] ^= word1;
    key1[1] ^= static_cast<uint32_t>(next >> 32);
    key1[2] ^= static_cast<uint32_t>(next);
    for (size_t round = 0; round < kRounds; ++round) {
      key0_[round] = SetW(key0[round]);
      key1_[round] = SetW(key1[round]);
    }
  }

  // Returns the words of counters [first, first + 16).
  inline __attribute__((always_inline)) PhiloxWords operator()(uint32_t first) const {
    const I32x16 counter = AddI(Iota(), SetI(first));
    I64x8 even[4], odd[4];
    Half(EvenW(counter), even);
    Half(OddW(counter), odd);
    return {{JoinW(even[0], odd[0]), JoinW(even[1], odd[1]), JoinW(even[2], odd[2]),
             JoinW(even[3], odd[3])}};
  }

 private:
  static constexpr uint32_t kFactor0 = 0xD2511F53, kFactor1 = 0xCD9E8D57;
  static constexpr uint32_t kStep0 = 0x9E3779B9, kStep1 = 0xBB67AE85;
  static constexpr size_t kRounds = 10;

  inline __attribute__((always_inline)) void Half(I64x8 counter, I64x8 word[4]) const {
    const I64x8 factor0 = SetW(kFactor0), factor1 = SetW(kFactor1);
    const I64x8 first = MulW(counter, factor0);
    const I64x8 second = MulW(XorW(HighW(first), key1_[0]), factor1);
    // What comes out of round 1. Word 3 is already in round 2's key.
    I64x8 w0 = XorW(HighW(second), key0_[1]), w1 = second;
    I64x8 w2 = XorW(first, key1_[1]), w3 = SetW(0);
    for (size_t round = 2; round < kRounds; ++round) {
      const I64x8 product0 = MulW(w0, factor0), product1 = MulW(w2, factor1);
      w0 = XorW(HighW(product1), XorW(w1, key0_[round]));
      w2 = XorW(HighW(product0), XorW(w3, key1_[round]));
      w1 = product1;
      w3 = product0;
    }
    word[0] = w0;
    word[1] = w1;
    word[2] = w2;
    word[3] = w3;
  }

  // The key of each round, mixed with all else that is the same for all counters.
  I64x8 key0_[kRounds], key1_[kRounds];
};

}  // namespace
}  // namespace slimps

#endif  // SLIMPS_COMPRESS_KERNELS_LOOPS_PHILOX_LOOPS_H_
