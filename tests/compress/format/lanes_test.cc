// SPDX-License-Identifier: Apache-2.0
#include "compress/format/lanes.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "compress/format/decode.h"
#include "compress/format/sum.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/compress/format/sum_test_util.h"
#include "tests/compress/test_data.h"

namespace slimps {
namespace {

using ::testing::HasSubstr;

constexpr auto kRotated = PayloadFormat::kRotated;
constexpr LevelTable kTable = {0, 3, 5, 7, 9, 11, 13, 14, 15, 17, 19, 21, 23, 25, 27, 30};
constexpr LevelTable kOther = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};

using Bytes = std::vector<std::byte>;

struct Made {
  size_t elements = 3 * kBlockElements + 100;
  LevelTable table = kTable;
  uint32_t round = 5;
  float scale = 0.5f;
};

// Returns random codes. The scale of block b is scale * (b + 1).
Bytes Codes(const Made& made, uint64_t seed) {
  const LanesLayout layout = {.bits = 4,
                              .largest = made.table.back(),
                              .elements = made.elements,
                              .stream = {.key0 = 1, .round = made.round},
                              .table = made.table};
  Bytes payload(layout.PayloadBytes());
  std::mt19937_64 random(seed);
  for (std::byte& byte : payload) byte = static_cast<std::byte>(random());
  for (size_t block = 0; block < layout.blocks(); ++block) {
    const float scale = made.scale * static_cast<float>(block + 1);
    std::memcpy(payload.data() + layout.ScaleOffset(block), &scale, sizeof scale);
  }
  BuildLanesHeader(layout, payload);
  return payload;
}

absl::Status Validate(std::span<const std::byte> payload, size_t elements) {
  return ValidatePayload(kRotated, payload, elements);
}

std::vector<float> DecodeAll(std::span<const std::byte> payload, size_t elements) {
  std::vector<float> decoded(elements);
  Decode(kRotated, payload, elements, 0, decoded);
  return decoded;
}

std::vector<PayloadView> Views(const std::vector<Bytes>& payloads) {
  std::vector<PayloadView> views;
  for (const Bytes& one : payloads) views.push_back({kRotated, one});
  return views;
}

std::vector<float> SumOf(const std::vector<PayloadView>& views, size_t elements,
                         const Kernels& kernels = BestKernels()) {
  std::vector<float> sum(elements, NAN);
  SumPayloadsWith(kernels, views, elements, 0, sum);
  return sum;
}

Bytes SumPayload(const std::vector<Bytes>& payloads) {
  const std::vector<PayloadView> views = Views(payloads);
  Bytes sum(LanesSumBytes(views));
  BuildLanesSum(BestKernels(), views, sum);
  return sum;
}

TEST(Lanes, CodesDecodeToTheirLevelsRotatedBack) {
  const Made made = {.elements = 40};
  const Bytes payload = Codes(made, 1);
  ASSERT_TRUE(Validate(payload, made.elements).ok()) << Validate(payload, made.elements);
  const LanesLayout layout = LanesLayoutOf(payload);
  EXPECT_EQ(payload.size(), 52 + 4 + 32u);
  std::vector<float> y(64);
  for (size_t i = 0; i < y.size(); ++i) {
    const auto byte = std::to_integer<uint32_t>(payload[layout.BlockOffset(0) + i / 2]);
    y[i] = (2.0f * kTable[byte >> (i % 2 * 4) & 15] - 30.0f) * 0.5f;
  }
  const std::vector<float> decoded = DecodeAll(payload, made.elements);
  for (size_t i = 0; i < made.elements; ++i) {
    float sum = 0;
    for (size_t j = 0; j < y.size(); ++j) {
      sum += __builtin_parityll(i & j) != 0 ? -y[j] : y[j];
    }
    const uint32_t signs = layout.stream.Word(static_cast<uint32_t>(i / 32));
    EXPECT_EQ(decoded[i], (signs >> (i % 32) & 1) != 0 ? -sum : sum) << i;
  }
}

// All sums here are small integers times half, so integers and floats must agree exactly.
TEST(Lanes, TheSumOfAnyNumberOfWorkersIsTheSumOfWhatEachDecodesTo) {
  const Made made;
  for (const size_t workers : {1, 2, 8, 9, 40}) {
    std::vector<Bytes> payloads;
    std::vector<float> expected(made.elements);
    for (size_t worker = 0; worker < workers; ++worker) {
      payloads.push_back(Codes(made, worker));
      DecodeAdd(kRotated, payloads.back(), made.elements, 0, expected);
    }
    for (const Kernels* kernels : AllKernels()) {
      if (!kernels->runs_here()) continue;
      ASSERT_EQ(Difference(SumOf(Views(payloads), made.elements, *kernels), expected), "")
          << workers << " workers, " << kernels->name;
    }
    const Bytes sum = SumPayload(payloads);
    ASSERT_TRUE(Validate(sum, made.elements).ok()) << Validate(sum, made.elements);
    EXPECT_EQ(LanesLayoutOf(sum).bits, workers <= 8 ? 8 : 16) << "8 bits up to 255 = 8.5 * 30";
    ASSERT_EQ(Difference(SumOf(Views({sum}), made.elements), expected), "");
  }
}

TEST(Lanes, ASumGoesOnFromLanesAndFromOtherTables) {
  const Made made = {.scale = 0.3f}, other = {.table = kOther, .scale = 0.3f};
  std::vector<Bytes> payloads;
  for (size_t worker = 0; worker < 12; ++worker) {
    payloads.push_back(Codes(worker % 3 == 0 ? other : made, worker));
  }
  const std::vector<float> expected = SumOf(Views(payloads), made.elements);
  for (size_t folded = 1; folded < payloads.size(); ++folded) {
    const auto split = payloads.begin() + static_cast<long>(folded);
    std::vector<Bytes> rest = {SumPayload({payloads.begin(), split})};
    rest.insert(rest.end(), split, payloads.end());
    ASSERT_EQ(Difference(SumOf(Views(rest), made.elements), expected), "") << folded;
  }
}

TEST(Lanes, OnlyNeighboursOfOneScaleAndRotationAreSummedAsIntegers) {
  const Made made, other_scale = {.scale = 0.25f}, other_round = {.round = 6};
  const Bytes a = Codes(made, 1), b = Codes(made, 2), c = Codes(other_scale, 3),
              d = Codes(other_round, 4);
  const std::vector<float> values = RandomFloats(made.elements, 5);
  const PayloadView raw = {PayloadFormat::kRawF32, std::as_bytes(std::span(values))};
  const PayloadView absent = {};
  EXPECT_TRUE(HaveOneScale(a, b));
  EXPECT_FALSE(HaveOneScale(a, c));
  EXPECT_FALSE(HaveOneScale(a, d));
  const auto run = [&](std::vector<PayloadView> views) { return LanesRun(views); };
  const PayloadView va = {kRotated, a}, vb = {kRotated, b}, vc = {kRotated, c};
  EXPECT_EQ(run({va, vb, vc}), 2u);
  EXPECT_EQ(run({va, absent, vb, raw}), 3u);
  EXPECT_EQ(run({va, absent, raw}), 1u);
  EXPECT_EQ(run({raw, va}), 0u);
  // Each run counts as one payload, decoded once.
  const std::vector<PayloadView> round = {va, raw, absent, vb, va, absent, vc, {kRotated, d}};
  std::vector<float> expected(made.elements);
  DecodeAdd(kRotated, a, made.elements, 0, expected);
  DecodeAdd(raw.format, raw.bytes, made.elements, 0, expected);
  DecodeAdd(kRotated, SumPayload({b, a}), made.elements, 0, expected);
  DecodeAdd(kRotated, c, made.elements, 0, expected);
  DecodeAdd(kRotated, d, made.elements, 0, expected);
  EXPECT_EQ(Difference(SumOf(round, made.elements), expected), "");
}

TEST(Lanes, ARunEndsBeforeItsSumExceedsSixteenBits) {
  const Made made = {.elements = 16};
  std::vector<Bytes> payloads(1500, Codes(made, 1));
  const std::vector<Bytes> first(payloads.begin(), payloads.begin() + 1000);
  const Bytes sum = SumPayload(first);  // 30000
  EXPECT_EQ(LanesRun(Views({sum, sum, payloads[0], sum, payloads[0]})), 3u);
  std::vector<float> expected(16);
  for (const Bytes& one : payloads) DecodeAdd(kRotated, one, 16, 0, expected);
  EXPECT_EQ(Difference(SumOf(Views(payloads), 16), expected), "");
}

TEST(Lanes, ASumIsValidAsLongAsItIsFinite) {
  const Made made = {.elements = 2 * kBlockElements, .scale = 1e33f};  // the second block has 2e33
  const std::vector<Bytes> one = {Codes(made, 1)}, two = {one[0], Codes(made, 2)};
  EXPECT_TRUE(LanesSumIsFinite(Views(one)));
  EXPECT_TRUE(Validate(SumPayload(one), made.elements).ok());
  EXPECT_FALSE(LanesSumIsFinite(Views(two)));
  EXPECT_THAT(Validate(SumPayload(two), made.elements).message(), HasSubstr("scale of block 1"));
}

TEST(Lanes, EveryLyingFieldIsRefusedByName) {
  constexpr size_t kElements = 4096 + 5;
  const Bytes good = Codes({.elements = kElements}, 1);
  ASSERT_TRUE(Validate(good, kElements).ok()) << Validate(good, kElements);
  const struct {
    size_t offset;
    const char* hex;
    const char* complaint;
  } cases[] = {{0, "BE", "magic byte"},
               {1, "05", "lanes payload: bits per element: expected 4, 8 or 16, got 5"},
               {2, "2000", "largest level: expected 15 to 31, got 32"},
               {2, "1F00", "table: expected rising levels from 0 to 31"},
               {4, "04100000", "elements: expected 4101, got 4100"},
               {28, "00", "hash of the scales"},
               {36, "01", "table"},
               {40, "05", "not rising"},
               {52, "0000007A", "scale of block 0"},
               {56, "0000C07F", "scale of block 1"},
               {52, "000000BF", "scale of block 0"}};
  for (const auto& hostile : cases) {
    Bytes bad = good;
    const Bytes patch = BytesFromHex(hostile.hex);
    std::copy(patch.begin(), patch.end(), bad.begin() + static_cast<long>(hostile.offset));
    const absl::Status status = Validate(bad, kElements);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << hostile.complaint;
    EXPECT_THAT(std::string(status.message()), HasSubstr(hostile.complaint));
  }
  Bytes sum = SumPayload({good, good});
  sum.back() = std::byte{61};
  EXPECT_THAT(std::string(Validate(sum, kElements).message()), HasSubstr("at most 60, got 61"));
}

TEST(Lanes, EveryTruncationAndExtensionIsRefused) {
  for (const size_t n : {1, 4097}) {
    Bytes payload = Codes({.elements = n}, 1);
    for (size_t size = 0; size < payload.size(); ++size) {
      EXPECT_EQ(Validate(std::span(payload).first(size), n).code(), absl::StatusCode::kDataLoss);
    }
    payload.push_back(std::byte{0});
    EXPECT_EQ(Validate(payload, n).code(), absl::StatusCode::kDataLoss);
  }
}

}  // namespace
}  // namespace slimps
