// SPDX-License-Identifier: Apache-2.0
// Format "levels" with four and eight bits: layout, decoding by the definition, hostile bytes.
#include <cmath>
#include <random>
#include <string>

#include "absl/strings/str_cat.h"
#include "compress/format/levels.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/compress/test_data.h"

namespace slimps {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

uint8_t* CodesOf(const LevelsLayout& layout, std::vector<std::byte>& payload) {
  return reinterpret_cast<uint8_t*>(payload.data()) + layout.PlanesOffset(0);
}

void SetLevel(const LevelsLayout& layout, std::vector<std::byte>& payload, size_t i, int level) {
  uint8_t* const codes = CodesOf(layout, payload);
  if (layout.bits == 8) {
    codes[i] = static_cast<uint8_t>(level + 128);
  } else {
    uint8_t& byte = codes[i / 2];
    const int shift = i % 2 == 0 ? 0 : 4;
    byte = static_cast<uint8_t>((byte & ~(15 << shift)) | ((level + 8) << shift));
  }
}

float ScaleOfBucket(size_t bucket) { return 0.25f + static_cast<float>(bucket % 7) * 0.37f; }

struct Sample {
  LevelsLayout layout;
  std::vector<int> levels;
  std::vector<std::byte> payload;
};

// Returns random levels. The largest and the smallest are among them.
Sample MakeSample(LevelsLayout layout, uint32_t seed) {
  Sample sample = {layout, std::vector<int>(layout.elements),
                   std::vector<std::byte>(layout.PayloadBytes())};
  BuildLevelsHeader(layout, sample.payload);
  std::mt19937 random(seed);
  for (size_t i = 0; i < layout.elements; ++i) {
    const int span = 2 * layout.levels + 1;
    sample.levels[i] = static_cast<int>(random() % static_cast<uint32_t>(span)) - layout.levels;
    SetLevel(layout, sample.payload, i, sample.levels[i]);
  }
  if (layout.scales_per_block == 1) {
    for (size_t bucket = 0; bucket < layout.buckets(); ++bucket) {
      const float scale = ScaleOfBucket(bucket);
      std::memcpy(sample.payload.data() + layout.ScaleOffset(bucket), &scale, sizeof scale);
    }
  }
  return sample;
}

// Decodes as the header's comment says.
std::vector<float> DecodedByDefinition(const Sample& sample) {
  const LevelsLayout& layout = sample.layout;
  std::vector<float> out(layout.elements);
  for (size_t i = 0; i < out.size(); ++i) {
    const float scale =
        layout.scales_per_block == 0 ? layout.value : ScaleOfBucket(i / layout.bucket);
    const int level = sample.levels[i];
    float unit = static_cast<float>(level);
    if (layout.map == LevelsMap::kNatural && level != 0) {
      unit = std::ldexp(level < 0 ? -1.0f : 1.0f, std::abs(level) - layout.levels);
    }
    out[i] = unit * scale;
  }
  return out;
}

std::vector<LevelsLayout> Shapes(size_t elements) {
  std::vector<LevelsLayout> shapes;
  for (const LevelsMap map : {LevelsMap::kLinear, LevelsMap::kNatural}) {
    for (const auto& [bits, levels] : {std::pair{4, 7}, {4, 1}, {4, 5}, {8, 127}, {8, 9}}) {
      LevelsLayout shape = {.bits = static_cast<uint8_t>(bits),
                            .elements = elements,
                            .value = 0.375f,
                            .levels = static_cast<uint8_t>(levels),
                            .map = map};
      shapes.push_back(shape);
      shape.scales_per_block = 1;
      shape.value = 0;
      for (size_t bucket : {128, 512, 4096}) {
        shape.bucket = bucket;
        shapes.push_back(shape);
      }
    }
  }
  return shapes;
}

TEST(LevelsCodes, SizeIsTheDeclaredFormula) {
  for (size_t n : InterestingLengths()) {
    for (const LevelsLayout& shape : Shapes(n)) {
      const size_t scales = shape.scales_per_block * ((n + shape.bucket - 1) / shape.bucket);
      EXPECT_EQ(shape.PayloadBytes(), 16 + 4 * scales + (shape.bits == 4 ? (n + 1) / 2 : n));
    }
  }
}

TEST(LevelsCodes, TheHeadersWorkedExampleDecodes) {
  const auto payload = BytesFromHex("B7040000 03000000 00100700 0000003F 7F08");
  ASSERT_TRUE(ValidateLevels(payload, 3).ok()) << ValidateLevels(payload, 3);
  std::vector<float> out(3);
  DecodeLevels(BestKernels(), payload, 0, out);
  EXPECT_THAT(out, ElementsAre(3.5f, -0.5f, 0.0f));
}

TEST(LevelsCodes, EveryKernelSetDecodesByDefinitionAtAllLengths) {
  for (size_t n : InterestingLengths()) {
    for (const LevelsLayout& shape : Shapes(n)) {
      const Sample sample = MakeSample(shape, static_cast<uint32_t>(n));
      ASSERT_TRUE(ValidateLevels(sample.payload, n).ok()) << ValidateLevels(sample.payload, n);
      const std::vector<float> wanted = DecodedByDefinition(sample);
      std::vector<float> wanted_sum(n);
      for (size_t i = 0; i < n; ++i) wanted_sum[i] = 0.1f + wanted[i];
      for (const Kernels* kernels : AllKernels()) {
        if (!kernels->runs_here()) continue;
        std::vector<float> out(n), sum(n, 0.1f);
        DecodeLevels(*kernels, sample.payload, 0, out);
        DecodeAddLevels(*kernels, sample.payload, 0, sum);
        ASSERT_EQ(Difference(out, wanted), "") << kernels->name << " " << int{shape.bits};
        ASSERT_EQ(Difference(sum, wanted_sum), "") << kernels->name << " " << int{shape.bits};
      }
    }
  }
}

TEST(LevelsCodes, AnyRangeOfBlocksDecodesAsTheWhole) {
  const size_t n = 3 * 4096 + 17;
  for (const LevelsLayout& shape : Shapes(n)) {
    const Sample sample = MakeSample(shape, 3);
    const std::vector<float> whole = DecodedByDefinition(sample);
    for (size_t first = 0; first < n; first += 4096) {
      for (size_t last : {first + 4096, first + 8192, n}) {
        if (last > n) continue;
        std::vector<float> part(last - first);
        DecodeLevels(BestKernels(), sample.payload, first, part);
        ASSERT_EQ(Difference(part, std::vector<float>(whole.begin() + static_cast<long>(first),
                                                      whole.begin() + static_cast<long>(last))),
                  "");
      }
    }
  }
}

TEST(LevelsCodes, EveryLyingFieldIsRefusedByName) {
  const LevelsLayout layout = {
      .bits = 4, .scales_per_block = 1, .elements = 1024 + 5, .bucket = 512, .levels = 5};
  const Sample good = MakeSample(layout, 1);
  ASSERT_TRUE(ValidateLevels(good.payload, layout.elements).ok());
  const struct {
    size_t offset;
    std::string hex, complaint;
  } cases[] = {
      {0, "B6", "magic byte"},
      {1, "03", "bits per element"},
      {1, "10", "bits per element"},
      {1, "08", "bytes"},  // a valid field, but then the length disagrees
      {1, "01", "largest level"},
      {2, "02", "scales per block"},
      {2, "00", "bytes"},
      {3, "02", "map"},
      {4, "06", "elements"},
      {8, "0000", "elements per block"},
      {8, "4000", "elements per block"},
      {8, "0020", "elements per block"},
      {8, "8001", "a power of two"},
      {8, "0001", "bytes"},
      {10, "00", "largest level"},
      {10, "08", "largest level"},
      {10, "04", "levels: expected at most 4"},
      {11, "01", "byte 11"},
      {12, "0000803F", "value beside scales"},
      {16, "0000807F", "scale 0 of 3"},
      {20, "0100C0FF", "scale 1 of 3"},
      {24, "FFFF7F7F", "scale 2 of 3"},  // finite, but 5 times it is not
      {layout.PayloadBytes() - 1, "18", "bits past the last element"},
  };
  for (const auto& hostile : cases) {
    std::vector<std::byte> bad = good.payload;
    const std::vector<std::byte> patch = BytesFromHex(hostile.hex);
    std::copy(patch.begin(), patch.end(), bad.begin() + static_cast<long>(hostile.offset));
    const absl::Status status = ValidateLevels(bad, layout.elements);
    EXPECT_FALSE(status.ok()) << hostile.offset << " " << hostile.hex;
    EXPECT_THAT(std::string(status.message()), HasSubstr(hostile.complaint)) << hostile.hex;
  }
}

TEST(LevelsCodes, OneLevelOverTheLargestIsRefusedWhereverItIs) {
  for (const LevelsLayout& layout :
       {LevelsLayout{.bits = 4, .elements = 517, .value = 1, .levels = 3},
        LevelsLayout{.bits = 8, .elements = 517, .value = 1, .levels = 126}}) {
    const Sample good = MakeSample(layout, 7);
    ASSERT_TRUE(ValidateLevels(good.payload, layout.elements).ok());
    for (size_t i = 0; i < layout.elements; ++i) {
      for (int level : {layout.levels + 1, -layout.levels - 1, layout.bits == 4 ? -8 : -128}) {
        std::vector<std::byte> bad = good.payload;
        SetLevel(layout, bad, i, level);
        ASSERT_FALSE(ValidateLevels(bad, layout.elements).ok()) << i << " " << level;
      }
    }
  }
}

TEST(LevelsCodes, AValueThatOverflowsTimesTheLargestLevelIsRefused) {
  LevelsLayout layout = {.bits = 4, .elements = 8, .value = 1e38f, .levels = 7};
  EXPECT_THAT(std::string(ValidateLevels(MakeSample(layout, 1).payload, 8).message()),
              HasSubstr("value times largest level"));
  layout.map = LevelsMap::kNatural;  // the largest level is the value itself
  EXPECT_TRUE(ValidateLevels(MakeSample(layout, 1).payload, 8).ok());
  layout.value = INFINITY;
  EXPECT_FALSE(ValidateLevels(MakeSample(layout, 1).payload, 8).ok());
}

TEST(LevelsCodes, EveryTruncationAndExtensionIsRefused) {
  for (size_t n : {size_t{0}, size_t{1}, size_t{9}, size_t{4097}}) {
    for (const LevelsLayout& shape : Shapes(n)) {
      std::vector<std::byte> payload = MakeSample(shape, 2).payload;
      ASSERT_TRUE(ValidateLevels(payload, n).ok());
      for (size_t size = 0; size < payload.size(); size += 1 + size / 40) {
        EXPECT_FALSE(ValidateLevels(std::span(payload).first(size), n).ok());
      }
      payload.push_back(std::byte{0});
      EXPECT_EQ(ValidateLevels(payload, n).code(), absl::StatusCode::kDataLoss);
    }
  }
}

}  // namespace
}  // namespace slimps
