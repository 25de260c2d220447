// SPDX-License-Identifier: Apache-2.0
// tests/reference/low_rank_test.py compares atomo with numpy and checks that it is unbiased.
#include "compress/codec/lowrank/atomo.h"

#include <cmath>
#include <string>
#include <vector>

#include "compress/codec/encode_run.h"
#include "compress/codec/lowrank/matrix.h"
#include "compress/format/low_rank.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/compress/codec/make_codec.h"
#include "tests/compress/test_data.h"

namespace slimps {
namespace {

using ::testing::HasSubstr;

constexpr PayloadFormat kLowRank = PayloadFormat::kLowRank;

struct Encoded {
  EncodeStats stats;
  std::vector<std::byte> payload;
  std::vector<float> decoded;
};

Encoded EncodeChecked(const Codec& codec, const EncodeInput& input) {
  const size_t n = input.gradient.size();
  Encoded encoded;
  encoded.payload.resize(codec.MaxPayloadBytes(n));
  const auto stats = codec.Encode(input, encoded.payload);
  EXPECT_TRUE(stats.ok()) << stats.status();
  if (!stats.ok()) return encoded;
  encoded.stats = *stats;
  encoded.payload.resize(stats->payload_bytes);
  const absl::Status valid = ValidatePayload(kLowRank, encoded.payload, n);
  EXPECT_TRUE(valid.ok()) << valid;
  encoded.decoded.resize(n);
  Decode(kLowRank, encoded.payload, n, 0, encoded.decoded);
  return encoded;
}

EncodeContext Context(const RowGrid& grid, uint64_t round = 1, uint32_t worker = 0) {
  return {.key = 5, .partition = 2, .round = round, .worker = worker, .grid = grid};
}

TEST(Matrix, IsWorthwhileWhereTheFactorsAreAtMostHalfOfIt) {
  EXPECT_TRUE(IsMatrixWorthwhile(RowGrid::At(0, 100, 10), 2));  // 2 * 2 * 20 <= 100
  EXPECT_FALSE(IsMatrixWorthwhile(RowGrid::At(0, 100, 10), 3));
  EXPECT_FALSE(IsMatrixWorthwhile(RowGrid::At(0, 100, 1), 1)) << "one dimension";
  EXPECT_FALSE(IsMatrixWorthwhile(RowGrid::At(0, 100, 1000), 1)) << "a part of one row";
  EXPECT_FALSE(IsMatrixWorthwhile(RowGrid{}, 1));
  EXPECT_FALSE(IsMatrixWorthwhile(RowGrid::At(0, 1 << 20, 1 << 10), ~size_t{0})) << "no wrap";
}

TEST(Atomo, TakesTensorsThatAreWorthwhileMatrices) {
  const auto takes = [](const std::string& spec, const std::vector<int64_t>& shape) {
    return MakeCodecOrDie(spec)->Takes(shape);
  };
  EXPECT_TRUE(takes("atomo:s=2", {10, 10}));
  EXPECT_FALSE(takes("atomo:s=2.5", {10, 10})) << "up to three atoms";
  EXPECT_TRUE(takes("atomo", {20, 3, 3, 2}));
  EXPECT_FALSE(takes("atomo", {1000}));
  EXPECT_FALSE(takes("atomo", {1, 1000}));
  EXPECT_FALSE(takes("atomo:clip=1", {1, 1000}));
}

TEST(Atomo, AMatrixOfLowRankTravelsAsItIs) {
  // Rank 2 with s = 3: all atoms are certain.
  const RowGrid grid = RowGrid::At(/*offset=*/5, /*elements=*/2990, /*row_elements=*/60);
  const std::vector<float> u = RandomFloats(2 * grid.rows(), 1), v = RandomFloats(2 * 60, 2);
  std::vector<float> x(2990);
  for (size_t i = 0; i < x.size(); ++i) {
    const size_t row = (i + grid.skip) / 60, column = (i + grid.skip) % 60;
    x[i] = u[2 * row] * v[column] + u[2 * row + 1] * v[60 + column];
  }
  // A matrix whose first and last rows are cut has a higher rank, so the cut parts become zeros.
  for (size_t i = 0; i < 55; ++i) x[i] = 0;
  for (size_t i = x.size() - 55; i < x.size(); ++i) x[i] = 0;
  const auto codec = MakeCodecOrDie("atomo");
  const Encoded encoded = EncodeChecked(*codec, {.gradient = x, .context = Context(grid)});
  for (size_t i = 0; i < x.size(); ++i) EXPECT_NEAR(encoded.decoded[i], x[i], 1e-5) << i;
  EXPECT_LT(encoded.stats.error_norm2, 1e-9 * encoded.stats.input_norm2);
  EXPECT_NEAR(encoded.stats.compression_gain(), 1, 1e-6);
}

TEST(Atomo, SendsAtMostItsBudgetOfAtomsAndSizesAreExact) {
  const RowGrid grid = RowGrid::At(0, 64 * 100, 100);
  const std::vector<float> x = RandomFloats(grid.elements, 3);
  for (const char* spec : {"atomo:s=1", "atomo:s=2.5", "atomo", "atomo:s=0.1"}) {
    const auto codec = MakeCodecOrDie(spec);
    size_t least = 1000, most = 0;
    for (uint64_t round = 1; round <= 40; ++round) {
      const Encoded encoded =
          EncodeChecked(*codec, {.gradient = x, .context = Context(grid, round)});
      const LowRankLayout layout = LayoutOfLowRank(encoded.payload);
      EXPECT_EQ(layout.grid, grid);
      EXPECT_EQ(encoded.payload.size(), 32 + 4 * layout.rank * (64 + 100));
      EXPECT_EQ(encoded.stats.elements_sent, layout.rank == 0 ? 0 : grid.elements);
      least = std::min(least, layout.rank);
      most = std::max(most, layout.rank);
    }
    const double s = std::string(spec) == "atomo" ? 3 : std::stod(std::string(spec).substr(8));
    EXPECT_EQ(least, static_cast<size_t>(std::floor(s))) << spec;
    EXPECT_EQ(most, static_cast<size_t>(std::ceil(s))) << spec;
  }
}

TEST(Atomo, WhatIsNoMatrixTravelsWhole) {
  const std::vector<float> x = RandomFloats(5000, 4);
  const auto codec = MakeCodecOrDie("atomo");
  for (const RowGrid& grid :
       {RowGrid{}, RowGrid::At(0, 5000, 1), RowGrid::At(7, 5000, 9000), RowGrid::At(0, 5000, 2)}) {
    const Encoded encoded = EncodeChecked(*codec, {.gradient = x, .context = Context(grid)});
    EXPECT_EQ(Difference(encoded.decoded, x), "");
    EXPECT_EQ(encoded.payload.size(), 36 + 4 * x.size());
    EXPECT_EQ(encoded.stats.error_norm2, 0);
  }
  const Encoded empty = EncodeChecked(*codec, {});
  EXPECT_EQ(empty.payload.size(), 32u);
}

TEST(Atomo, DrawsDifferByRoundWorkerAndSeedAndRepeat) {
  const RowGrid grid = RowGrid::At(0, 64 * 100, 100);
  const std::vector<float> x = RandomFloats(grid.elements, 3);
  const auto encode = [&](const char* spec, uint64_t round, uint32_t worker) {
    return EncodeChecked(*MakeCodecOrDie(spec),
                         {.gradient = x, .context = Context(grid, round, worker)})
        .payload;
  };
  const auto payload = encode("atomo", 1, 0);
  EXPECT_EQ(payload, encode("atomo", 1, 0));
  EXPECT_EQ(payload, encode("atomo:seed=0", 1, 0));
  EXPECT_NE(payload, encode("atomo", 2, 0));
  EXPECT_NE(payload, encode("atomo", 1, 1));
  EXPECT_NE(payload, encode("atomo:seed=1", 1, 0));
}

TEST(Atomo, AResidualIsWhatTheDecodedValueLacks) {
  for (const RowGrid& grid : {RowGrid::At(30, 9000, 100), RowGrid{}}) {
    const std::vector<float> x = RandomFloats(9000, 5);
    std::vector<float> residual = RandomFloats(9000, 6);
    std::vector<float> input(9000);
    for (size_t i = 0; i < x.size(); ++i) {
      const float scaled = x[i] * 0.5f;
      input[i] = scaled + residual[i];
    }
    const auto codec = MakeCodecOrDie("atomo");
    const Encoded encoded = EncodeChecked(
        *codec,
        {.gradient = x, .residual = residual, .grad_scale = 0.5f, .context = Context(grid)});
    double error2 = 0, input2 = 0, decoded2 = 0;
    for (size_t i = 0; i < x.size(); ++i) {
      ASSERT_EQ(residual[i], input[i] - encoded.decoded[i]) << i;
      error2 += static_cast<double>(residual[i]) * static_cast<double>(residual[i]);
      input2 += static_cast<double>(input[i]) * static_cast<double>(input[i]);
      decoded2 += static_cast<double>(encoded.decoded[i]) * static_cast<double>(encoded.decoded[i]);
    }
    EXPECT_NEAR(encoded.stats.error_norm2, error2, 1e-5 * error2);
    EXPECT_NEAR(encoded.stats.input_norm2, input2, 1e-5 * input2);
    EXPECT_NEAR(encoded.stats.decoded_norm2, decoded2, 1e-5 * decoded2);
  }
}

TEST(Atomo, BadOptionsAndInputsAreRefusedByName) {
  const auto refusal = [](const char* text) {
    const auto codec = MakeCodec(text);
    return std::string(codec.status().message());
  };
  EXPECT_THAT(refusal("atomo:s=0"), HasSubstr("codec atomo, option s"));
  EXPECT_THAT(refusal("atomo:s=-1"), HasSubstr("over 0"));
  EXPECT_THAT(refusal("atomo:s=4097"), HasSubstr("at most 4096, got 4097"));
  EXPECT_THAT(refusal("atomo:rank=4"), HasSubstr("unknown option of codec atomo"));
  const auto codec = MakeCodecOrDie("atomo");
  const std::vector<float> x(100, 1e20f);
  std::vector<std::byte> payload(codec->MaxPayloadBytes(100));
  EXPECT_THAT(std::string(codec->Encode({.gradient = x}, payload).status().message()),
              HasSubstr("exceeds what codec atomo carries"));
  const std::vector<float> y(100, 1.0f);
  EXPECT_THAT(
      std::string(codec->Encode({.gradient = y, .context = Context(RowGrid::At(0, 50, 5))}, payload)
                      .status()
                      .message()),
      HasSubstr("expected a grid of 100 elements, got 50"));
}

TEST(Atomo, TheLargestAndTheSmallestNumbersDecodeToFiniteOnes) {
  const RowGrid grid = RowGrid::At(0, 64 * 100, 100);
  for (const float scale : {0x1p62f, 1e-40f, 0.0f}) {
    std::vector<float> x = RandomFloats(grid.elements, 8);
    for (float& value : x) value = std::clamp(value, -3.0f, 3.0f) * scale;
    const Encoded encoded =
        EncodeChecked(*MakeCodecOrDie("atomo"), {.gradient = x, .context = Context(grid)});
    for (const float value : encoded.decoded) ASSERT_TRUE(std::isfinite(value)) << scale;
  }
}

}  // namespace
}  // namespace slimps
