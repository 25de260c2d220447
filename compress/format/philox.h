// SPDX-License-Identifier: Apache-2.0
// The random numbers of codecs: Philox4x32-10 (Salmon, Moraes, Dror, Shaw: "Parallel random
// numbers: as easy as 1, 2, 3", SC 2011). A number depends only on where it is used. So encodings
// repeat bit for bit, whatever the threads and the order. A receiver that knows key, round and
// partition can draw the same numbers.
//
// The stream is part of the wire format. The random number for element i of a partition is:
//
//   key      low, high 32 bits of (seed XOR the key's id)
//   counter  c0 = 16 * (i / 64) + i % 16    c1 = low 32 bits of the round
//            c2 = worker, or kAnyWorker     c3 = partition
//   word     number (i % 64) / 16 of the four words that come out
//
// So sixteen lanes with sixteen counters give 64 consecutive elements without a shuffle. Codecs
// that round every element use other generators, which these numbers start:
// compress/kernels/loops/xoshiro_loops.h.
#ifndef SLIMPS_COMPRESS_FORMAT_PHILOX_H_
#define SLIMPS_COMPRESS_FORMAT_PHILOX_H_

#include <array>
#include <cstddef>
#include <cstdint>

namespace slimps {

// The paper's constants.
inline constexpr uint32_t kPhiloxFactor0 = 0xD2511F53, kPhiloxFactor1 = 0xCD9E8D57;
inline constexpr uint32_t kPhiloxStep0 = 0x9E3779B9, kPhiloxStep1 = 0xBB67AE85;
inline constexpr int kPhiloxRounds = 10;

// Returns four random words.
constexpr std::array<uint32_t, 4> Philox(std::array<uint32_t, 4> counter,
                                         std::array<uint32_t, 2> key) {
  for (int round = 0; round < kPhiloxRounds; ++round) {
    const uint64_t product0 = uint64_t{kPhiloxFactor0} * counter[0];
    const uint64_t product1 = uint64_t{kPhiloxFactor1} * counter[2];
    counter = {static_cast<uint32_t>(product1 >> 32) ^ counter[1] ^ key[0],
               static_cast<uint32_t>(product1),
               static_cast<uint32_t>(product0 >> 32) ^ counter[3] ^ key[1],
               static_cast<uint32_t>(product0)};
    key = {key[0] + kPhiloxStep0, key[1] + kPhiloxStep1};
  }
  return counter;
}

// Stands for the worker in a stream that is the same for all workers.
inline constexpr uint32_t kAnyWorker = 0xffffffff;

// The numbers of one partition in one round.
struct PhiloxStream {
  uint32_t key0 = 0, key1 = 0;
  uint32_t round = 0;
  uint32_t worker = 0;
  uint32_t partition = 0;

  static constexpr PhiloxStream Of(uint64_t seed, uint64_t key_id, uint64_t round, uint32_t worker,
                                   uint32_t partition) {
    const uint64_t key = seed ^ key_id;
    return {.key0 = static_cast<uint32_t>(key),
            .key1 = static_cast<uint32_t>(key >> 32),
            .round = static_cast<uint32_t>(round),
            .worker = worker,
            .partition = partition};
  }

  // Returns the number of element i: 32 random bits.
  constexpr uint32_t Word(uint32_t i) const {
    const uint32_t counter = 16 * (i / 64) + i % 16;
    return Philox({counter, round, worker, partition}, {key0, key1})[i % 64 / 16];
  }
};

}  // namespace slimps

#endif  // SLIMPS_COMPRESS_FORMAT_PHILOX_H_
