// SPDX-License-Identifier: Apache-2.0
// dryden against a plain sort of both sides.
#include "compress/codec/sparse/dryden.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include "compress/format/sparse.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/compress/codec/make_codec.h"
#include "tests/compress/test_data.h"

namespace slimps {
namespace {

using ::testing::ElementsAre;

struct Result {
  std::vector<std::byte> payload;
  std::vector<float> decoded, residual;
  EncodeStats stats;
};

// Fills in what one side sends. `sign` is 1 or -1.
void PlainSide(const std::vector<float>& x, float sign, double ratio, Result& result) {
  std::vector<size_t> side;
  for (size_t i = 0; i < x.size(); ++i) {
    if (x[i] * sign > 0) side.push_back(i);
  }
  std::stable_sort(side.begin(), side.end(),
                   [&](size_t a, size_t b) { return std::fabs(x[a]) > std::fabs(x[b]); });
  const auto part = static_cast<size_t>(ratio * static_cast<double>(side.size()));
  side.resize(std::min(side.size(), std::max<size_t>(part, 1)));
  std::sort(side.begin(), side.end());
  double sum = 0, of_block = 0;
  size_t block = 0;
  for (const size_t i : side) {
    if (i / kBlockElements != block) {
      sum += of_block;
      of_block = 0;
      block = i / kBlockElements;
    }
    of_block += static_cast<double>(x[i]);
  }
  const auto mean = static_cast<float>((sum + of_block) / static_cast<double>(side.size()));
  for (const size_t i : side) {
    result.decoded[i] = mean;
    result.residual[i] = x[i] - mean;
  }
  result.stats.elements_sent += side.size();
}

Result Plain(double ratio, const std::vector<float>& gradient, const std::vector<float>& residual,
             float grad_scale) {
  const size_t n = gradient.size();
  std::vector<float> x(n);
  for (size_t i = 0; i < n; ++i) x[i] = gradient[i] * grad_scale + residual[i];
  Result result = {.decoded = std::vector<float>(n), .residual = x};
  PlainSide(x, 1, ratio, result);
  PlainSide(x, -1, ratio, result);
  for (size_t i = 0; i < n; ++i) {
    result.stats.input_norm2 += std::pow(static_cast<double>(x[i]), 2);
    result.stats.error_norm2 += std::pow(static_cast<double>(result.residual[i]), 2);
  }
  return result;
}

Result Encode(const Codec& codec, const std::vector<float>& gradient,
              const std::vector<float>& residual, float grad_scale = 1) {
  const size_t n = gradient.size();
  Result result = {.payload = std::vector<std::byte>(codec.MaxPayloadBytes(n)),
                   .decoded = std::vector<float>(n),
                   .residual = residual};
  const EncodeInput input = {
      .gradient = gradient, .residual = result.residual, .grad_scale = grad_scale};
  const auto encoded = codec.Encode(input, result.payload);
  EXPECT_TRUE(encoded.ok()) << encoded.status();
  if (!encoded.ok()) return result;
  result.stats = *encoded;
  result.payload.resize(result.stats.payload_bytes);
  EXPECT_TRUE(ValidateSparse(result.payload, n).ok()) << ValidateSparse(result.payload, n);
  Decode(codec.format(), result.payload, n, 0, result.decoded);
  return result;
}

void Check(double ratio, const std::vector<float>& gradient, const std::vector<float>& residual) {
  const std::string spec = absl::StrCat("dryden:ratio=", ratio);
  SCOPED_TRACE(absl::StrCat(spec, " n=", gradient.size()));
  const Result wanted = Plain(ratio, gradient, residual, 0.75f);
  for (const Kernels* kernels : AllKernels()) {
    if (!kernels->runs_here()) continue;
    const Result mine = Encode(*MakeCodecOrDie(spec, *kernels), gradient, residual, 0.75f);
    EXPECT_EQ(Difference(mine.decoded, wanted.decoded), "") << kernels->name;
    EXPECT_EQ(Difference(mine.residual, wanted.residual), "") << kernels->name;
    EXPECT_EQ(mine.stats.elements_sent, wanted.stats.elements_sent);
    if (!std::isfinite(mine.stats.error_norm2)) continue;
    EXPECT_NEAR(mine.stats.input_norm2, wanted.stats.input_norm2, 1e-3 * wanted.stats.input_norm2);
    EXPECT_NEAR(mine.stats.error_norm2, wanted.stats.error_norm2,
                1e-3 * wanted.stats.error_norm2 + 1e-30);
  }
}

TEST(Dryden, EqualsAPlainSortAtAllLengths) {
  for (size_t n = 0; n <= 257; n += n < 40 ? 1 : 13) {
    for (const double ratio : {0.003, 0.1, 1.0}) {
      Check(ratio, RandomFloats(n, n), RandomFloats(n, n + 1));
    }
  }
  for (const size_t n : {4095, 4096, 4097, 3 * 4096 + 5, 60000}) {
    for (const double ratio : {0.003, 0.25}) Check(ratio, RandomFloats(n, n), RandomFloats(n, 1));
  }
}

TEST(Dryden, EqualsAPlainSortWithTiesZerosAndOneSign) {
  for (const size_t n : {100, 5000, 20000}) {
    Check(0.01, AwkwardFloats(n, n), std::vector<float>(n));
    Check(0.01, std::vector<float>(n, -2.0f), std::vector<float>(n));
    std::vector<float> levels = RandomFloats(n, 3);
    for (float& x : levels) x = std::round(x);
    Check(0.02, levels, std::vector<float>(n));
    for (float& x : levels) x = std::fabs(x);
    Check(0.5, levels, std::vector<float>(n));
  }
}

// The few elements of one sign are far below the guess, because the sample saw only the other sign.
TEST(Dryden, AMisleadingSampleChangesNothing) {
  std::vector<float> gradient = RandomFloats(100000, 5);
  for (float& x : gradient) x = 10 + std::fabs(x);
  gradient[777] = -1e-6f;
  gradient[50000] = -1e-7f;
  Check(0.003, gradient, std::vector<float>(100000));
  std::fill(gradient.begin(), gradient.end(),
            1.0f);  // all are candidates, more than there is room for
  Check(0.003, gradient, std::vector<float>(100000));
}

TEST(Dryden, EachSideIsSentAsItsMean) {
  const Result result = Encode(*MakeCodecOrDie("dryden:ratio=0.5"), {4, -1, 2, 1, -3, 0, 1, -8},
                               std::vector<float>(8));
  // Two of the four positive elements are sent, and one of the three negative ones.
  EXPECT_THAT(result.decoded, ElementsAre(3, 0, 3, 0, 0, 0, 0, -8));
  EXPECT_THAT(result.residual, ElementsAre(1, -1, -1, 1, -3, 0, 1, 0));
  EXPECT_EQ(result.stats.elements_sent, 3u);
}

TEST(Dryden, BitsDependNeitherOnTheSetNorOnThreads) {
  const size_t n = 300000;
  const std::vector<float> gradient = RandomFloats(n, 1), residual = RandomFloats(n, 2);
  const Result wanted =
      Encode(*MakeCodecOrDie("dryden", *FindKernels("scalar")), gradient, residual);
  EXPECT_NEAR(static_cast<double>(wanted.stats.elements_sent), 0.003 * n, 2);
  for (const Kernels* kernels : AllKernels()) {
    if (!kernels->runs_here()) continue;
    const Result mine = Encode(*MakeCodecOrDie("dryden", *kernels), gradient, residual);
    EXPECT_EQ(mine.payload, wanted.payload);
    EXPECT_EQ(Difference(mine.residual, wanted.residual), "");
    EXPECT_EQ(mine.stats.error_norm2, wanted.stats.error_norm2);
    EXPECT_EQ(mine.stats.input_norm2, wanted.stats.input_norm2);
  }
}

TEST(Dryden, WithoutResidualTheSameIsSent) {
  const std::vector<float> gradient = RandomFloats(70000, 4);
  const Result with = Encode(*MakeCodecOrDie("dryden"), gradient, std::vector<float>(70000), 2);
  const std::unique_ptr<Codec> codec = MakeCodecOrDie("dryden");
  std::vector<std::byte> payload(codec->MaxPayloadBytes(70000));
  const auto stats = codec->Encode({.gradient = gradient, .grad_scale = 2}, payload);
  ASSERT_TRUE(stats.ok());
  payload.resize(stats->payload_bytes);
  EXPECT_EQ(payload, with.payload);
  EXPECT_EQ(stats->error_norm2, with.stats.error_norm2);
}

TEST(Dryden, EncodingWhatWasDecodedGivesTheSamePayload) {
  const std::vector<float> gradient = RandomFloats(9000, 4);
  const Result first =
      Encode(*MakeCodecOrDie("dryden:ratio=1"), gradient, std::vector<float>(9000));
  const Result second =
      Encode(*MakeCodecOrDie("dryden:ratio=1"), first.decoded, std::vector<float>(9000));
  EXPECT_EQ(first.payload, second.payload);
}

TEST(Dryden, BadInputAndOptionsAreRefused) {
  const std::unique_ptr<Codec> codec = MakeCodecOrDie("dryden");
  std::vector<float> gradient = RandomFloats(5000, 1), residual = RandomFloats(5000, 2);
  gradient[4999] = NAN;
  const std::vector<float> before = residual;
  std::vector<std::byte> payload(codec->MaxPayloadBytes(5000));
  EXPECT_EQ(codec->Encode({.gradient = gradient, .residual = residual}, payload).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(residual, before);
  for (const char* spec : {"dryden:ratio=0", "dryden:ratio=1.5", "dryden:ratio=x", "dryden:k=5"}) {
    const auto parsed = ParseCodecSpec(spec);
    EXPECT_FALSE(parsed.ok() && MakeCodec(*parsed).ok()) << spec;
  }
}

}  // namespace
}  // namespace slimps
