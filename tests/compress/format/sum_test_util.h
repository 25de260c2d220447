// SPDX-License-Identifier: Apache-2.0
// Payloads of many formats, made from random bits, for the tests of sums.
#ifndef SLIMPS_TESTS_COMPRESS_FORMAT_SUM_TEST_UTIL_H_
#define SLIMPS_TESTS_COMPRESS_FORMAT_SUM_TEST_UTIL_H_

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <span>
#include <utility>
#include <vector>

#include "compress/format/format.h"
#include "compress/format/levels.h"
#include "compress/format/rotated.h"
#include "compress/format/sum.h"
#include "tests/compress/test_data.h"

namespace slimps {

inline void StoreValue(float value, std::vector<std::byte>& payload) {
  std::memcpy(payload.data() + 12, &value, sizeof value);
}

// Returns a "levels" payload of random bits and scales.
inline std::vector<std::byte> RandomLevels(uint8_t bits, uint8_t scales, size_t elements,
                                           uint64_t seed) {
  const LevelsLayout layout = {
      .bits = bits, .scales_per_block = scales, .elements = elements, .value = 0.75f};
  std::vector<std::byte> payload(layout.PayloadBytes());
  std::mt19937_64 random(seed);
  for (std::byte& byte : payload) byte = static_cast<std::byte>(random());
  BuildLevelsHeader(layout, payload);
  const std::vector<float> values = RandomFloats(layout.blocks() * scales, seed + 1);
  if (!values.empty()) {
    std::memcpy(payload.data() + layout.ScaleOffset(0), values.data(),
                values.size() * sizeof(float));
  }
  if (elements % 8 == 0) return payload;
  const size_t last = layout.blocks() - 1;  // bits past the end are 0
  for (size_t plane = 1; plane <= bits; ++plane) {
    payload[layout.PlanesOffset(last) + plane * layout.PlaneBytes(last) - 1] &=
        static_cast<std::byte>((1 << (elements % 8)) - 1);
  }
  return payload;
}

inline std::vector<std::byte> SignBits(size_t elements, uint8_t scales, uint64_t seed) {
  return RandomLevels(1, scales, elements, seed);
}

// Returns a "rotated" payload of random levels, scales and signs.
inline std::vector<std::byte> RandomRotated(size_t elements, uint64_t seed) {
  const std::vector<std::byte> levels = RandomLevels(/*bits=*/static_cast<uint8_t>(1 + seed % 2),
                                                     /*scales=*/1, RotatedLength(elements), seed);
  std::vector<std::byte> payload(kRotatedHeaderBytes);
  BuildRotatedHeader(elements, PhiloxStream::Of(seed, 7, 5, 2, 1), payload);
  payload.insert(payload.end(), levels.begin(), levels.end());
  return payload;
}

// The payloads that the workers of one round pushed.
class TestRound {
 public:
  enum Kind { kOneBit, kTwoBits, kMixed };

  TestRound(size_t elements, size_t workers, Kind kind, uint64_t seed) {
    std::mt19937_64 random(seed);
    payloads_.reserve(workers);  // views point into them
    for (size_t worker = 0; worker < workers; ++worker) Add(elements, kind, random);
  }

  const std::vector<PayloadView>& views() const { return views_; }

 private:
  void Add(size_t elements, Kind kind, std::mt19937_64& random) {
    const uint64_t seed = random();
    const auto scales = static_cast<uint8_t>(random() % 3);
    // A mixed round also has runs of neighbours in one format.
    const uint64_t choice = kind == kOneBit ? 0 : kind == kTwoBits ? 4 : random() % 11;
    if (choice < 4) return Keep(PayloadFormat::kLevels, RandomLevels(1, scales, elements, seed));
    if (choice < 6) return Keep(PayloadFormat::kLevels, RandomLevels(2, scales, elements, seed));
    if (choice < 7) return Keep(PayloadFormat::kAbsent, {});
    if (choice == 10) return Keep(PayloadFormat::kRotated, RandomRotated(elements, seed));
    if (choice < 8) {
      const std::vector<float> values = NonFiniteFloats(elements, seed);
      const auto bytes = std::as_bytes(std::span<const float>(values));
      return Keep(PayloadFormat::kRawF32, {bytes.begin(), bytes.end()});
    }
    std::vector<std::byte> halves(2 * elements);
    for (size_t i = 0; i < elements; ++i) {
      const auto half = static_cast<uint16_t>(random() & 0xbfff);  // finite in both half formats
      std::memcpy(halves.data() + 2 * i, &half, sizeof half);
    }
    Keep(choice == 8 ? PayloadFormat::kRawF16 : PayloadFormat::kRawBf16, std::move(halves));
  }

  void Keep(PayloadFormat format, std::vector<std::byte> bytes) {
    payloads_.push_back(std::move(bytes));
    views_.push_back({.format = format, .bytes = payloads_.back()});
  }

  std::vector<std::vector<std::byte>> payloads_;
  std::vector<PayloadView> views_;
};

}  // namespace slimps

#endif  // SLIMPS_TESTS_COMPRESS_FORMAT_SUM_TEST_UTIL_H_
