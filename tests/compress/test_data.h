// SPDX-License-Identifier: Apache-2.0
// Inputs and comparisons that the tests of formats and codecs share.
#ifndef SLIMPS_TESTS_COMPRESS_TEST_DATA_H_
#define SLIMPS_TESTS_COMPRESS_TEST_DATA_H_

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

namespace slimps {

// Returns lengths around vectors, words, blocks and their partial ends.
inline std::vector<size_t> InterestingLengths() {
  std::vector<size_t> lengths;
  for (size_t n = 0; n <= 257; ++n) lengths.push_back(n);
  for (size_t n : {4095, 4096, 4097, 3 * 4096 + 17}) lengths.push_back(n);
  return lengths;
}

// Returns those of at most one block.
inline std::vector<size_t> BlockLengths() {
  std::vector<size_t> lengths = InterestingLengths();
  std::erase_if(lengths, [](size_t n) { return n > 4096; });
  return lengths;
}

inline std::vector<float> RandomFloats(size_t n, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal(0.0f, 1.0f);
  std::vector<float> values(n);
  for (float& value : values) value = normal(random);
  return values;
}

// Returns finite values: ordinary numbers with signed zeros, denormals and large magnitudes.
inline std::vector<float> AwkwardFloats(size_t n, uint64_t seed) {
  static constexpr float kAwkward[] = {0.0f, -0.0f, 1e-45f, -1e-45f, 1e-39f,   -1.1754944e-38f,
                                       0.5f, -0.5f, 4e33f,  -4e33f,  65504.0f, -1e-20f};
  std::vector<float> values = RandomFloats(n, seed);
  std::mt19937_64 random(seed + 1);
  for (float& value : values) {
    if (random() % 3 == 0) value = kAwkward[random() % std::size(kAwkward)];
  }
  return values;
}

// Returns AwkwardFloats with NaNs and infinities.
inline std::vector<float> NonFiniteFloats(size_t n, uint64_t seed) {
  static constexpr float kBad[] = {
      std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
      -std::numeric_limits<float>::infinity(), std::numeric_limits<float>::max()};
  std::vector<float> values = AwkwardFloats(n, seed);
  std::mt19937_64 random(seed + 2);
  for (float& value : values) {
    if (random() % 5 == 0) value = kBad[random() % std::size(kBad)];
  }
  return values;
}

inline uint32_t BitPattern(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

// Compares bit for bit, except that any NaN equals any other. Returns "" if all are equal, else the
// first place where they differ.
inline std::string Difference(std::span<const float> a, std::span<const float> b) {
  if (a.size() != b.size()) return absl::StrCat("sizes ", a.size(), " and ", b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    if (std::isnan(a[i]) && std::isnan(b[i])) continue;
    if (BitPattern(a[i]) != BitPattern(b[i])) {
      return absl::StrCat("element ", i, " of ", a.size(), ": ", a[i], " (0x",
                          absl::Hex(BitPattern(a[i])), ") and ", b[i], " (0x",
                          absl::Hex(BitPattern(b[i])), ")");
    }
  }
  return "";
}

inline std::vector<std::byte> BytesFromHex(const std::string& hex) {
  std::vector<std::byte> bytes;
  std::string digits;
  for (char c : hex) {
    if (std::isxdigit(static_cast<unsigned char>(c)) != 0) digits += c;
  }
  for (size_t i = 0; i + 1 < digits.size(); i += 2) {
    bytes.push_back(static_cast<std::byte>(std::stoi(digits.substr(i, 2), nullptr, 16)));
  }
  return bytes;
}

inline std::string HexFromBytes(std::span<const std::byte> bytes) {
  std::string hex;
  for (std::byte byte : bytes) {
    absl::StrAppend(&hex, absl::Hex(static_cast<uint8_t>(byte), absl::kZeroPad2));
  }
  return hex;
}

}  // namespace slimps

#endif  // SLIMPS_TESTS_COMPRESS_TEST_DATA_H_
