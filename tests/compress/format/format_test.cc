// SPDX-License-Identifier: Apache-2.0
#include "compress/format/format.h"

#include <string>

#include "compress/format/decode.h"
#include "compress/format/levels.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/compress/test_data.h"

namespace slimps {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr PayloadFormat kFormats[] = {PayloadFormat::kAbsent, PayloadFormat::kRawF32,
                                      PayloadFormat::kRawF16, PayloadFormat::kRawBf16,
                                      PayloadFormat::kLevels};

// Returns a valid payload with seeded scales and bits.
std::vector<std::byte> MakeLevels(const LevelsLayout& layout, uint32_t seed) {
  std::vector<std::byte> payload(layout.PayloadBytes());
  std::mt19937 random(seed);
  for (std::byte& byte : payload) byte = static_cast<std::byte>(random());
  BuildLevelsHeader(layout, payload);
  for (size_t block = 0; block < layout.blocks(); ++block) {
    for (size_t k = 0; k < layout.scales_per_block; ++k) {
      const float scale = static_cast<float>(block) + 0.5f - 3.0f * static_cast<float>(k);
      std::memcpy(payload.data() + layout.ScaleOffset(block) + 4 * k, &scale, 4);
    }
  }
  if (layout.elements % 8 != 0) {
    const size_t last = layout.blocks() - 1;
    for (size_t plane = 1; plane <= layout.bits; ++plane) {
      payload[layout.PlanesOffset(last) + plane * layout.PlaneBytes(last) - 1] &=
          static_cast<std::byte>((1 << (layout.elements % 8)) - 1);
    }
  }
  return payload;
}

std::vector<float> DecodeAll(PayloadFormat format, std::span<const std::byte> payload, size_t n) {
  std::vector<float> out(n, -99);
  Decode(format, payload, n, 0, out);
  return out;
}

TEST(Levels, SizesAreExactAndOneBitIsOver30TimesSmallerThanFp32) {
  const LevelsLayout one_bit = {.bits = 1, .scales_per_block = 1, .elements = 1 << 20};
  EXPECT_EQ(one_bit.PayloadBytes(), 16 + 4 * 256 + (1 << 17));
  EXPECT_GT((4.0 * (1 << 20)) / static_cast<double>(one_bit.PayloadBytes()), 31.7);
  const LevelsLayout two_means = {.bits = 1, .scales_per_block = 2, .elements = 1 << 20};
  EXPECT_GT((4.0 * (1 << 20)) / static_cast<double>(two_means.PayloadBytes()), 31);
  EXPECT_EQ((LevelsLayout{.bits = 1, .scales_per_block = 1, .elements = 1}).PayloadBytes(), 21u);
  EXPECT_EQ((LevelsLayout{.bits = 1, .scales_per_block = 1, .elements = 10}).PayloadBytes(), 22u);
  EXPECT_EQ((LevelsLayout{.bits = 2, .scales_per_block = 0, .elements = 4097}).PayloadBytes(),
            16u + 1024 + 2);
  EXPECT_EQ((LevelsLayout{.bits = 2, .scales_per_block = 2, .elements = 0}).PayloadBytes(), 16u);
}

TEST(Levels, WorkedExampleOfTheHeaderDecodes) {
  const auto payload = BytesFromHex("B7010100 03000000 00100000 00000000  0000003F  05");
  ASSERT_TRUE(ValidatePayload(PayloadFormat::kLevels, payload, 3).ok());
  EXPECT_THAT(DecodeAll(PayloadFormat::kLevels, payload, 3), ElementsAre(0.5f, -0.5f, 0.5f));
}

TEST(Levels, AllSixKindsDecodeByTheTable) {
  // Bits 1, 0, 1, 1. The second plane is 0, 1, 1, 0.
  const std::string head = "04000000 00100000 ";
  const struct {
    std::string hex;
    std::vector<float> values;
  } cases[] = {
      {"B7010000" + head + "00000040  0D", {2, -2, 2, 2}},
      {"B7010100" + head + "00000000  00000040  0D", {2, -2, 2, 2}},
      {"B7010200" + head + "00000000  00000040 000080BF  0D", {2, -1, 2, 2}},
      {"B7020000" + head + "00000040  0D 06", {2, -2, 0, 2}},
      {"B7020100" + head + "00000000  00000040  0D 06", {2, -2, 0, 2}},
      {"B7020200" + head + "00000000  00000040 000080BF  0D 06", {2, -1, 0, 2}},
  };
  for (const auto& c : cases) {
    const auto payload = BytesFromHex(c.hex);
    ASSERT_TRUE(ValidatePayload(PayloadFormat::kLevels, payload, 4).ok())
        << ValidatePayload(PayloadFormat::kLevels, payload, 4) << c.hex;
    EXPECT_EQ(DecodeAll(PayloadFormat::kLevels, payload, 4), c.values) << c.hex;
  }
}

TEST(Levels, AnyRangeOfBlocksDecodesAsTheWhole) {
  const size_t n = 3 * 4096 + 17;
  for (uint8_t bits : {1, 2}) {
    for (uint8_t scales : {0, 1, 2}) {
      const LevelsLayout layout = {bits, scales, n, scales == 0 ? 0.25f : 0.0f};
      const std::vector<std::byte> payload = MakeLevels(layout, bits * 3 + scales);
      ASSERT_TRUE(ValidatePayload(PayloadFormat::kLevels, payload, n).ok());
      const std::vector<float> whole = DecodeAll(PayloadFormat::kLevels, payload, n);
      for (size_t first = 0; first < n; first += 4096) {
        for (size_t last : {first + 4096, first + 8192, n}) {
          if (last > n) continue;
          std::vector<float> part(last - first), sum(last - first, 1.0f);
          Decode(PayloadFormat::kLevels, payload, n, first, part);
          DecodeAdd(PayloadFormat::kLevels, payload, n, first, sum);
          for (size_t i = 0; i < part.size(); ++i) {
            ASSERT_EQ(part[i], whole[first + i]);
            ASSERT_EQ(sum[i], 1.0f + whole[first + i]);
          }
        }
      }
    }
  }
}

TEST(Format, DecodeAddEqualsDecodeThenAddForEveryFormatAndKernel) {
  const size_t n = 4096 + 33;
  for (PayloadFormat format : kFormats) {
    std::vector<std::byte> payload;
    if (format == PayloadFormat::kLevels) {
      payload = MakeLevels({.bits = 1, .scales_per_block = 1, .elements = n}, 5);
    } else if (format != PayloadFormat::kAbsent) {
      payload.resize(n * (format == PayloadFormat::kRawF32 ? 4 : 2));
      for (size_t i = 0; i < payload.size(); ++i) payload[i] = static_cast<std::byte>(i % 61);
    }
    ASSERT_TRUE(ValidatePayload(format, payload, n).ok());
    for (const Kernels* kernels : AllKernels()) {
      if (!kernels->runs_here()) continue;
      std::vector<float> sum = RandomFloats(n, 1), wanted = sum, decoded(n);
      DecodeWith(*kernels, format, payload, n, 0, decoded);
      for (size_t i = 0; i < n; ++i) wanted[i] += decoded[i];
      DecodeAddWith(*kernels, format, payload, n, 0, sum);
      EXPECT_EQ(Difference(sum, wanted), "") << FormatName(format) << " " << kernels->name;
    }
  }
}

TEST(Format, RawDecodesWhatTheBytesSay) {
  EXPECT_THAT(DecodeAll(PayloadFormat::kRawF32, BytesFromHex("0000803F 000000C0"), 2),
              ElementsAre(1.0f, -2.0f));
  EXPECT_THAT(DecodeAll(PayloadFormat::kRawF16, BytesFromHex("003C 00C0 0100 FF7B"), 4),
              ElementsAre(1.0f, -2.0f, 0x1p-24f, 65504.0f));
  EXPECT_THAT(DecodeAll(PayloadFormat::kRawBf16, BytesFromHex("803F 00C0"), 2),
              ElementsAre(1.0f, -2.0f));
  EXPECT_THAT(DecodeAll(PayloadFormat::kAbsent, {}, 2), ElementsAre(0.0f, 0.0f));
}

TEST(Format, AbsentAddsNothing) {
  std::vector<float> sum = {1, -0.0f};
  DecodeAdd(PayloadFormat::kAbsent, {}, 2, 0, sum);
  EXPECT_EQ(Difference(sum, std::vector<float>{1, -0.0f}), "");
}

TEST(Format, NamesAndUnknownFormats) {
  EXPECT_EQ(FormatName(PayloadFormat::kRawBf16), "raw bf16");
  EXPECT_EQ(FormatName(static_cast<PayloadFormat>(99)), "unknown format");
  EXPECT_EQ(ValidatePayload(static_cast<PayloadFormat>(99), {}, 0).code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(Format, WrongLengthsAreDataLoss) {
  const std::vector<std::byte> bytes(64);
  EXPECT_EQ(ValidatePayload(PayloadFormat::kAbsent, bytes, 16).code(), absl::StatusCode::kDataLoss);
  EXPECT_TRUE(ValidatePayload(PayloadFormat::kRawF32, bytes, 16).ok());
  EXPECT_EQ(ValidatePayload(PayloadFormat::kRawF32, bytes, 17).code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(ValidatePayload(PayloadFormat::kRawF32, std::span(bytes).first(63), 16).code(),
            absl::StatusCode::kDataLoss);
  // The size in bytes of this count wraps round to the payload's size.
  EXPECT_EQ(ValidatePayload(PayloadFormat::kRawF32, bytes, (size_t{1} << 62) + 16).code(),
            absl::StatusCode::kDataLoss);
  EXPECT_EQ(ValidatePayload(PayloadFormat::kRawF16, bytes, (size_t{1} << 63) + 32).code(),
            absl::StatusCode::kDataLoss);
  EXPECT_EQ(ValidatePayload(PayloadFormat::kLevels, {}, 0).code(), absl::StatusCode::kDataLoss);
}

struct Hostile {
  size_t offset;
  std::string hex;
  std::string complaint;
};

TEST(Levels, EveryLyingFieldIsRefusedByName) {
  const LevelsLayout layout = {.bits = 2, .scales_per_block = 1, .elements = 4096 + 5};
  const std::vector<std::byte> good = MakeLevels(layout, 1);
  ASSERT_TRUE(ValidatePayload(PayloadFormat::kLevels, good, layout.elements).ok());
  const Hostile cases[] = {
      {0, "B6", "magic byte"},
      {1, "00", "bits per element"},
      {1, "04", "bits per element"},
      {1, "01", "expected"},  // a valid field, but then the length disagrees
      {2, "03", "scales per block"},
      {2, "02", "bytes"},
      {3, "01", "flags"},
      {4, "FFFFFFFF", "elements"},
      {4, "00000000", "elements"},
      {8, "00000000", "elements per block"},
      {8, "00080000", "elements per block"},
      {12, "0000C07F", "value"},
      {12, "0000803F", "value beside scales"},
      {16, "0000807F", "scale 0 of 2"},
      {20, "0100C0FF", "scale 1 of 2"},
      {layout.PlanesOffset(1), "20", "bits past the last element in plane 0"},
      {layout.PlanesOffset(1) + 1, "FF", "bits past the last element in plane 1"},
  };
  for (const Hostile& hostile : cases) {
    std::vector<std::byte> bad = good;
    const std::vector<std::byte> patch = BytesFromHex(hostile.hex);
    std::copy(patch.begin(), patch.end(), bad.begin() + static_cast<long>(hostile.offset));
    const absl::Status status = ValidatePayload(PayloadFormat::kLevels, bad, layout.elements);
    EXPECT_FALSE(status.ok()) << hostile.offset << " " << hostile.hex;
    EXPECT_THAT(std::string(status.message()), HasSubstr(hostile.complaint));
  }
}

TEST(Levels, EveryTruncationAndExtensionIsRefused) {
  for (size_t n : {size_t{0}, size_t{1}, size_t{9}, size_t{4097}}) {
    const std::vector<std::byte> good =
        MakeLevels({.bits = 1, .scales_per_block = 1, .elements = n}, 1);
    ASSERT_TRUE(ValidatePayload(PayloadFormat::kLevels, good, n).ok());
    for (size_t size = 0; size < good.size(); ++size) {
      EXPECT_EQ(ValidatePayload(PayloadFormat::kLevels, std::span(good).first(size), n).code(),
                absl::StatusCode::kDataLoss);
    }
    std::vector<std::byte> longer = good;
    longer.push_back(std::byte{0});
    EXPECT_EQ(ValidatePayload(PayloadFormat::kLevels, longer, n).code(),
              absl::StatusCode::kDataLoss);
    EXPECT_EQ(ValidatePayload(PayloadFormat::kLevels, good, n + 1).code(),
              absl::StatusCode::kInvalidArgument);
  }
}

// 2000 random mutations must not crash. The sanitizers see reads out of bounds.
TEST(Levels, MutatedPayloadsAreRefusedOrDecodeInBounds) {
  const size_t n = 4096 + 77;
  std::mt19937_64 random(9);
  size_t accepted = 0;
  for (int round = 0; round < 2000; ++round) {
    const auto bits = static_cast<uint8_t>(1 + random() % 2);
    std::vector<std::byte> payload =
        MakeLevels({.bits = bits, .scales_per_block = 1, .elements = n}, 3);
    for (uint64_t k = random() % 4; k > 0; --k) {
      payload[random() % (random() % 2 == 0 ? 24 : payload.size())] =
          static_cast<std::byte>(random());
    }
    if (random() % 8 == 0) payload.resize(random() % (payload.size() + 64));
    if (!ValidatePayload(PayloadFormat::kLevels, payload, n).ok()) continue;
    ++accepted;
    std::vector<float> exact(n);  // its own allocation shows a write past the end
    DecodeAdd(PayloadFormat::kLevels, payload, n, 0, exact);
  }
  EXPECT_GT(accepted, 100u);
  EXPECT_LT(accepted, 1900u);
}

}  // namespace
}  // namespace slimps
