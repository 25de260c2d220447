// SPDX-License-Identifier: Apache-2.0
// Integers that are added up without being decoded: every set against "scalar" bit for bit, and
// against plain loops by the definition.
#include <algorithm>
#include <array>
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "compress/kernels/kernels.h"
#include "gtest/gtest.h"
#include "tests/compress/format/xoshiro.h"
#include "tests/compress/test_data.h"

namespace slimps {
namespace {

constexpr RandomStream kRandom = {1, 2, 3, 4, 5};
constexpr PhiloxStream kStream = {1, 2, 3, 4, 5};
constexpr uint32_t kBlock = 2;
constexpr const auto& kTable = kCodeTable;
constexpr uint32_t kCanary = 0xdeadbeef;
const size_t kLengths[] = {16, 32, 64, 128, 2048, 4096};

std::vector<uint8_t> RandomBytes(size_t n, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<uint8_t> bytes(n);
  for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random());
  return bytes;
}

uint32_t CodeOf(const std::vector<uint8_t>& codes, size_t i) {
  return codes[i / 2] >> (i % 2 * 4) & 15;
}

class WireLaneKernelsTest : public ::testing::TestWithParam<const Kernels*> {
 protected:
  void SetUp() override {
    if (!GetParam()->runs_here()) GTEST_SKIP() << "this CPU lacks " << GetParam()->name;
  }
  static const Kernels& mine() { return *GetParam(); }
  static const Kernels& scalar() { return *FindKernels("scalar"); }

  struct Rounded {
    std::vector<uint8_t> codes;
    std::vector<float> decoded;
    BlockSums sums;
  };
  static Rounded Round(const Kernels& kernels, const std::vector<float>& y, float scale) {
    RandomLanes random;
    kernels.quantize.start_random(kRandom, kBlock, &random);
    Rounded out = {std::vector<uint8_t>(y.size() / 2 + 1, 0xA5), y, {}};
    out.sums = kernels.wire_lanes.round_codes(
        out.decoded.data(),
        {.inverse = scale == 0 ? 0.0f : 0x1p14f / scale, .scale = scale, .random = &random},
        y.size(), out.codes.data());
    EXPECT_EQ(out.codes.back(), 0xA5) << "nothing is written past the end";
    return out;
  }
};

INSTANTIATE_TEST_SUITE_P(All, WireLaneKernelsTest,
                         ::testing::ValuesIn(AllKernels().begin(), AllKernels().end()),
                         [](const auto& info) { return std::string(info.param->name); });

TEST_P(WireLaneKernelsTest, RoundingEqualsScalar) {
  for (const size_t n : kLengths) {
    for (const float scale : {0.07f, 1e-30f, 0.0f}) {
      for (const auto source : {&RandomFloats, &AwkwardFloats}) {
        const std::vector<float> y = source(n, n);
        const Rounded a = Round(mine(), y, scale), b = Round(scalar(), y, scale);
        ASSERT_EQ(a.codes, b.codes) << n << " scale " << scale;
        for (size_t i = 0; i < n; ++i) {
          const float level = 2 * static_cast<float>(kTable[CodeOf(a.codes, i)]) - 30;
          ASSERT_EQ(BitPattern(a.decoded[i]), BitPattern(level * scale)) << i;
        }
        ASSERT_EQ(BitPattern(a.sums.decoded2), BitPattern(b.sums.decoded2));
        ASSERT_EQ(BitPattern(a.sums.error2), BitPattern(b.sums.error2));
      }
    }
  }
}

TEST_P(WireLaneKernelsTest, RoundsAsDefinedWithTheStreamsShorts) {
  constexpr size_t kElements = 4096;
  constexpr float kScale = 0.07f;  // the levels span -2.1 to 2.1
  const std::vector<float> y = RandomFloats(kElements, 1);
  const Rounded rounded = Round(mine(), y, kScale);
  // In real numbers, code z becomes z + 1 with probability (u - T[z]) / (T[z + 1] - T[z]), where u
  // = y / (2 scale) + 15. fp32 moves that by some 2^-16: there the random bits decide either way.
  double decoded2 = 0, error2 = 0;
  size_t near = 0;
  for (size_t i = 0; i < kElements; ++i) {
    const double u = std::clamp(static_cast<double>(y[i]) / (2 * 0.07) + 15, 0.0, 30.0);
    uint32_t z = 0;
    while (z < 14 && kTable[z + 1] <= u) ++z;
    const double up = (u - kTable[z]) / (kTable[z + 1] - kTable[z]);
    const double drawn = RoundingShort(kStream, kBlock, static_cast<uint32_t>(i)) / 65536.0;
    const uint32_t code = CodeOf(rounded.codes, i);
    if (std::fabs(up + drawn - 1) < 1e-4 || std::fabs(up + drawn) < 1e-4) {
      ++near;
      ASSERT_NEAR(code, z + 0.5, 1.5) << i;
    } else {
      ASSERT_EQ(code, z + (up + drawn >= 1 ? 1 : 0)) << i << ": " << y[i];
    }
    const auto decoded = static_cast<double>((2 * static_cast<float>(kTable[code]) - 30) * kScale);
    decoded2 += decoded * decoded;
    error2 += std::pow(static_cast<double>(y[i]) - decoded, 2);
  }
  EXPECT_LT(near, 20u);
  EXPECT_NEAR(static_cast<double>(rounded.sums.decoded2), decoded2, 1e-4 * decoded2);
  EXPECT_NEAR(static_cast<double>(rounded.sums.error2), error2, 1e-4 * error2);
}

TEST_P(WireLaneKernelsTest, LevelsAreAddedUpFromAnyNumberOfTerms) {
  for (const size_t n : kLengths) {
    for (size_t count = 0; count <= 8; ++count) {
      std::vector<std::vector<uint8_t>> terms;
      std::vector<const uint8_t*> pointers;
      for (size_t term = 0; term < count; ++term) terms.push_back(RandomBytes(n / 2, term));
      for (const auto& term : terms) pointers.push_back(term.data());
      std::vector<uint32_t> lanes(n + 1, kCanary), expected = lanes;
      for (size_t i = 0; i < n; ++i) {
        expected[i] = lanes[i] = static_cast<uint32_t>(7000 + i);
        for (const auto& term : terms) expected[i] += kTable[CodeOf(term, i)];
      }
      mine().wire_lanes.add_codes(pointers.data(), count, kTable, n, lanes.data());
      ASSERT_EQ(lanes, expected) << n << " elements of " << count;
    }
  }
}

TEST_P(WireLaneKernelsTest, BytesAndWordsAreAddedToLanes) {
  for (const size_t n : kLengths) {
    const std::vector<uint8_t> bytes = RandomBytes(2 * n, n);
    std::vector<uint32_t> lanes(n + 1, 5), expected = lanes;
    for (size_t i = 0; i < n; ++i) expected[i] += bytes[i];
    mine().wire_lanes.add_bytes(bytes.data(), n, lanes.data());
    ASSERT_EQ(lanes, expected);
    for (size_t i = 0; i < n; ++i) expected[i] += bytes[2 * i] + 256u * bytes[2 * i + 1];
    mine().wire_lanes.add_words(bytes.data(), n, lanes.data());
    ASSERT_EQ(lanes, expected);
  }
}

TEST_P(WireLaneKernelsTest, LanesBecomeFloatsByOneProduct) {
  constexpr uint32_t kLargest = 65535;
  for (const size_t n : kLengths) {
    std::vector<uint32_t> lanes(n);
    for (size_t i = 0; i < n; ++i) lanes[i] = static_cast<uint32_t>(i * 977 % (kLargest + 1));
    std::vector<float> floats(n + 1, 9);
    mine().wire_lanes.to_floats(lanes.data(), kLargest, 0.3f, n, floats.data());
    for (size_t i = 0; i < n; ++i) {
      ASSERT_EQ(floats[i], (2.0f * static_cast<float>(lanes[i]) - 65535.0f) * 0.3f);
    }
    EXPECT_EQ(floats[n], 9);
  }
}

}  // namespace
}  // namespace slimps
