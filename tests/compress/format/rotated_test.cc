// SPDX-License-Identifier: Apache-2.0
#include "compress/format/rotated.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "compress/format/decode.h"
#include "compress/format/levels.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/compress/format/sum_test_util.h"
#include "tests/compress/test_data.h"

namespace slimps {
namespace {

using ::testing::HasSubstr;

constexpr auto kRotated = PayloadFormat::kRotated;
constexpr PhiloxStream kStream = {.key0 = 1, .round = 5, .worker = 2};

absl::Status Validate(std::span<const std::byte> payload, size_t elements) {
  return ValidatePayload(kRotated, payload, elements);
}

TEST(Rotated, TheWorkedExampleIsValidAndDecodesToTheMatrixTimesItsLevels) {
  const std::vector<std::byte> payload = BytesFromHex(
      "BD000000 03000000 01000000 00000000 05000000 02000000 00000000"
      "B7010100 10000000 00100000 00000000 0000003F 0580");
  ASSERT_TRUE(Validate(payload, 3).ok()) << Validate(payload, 3);
  std::vector<float> decoded(3);
  Decode(kRotated, payload, 3, 0, decoded);
  const uint32_t signs = kStream.Word(0);
  for (size_t i = 0; i < 3; ++i) {
    float sum = 0;
    for (const size_t j : {0, 2, 15}) sum += __builtin_parityll(i & j) != 0 ? -0.5f : 0.5f;
    for (const size_t j : {1, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14}) {
      sum -= __builtin_parityll(i & j) != 0 ? -0.5f : 0.5f;
    }
    EXPECT_EQ(decoded[i], (signs >> i & 1) != 0 ? -sum : sum) << i;
  }
}

TEST(Rotated, LengthsCountTheLastBlocksPadding) {
  EXPECT_EQ(RotatedLength(0), 0u);
  EXPECT_EQ(RotatedLength(3), 16u);
  EXPECT_EQ(RotatedLength(4096), 4096u);
  EXPECT_EQ(RotatedLength(4097), 4096u + 16);
  EXPECT_EQ(RotatedLength(3 * 4096 + 1000), 3 * 4096u + 1024);
}

TEST(Rotated, EveryKernelSetDecodesAlikeAndBlockByBlock) {
  for (const size_t n : InterestingLengths()) {
    const std::vector<std::byte> payload = RandomRotated(n, n);
    ASSERT_TRUE(Validate(payload, n).ok()) << n << Validate(payload, n);
    std::vector<float> expected(n), start = RandomFloats(n, 1), sums = start;
    DecodeWith(*FindKernels("scalar"), kRotated, payload, n, 0, expected);
    for (size_t i = 0; i < n; ++i) sums[i] += expected[i];
    for (const Kernels* kernels : AllKernels()) {
      if (!kernels->runs_here()) continue;
      std::vector<float> whole(n), parts(n), added = start;
      DecodeWith(*kernels, kRotated, payload, n, 0, whole);
      DecodeAddWith(*kernels, kRotated, payload, n, 0, added);
      for (size_t first = 0; first < n; first += kBlockElements) {
        DecodeWith(*kernels, kRotated, payload, n, first,
                   std::span(parts).subspan(first, std::min(kBlockElements, n - first)));
      }
      ASSERT_EQ(Difference(whole, expected), "") << kernels->name;
      ASSERT_EQ(Difference(parts, expected), "") << kernels->name;
      ASSERT_EQ(Difference(added, sums), "") << kernels->name;
    }
  }
}

TEST(Rotated, EveryLyingFieldIsRefusedByName) {
  constexpr size_t kElements = 4096 + 5;
  const std::vector<std::byte> good = RandomRotated(kElements, 1);
  ASSERT_TRUE(Validate(good, kElements).ok());
  const struct {
    size_t offset;
    const char* hex;
    const char* complaint;
  } cases[] = {{0, "BB", "rotated payload: magic byte: expected 189, got 187"},
               {1, "01", "bytes 1 to 3"},
               {3, "80", "bytes 1 to 3"},
               {4, "04100000", "elements: expected 4101, got 4100"},
               {28, "B8", "levels payload: magic byte"},
               {32, "05100000", "levels payload: elements: expected 4112, got 4101"},
               // 2^117, whose sum over a block exceeds fp32.
               {44, "0000007A", "largest level times 4096"},
               {44, "000000FA", "largest level times 4096"}};
  for (const auto& hostile : cases) {
    std::vector<std::byte> bad = good;
    const std::vector<std::byte> patch = BytesFromHex(hostile.hex);
    std::copy(patch.begin(), patch.end(), bad.begin() + static_cast<long>(hostile.offset));
    const absl::Status status = Validate(bad, kElements);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << hostile.complaint;
    EXPECT_THAT(std::string(status.message()), HasSubstr(hostile.complaint));
  }
}

TEST(Rotated, EveryTruncationAndExtensionIsRefused) {
  for (const size_t n : {size_t{0}, size_t{1}, size_t{4097}}) {
    std::vector<std::byte> payload = RandomRotated(n, 1);
    for (size_t size = 0; size < payload.size(); ++size) {
      EXPECT_EQ(Validate(std::span(payload).first(size), n).code(), absl::StatusCode::kDataLoss);
    }
    payload.push_back(std::byte{0});
    EXPECT_EQ(Validate(payload, n).code(), absl::StatusCode::kDataLoss);
  }
}

// The largest scale that is allowed, and levels that all add up in some element.
TEST(Rotated, WhatIsValidDecodesToFiniteNumbers) {
  constexpr size_t kElements = 4096;
  std::vector<std::byte> payload = RandomRotated(kElements, 1);
  const LevelsLayout layout = {.bits = 1, .scales_per_block = 1, .elements = kElements};
  BuildLevelsHeader(layout, std::span(payload).subspan(kRotatedHeaderBytes));
  payload.resize(kRotatedHeaderBytes + layout.PayloadBytes());
  const float scale = std::numeric_limits<float>::max() / (4096 * 1.0001f);
  std::memcpy(payload.data() + kRotatedHeaderBytes + layout.ScaleOffset(0), &scale, sizeof scale);
  std::fill(payload.begin() + static_cast<long>(kRotatedHeaderBytes + layout.PlanesOffset(0)),
            payload.end(), std::byte{0xff});
  ASSERT_TRUE(Validate(payload, kElements).ok()) << Validate(payload, kElements);
  std::vector<float> decoded(kElements);
  Decode(kRotated, payload, kElements, 0, decoded);
  EXPECT_EQ(std::fabs(decoded[0]), 4096 * scale);
  for (const float value : decoded) EXPECT_TRUE(std::isfinite(value));
}

}  // namespace
}  // namespace slimps
