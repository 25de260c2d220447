// SPDX-License-Identifier: Apache-2.0
// adacomp and local_selection against a literal transcription of the paper's algorithm 2, bit for
// bit.
#include "compress/codec/sparse/adacomp.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "compress/format/bins.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/compress/codec/make_codec.h"
#include "tests/compress/test_data.h"

namespace slimps {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr uint32_t kLengths[] = {1, 3, 50, 64, 65, 500, 4096, 5000, 16384};

struct Result {
  std::vector<std::byte> payload;
  std::vector<float> decoded, residual;
  float scale = 0;
  EncodeStats stats;
};

// Algorithm 2, one element at a time. With `first_only` it is local selection.
Result Literal(uint32_t length, bool first_only, const std::vector<float>& gradient,
               const std::vector<float>& residual, float grad_scale) {
  const size_t n = gradient.size(), bins = (n + length - 1) / length;
  Result result = {.decoded = std::vector<float>(n), .residual = std::vector<float>(n)};
  std::vector<float> g(n), h(n), most(bins);
  for (size_t i = 0; i < n; ++i) {
    const float dw = gradient[i] * grad_scale;
    g[i] = dw + residual[i];
    h[i] = g[i] + dw;
    most[i / length] = std::max(most[i / length], std::fabs(g[i]));
  }
  std::vector<double> groups((n + 4095) / 4096);
  for (size_t bin = 0; bin < bins; ++bin)
    groups[bin * length / 4096] += static_cast<double>(most[bin]);
  double sum = 0;
  for (const double group : groups) sum += group;
  result.scale = bins == 0 ? 0 : static_cast<float>(sum / static_cast<double>(bins));
  std::vector<bool> taken(bins);
  for (size_t i = 0; i < n; ++i) {
    const size_t bin = i / length;
    const bool reaches = std::fabs(first_only ? g[i] : h[i]) >= most[bin];
    result.residual[i] = g[i];
    result.stats.input_norm2 += static_cast<double>(g[i]) * static_cast<double>(g[i]);
    if (!reaches || g[i] == 0 || (first_only && taken[bin])) continue;
    taken[bin] = true;
    result.decoded[i] = g[i] < 0 ? -result.scale : result.scale;
    result.residual[i] = g[i] - result.decoded[i];
    ++result.stats.elements_sent;
  }
  for (const float r : result.residual) {
    result.stats.error_norm2 += static_cast<double>(r) * static_cast<double>(r);
  }
  return result;
}

Result Encode(const Codec& codec, const std::vector<float>& gradient,
              const std::vector<float>& residual, float grad_scale,
              LayerKind layer = LayerKind::kOther) {
  const size_t n = gradient.size();
  Result result = {.payload = std::vector<std::byte>(codec.MaxPayloadBytes(n)),
                   .decoded = std::vector<float>(n),
                   .residual = residual};
  const auto stats = codec.Encode({.gradient = gradient,
                                   .residual = result.residual,
                                   .grad_scale = grad_scale,
                                   .context = {.layer = layer}},
                                  result.payload);
  EXPECT_TRUE(stats.ok()) << stats.status();
  if (!stats.ok()) return result;
  result.stats = *stats;
  result.payload.resize(stats->payload_bytes);
  EXPECT_TRUE(ValidateBins(result.payload, n).ok()) << ValidateBins(result.payload, n);
  Decode(codec.format(), result.payload, n, 0, result.decoded);
  std::memcpy(&result.scale, result.payload.data() + 8, sizeof result.scale);
  return result;
}

void ExpectNear(double mine, double wanted, const char* what) {
  if (std::isfinite(mine)) {
    EXPECT_NEAR(mine, wanted, 1e-3 * wanted + 1e-30) << what;
  } else {
    EXPECT_GT(wanted, 1e38) << what;  // its squares overflow fp32
  }
}

// Compares three rounds with error feedback with the transcription, then every kernel set with
// that.
void CheckRounds(const std::string& name, uint32_t length, size_t n,
                 std::vector<float> (*source)(size_t, uint64_t)) {
  const std::string spec = name + ":lt=" + std::to_string(length);
  const bool first_only = name == "local_selection";
  SCOPED_TRACE(spec + " n=" + std::to_string(n));
  std::vector<float> residual(n);
  for (uint64_t round = 0; round < 3; ++round) {
    const std::vector<float> gradient = source(n, n + 10 * round);
    const Result wanted = Literal(length, first_only, gradient, residual, 0.75f);
    for (const Kernels* kernels : AllKernels()) {
      if (!kernels->runs_here()) continue;
      const Result mine = Encode(*MakeCodecOrDie(spec, *kernels), gradient, residual, 0.75f);
      EXPECT_EQ(BitPattern(mine.scale), BitPattern(wanted.scale)) << kernels->name;
      EXPECT_EQ(Difference(mine.decoded, wanted.decoded), "") << kernels->name;
      EXPECT_EQ(Difference(mine.residual, wanted.residual), "") << kernels->name;
      EXPECT_EQ(mine.stats.elements_sent, wanted.stats.elements_sent);
      EXPECT_EQ(mine.stats.payload_bytes,
                (BinsLayout{length, n}.PayloadBytes(wanted.stats.elements_sent)));
      ExpectNear(mine.stats.input_norm2, wanted.stats.input_norm2, "input");
      ExpectNear(mine.stats.error_norm2, wanted.stats.error_norm2, "error");
    }
    residual = wanted.residual;
  }
}

class BinCodecTest : public ::testing::TestWithParam<const char*> {};

INSTANTIATE_TEST_SUITE_P(All, BinCodecTest, ::testing::Values("adacomp", "local_selection"),
                         [](const auto& info) { return std::string(info.param); });

TEST_P(BinCodecTest, EqualsThePaperAtSmallLengths) {
  for (const uint32_t length : {1u, 3u, 16u, 50u, 64u, 65u, 16384u}) {
    for (size_t n = 0; n <= 257; n += n < 70 ? 1 : 11)
      CheckRounds(GetParam(), length, n, RandomFloats);
  }
}

TEST_P(BinCodecTest, EqualsThePaperAtBlockEdges) {
  for (const uint32_t length : kLengths) {
    for (const size_t n : {4095, 4096, 4097, 3 * 4096 + 5, 20000}) {
      CheckRounds(GetParam(), length, n, RandomFloats);
    }
  }
}

TEST_P(BinCodecTest, EqualsThePaperWithZerosDenormalsAndLargeNumbers) {
  for (const uint32_t length : kLengths) {
    for (const size_t n : {51, 257, 4097, 20000}) CheckRounds(GetParam(), length, n, AwkwardFloats);
  }
}

TEST_P(BinCodecTest, PayloadResidualAndStatsDoNotDependOnTheKernelSet) {
  const size_t n = 300000;
  const std::vector<float> gradient = RandomFloats(n, 1), start = RandomFloats(n, 2);
  for (const uint32_t length : {1u, 50u, 500u, 16384u}) {
    const std::string spec = std::string(GetParam()) + ":lt=" + std::to_string(length);
    const Result wanted = Encode(*MakeCodecOrDie(spec, *FindKernels("scalar")), gradient, start, 1);
    for (const Kernels* kernels : AllKernels()) {
      if (!kernels->runs_here()) continue;
      const std::unique_ptr<Codec> codec = MakeCodecOrDie(spec, *kernels);
      std::vector<float> residual = start;
      std::vector<std::byte> payload(codec->MaxPayloadBytes(n));
      const auto result = codec->Encode({gradient, residual}, payload);
      ASSERT_TRUE(result.ok()) << result.status();
      payload.resize(result->payload_bytes);
      EXPECT_EQ(payload, wanted.payload) << spec << " " << kernels->name;
      EXPECT_EQ(Difference(residual, wanted.residual), "");
      EXPECT_EQ(result->input_norm2, wanted.stats.input_norm2);
      EXPECT_EQ(result->decoded_norm2, wanted.stats.decoded_norm2);
      EXPECT_EQ(result->error_norm2, wanted.stats.error_norm2);
      EXPECT_EQ(result->elements_sent, wanted.stats.elements_sent);
    }
  }
}

TEST_P(BinCodecTest, WithoutResidualTheSameIsSentAndTheErrorIsEstimated) {
  for (const uint32_t length : {1u, 50u, 500u}) {
    const std::string spec = std::string(GetParam()) + ":lt=" + std::to_string(length);
    const std::vector<float> gradient = RandomFloats(10000, 3);
    for (const Kernels* kernels : AllKernels()) {
      if (!kernels->runs_here()) continue;
      const Result with =
          Encode(*MakeCodecOrDie(spec, *kernels), gradient, std::vector<float>(10000), 2);
      std::vector<std::byte> payload(with.payload.size() + 100000);
      const auto stats =
          MakeCodecOrDie(spec, *kernels)->Encode({.gradient = gradient, .grad_scale = 2}, payload);
      ASSERT_TRUE(stats.ok());
      payload.resize(stats->payload_bytes);
      EXPECT_EQ(payload, with.payload);
      ExpectNear(stats->error_norm2, with.stats.error_norm2, "error");
    }
  }
}

TEST_P(BinCodecTest, ZerosSendNothing) {
  const std::unique_ptr<Codec> codec = MakeCodecOrDie(GetParam());
  const Result result =
      Encode(*codec, std::vector<float>(5000, -0.0f), std::vector<float>(5000), 1);
  EXPECT_EQ(result.stats.elements_sent, 0u);
  EXPECT_EQ(result.stats.payload_bytes, (BinsLayout{500, 5000}.PayloadBytes(0)));
  EXPECT_EQ(result.stats.error_norm2, 0);
  EXPECT_EQ(result.stats.ResidualBound(), 0);
}

TEST_P(BinCodecTest, EncodingWhatWasDecodedGivesTheSamePayload) {
  const std::vector<float> gradient = RandomFloats(9000, 4);  // no bin of zeros
  const std::unique_ptr<Codec> codec = MakeCodecOrDie(GetParam());
  const Result first = Encode(*codec, gradient, std::vector<float>(9000), 1);
  const Result second = Encode(*codec, first.decoded, std::vector<float>(9000), 1);
  EXPECT_EQ(first.payload, second.payload);
}

TEST_P(BinCodecTest, ErrorFeedbackTelescopes) {
  constexpr size_t kElements = 777;
  constexpr double kHalfStep = 0x1p-24;  // the largest relative error of rounding to fp32
  std::vector<float> residual(kElements);
  // In fp64: the gradients less what was sent, and a bound on the sum of the roundings of x and of
  // x - sent.
  std::vector<double> left(kElements), bound(kElements);
  const std::unique_ptr<Codec> codec = MakeCodecOrDie(GetParam());
  for (uint64_t round = 0; round < 20; ++round) {
    const std::vector<float> gradient = RandomFloats(kElements, round);
    const Result result = Encode(*codec, gradient, residual, 1);
    for (size_t i = 0; i < kElements; ++i) {
      const auto g = static_cast<double>(gradient[i]), before = static_cast<double>(residual[i]);
      const auto after = static_cast<double>(result.residual[i]);
      left[i] += g - static_cast<double>(result.decoded[i]);
      bound[i] += kHalfStep * 1.001 * (std::abs(g + before) + std::abs(after));
      ASSERT_NEAR(left[i], after, bound[i]) << "round " << round << ", element " << i;
    }
    residual = result.residual;
  }
}

TEST_P(BinCodecTest, NonFiniteGradientsLeaveTheResidualAlone) {
  const std::unique_ptr<Codec> codec = MakeCodecOrDie(GetParam());
  for (const float bad : {NAN, INFINITY, -INFINITY}) {
    std::vector<float> gradient = RandomFloats(5000, 1), residual = RandomFloats(5000, 2);
    gradient[4500] = bad;
    const std::vector<float> before = residual;
    std::vector<std::byte> payload(codec->MaxPayloadBytes(5000));
    const auto stats = codec->Encode({.gradient = gradient, .residual = residual}, payload);
    EXPECT_EQ(stats.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(residual, before);
  }
}

TEST_P(BinCodecTest, LayerKindChoosesTheBinLength) {
  const std::vector<float> gradient = RandomFloats(3000, 4), zero(3000);
  const auto length = [&](const std::string& options, LayerKind layer) {
    const Result result = Encode(*MakeCodecOrDie(GetParam() + options), gradient, zero, 1, layer);
    uint16_t bin_length;
    std::memcpy(&bin_length, result.payload.data() + 2, sizeof bin_length);
    return bin_length;
  };
  EXPECT_EQ(length("", LayerKind::kConvolution), 50);
  for (const LayerKind layer : {LayerKind::kOther, LayerKind::kDense, LayerKind::kRecurrent,
                                LayerKind::kEmbedding, LayerKind::kNormalisation}) {
    EXPECT_EQ(length("", layer), 500);
  }
  EXPECT_EQ(length(":lt=800", LayerKind::kConvolution), 800);
  EXPECT_EQ(length(":lt=800", LayerKind::kDense), 800);
  EXPECT_EQ(length(":lt=800,lt_conv=7", LayerKind::kConvolution), 7);
  EXPECT_EQ(length(":lt_fc=5000", LayerKind::kDense), 5000);
  EXPECT_EQ(length(":lt_fc=5000", LayerKind::kConvolution), 50);
}

TEST_P(BinCodecTest, OptionsOutOfRangeAreRefused) {
  for (const char* option : {"lt=0", "lt=16385", "lt_conv=-1", "lt_fc=5x", "lt_fc=", "lt_cnv=50"}) {
    const auto spec = ParseCodecSpec(std::string(GetParam()) + ":" + option);
    const absl::Status status = spec.ok() ? MakeCodec(*spec).status() : spec.status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << option;
  }
}

TEST(AdaComp, HalfTheMaximumIsSentWhenThereIsNoResidual) {
  // H = 2 G. In the first bin 0.5 reaches the maximum 1 and 0.25 does not. The second bin's maximum
  // is 0.5. The scale is 0.75.
  const Result result = Encode(*MakeCodecOrDie("adacomp:lt=4"),
                               {1, -0.5f, 0.25f, 0, -0.5f, 0, 0, 0}, std::vector<float>(8), 1);
  EXPECT_THAT(result.decoded, ElementsAre(0.75f, -0.75f, 0, 0, -0.75f, 0, 0, 0));
  EXPECT_THAT(result.residual, ElementsAre(0.25f, 0.25f, 0.25f, 0, 0.25f, 0, 0, 0));
  EXPECT_EQ(HexFromBytes(result.payload),
            HexFromBytes(BytesFromHex("B9080400 08000000 0000403F 03000000 03 00C1C0")));
}

TEST(AdaComp, ScaleFactorWidensAndOneSendsTheMaximaAlone) {
  const std::vector<float> gradient = {1, -0.5f, 0.4f, 0.3f}, zero(4);
  EXPECT_EQ(
      Encode(*MakeCodecOrDie("adacomp:scale_factor=1"), gradient, zero, 1).stats.elements_sent, 1u);
  EXPECT_EQ(Encode(*MakeCodecOrDie("adacomp"), gradient, zero, 1).stats.elements_sent, 2u);
  EXPECT_EQ(
      Encode(*MakeCodecOrDie("adacomp:scale_factor=3"), gradient, zero, 1).stats.elements_sent, 3u);
  const auto refused = MakeCodec(*ParseCodecSpec("adacomp:scale_factor=0.5"));
  EXPECT_THAT(std::string(refused.status().message()), HasSubstr("1 or more"));
  EXPECT_FALSE(ParseCodecSpec("local_selection:scale_factor=2").ok());
}

TEST(AdaComp, AConstantTensorIsSentWholeAndExactly) {
  const Result result = Encode(*MakeCodecOrDie("adacomp"), std::vector<float>(9999, -0.3f),
                               std::vector<float>(9999), 1);
  EXPECT_EQ(result.stats.elements_sent, 9999u);
  EXPECT_EQ(result.decoded, std::vector<float>(9999, -0.3f));
  EXPECT_EQ(result.stats.error_norm2, 0);
  EXPECT_LE(result.payload.size(), MakeCodecOrDie("adacomp")->MaxPayloadBytes(9999));
}

TEST(AdaComp, BinsOfZerosCountInTheMean) {
  std::vector<float> gradient(100);
  gradient[60] = 4;
  const Result result =
      Encode(*MakeCodecOrDie("adacomp:lt=50"), gradient, std::vector<float>(100), 1);
  EXPECT_EQ(result.scale, 2);
  EXPECT_EQ(result.residual[60], 2);
}

TEST(AdaComp, BinsOfSixtyFourTakeAByteAndLongerOnesTwo) {
  const std::vector<float> gradient = RandomFloats(5000, 6), zero(5000);
  constexpr std::pair<uint32_t, size_t> kEntryBytes[] = {{64, 1}, {65, 2}};
  for (const auto& [length, bytes] : kEntryBytes) {
    const Result result =
        Encode(*MakeCodecOrDie(absl::StrCat("adacomp:lt=", length)), gradient, zero, 1);
    const BinsLayout layout = {length, 5000};
    EXPECT_EQ(result.payload.size(), layout.EntriesOffset() + bytes * result.stats.elements_sent);
  }
}

TEST(LocalSelection, TheFirstOfEqualsIsSent) {
  const Result result = Encode(*MakeCodecOrDie("local_selection:lt=3"),
                               {1, -2, 2, 0, 0, 0, -3, 3, 3}, std::vector<float>(9), 1);
  const float scale = 5.0f / 3;
  EXPECT_THAT(result.decoded, ElementsAre(0, -scale, 0, 0, 0, 0, -scale, 0, 0));
}

TEST(LocalSelection, TheFirstMaximumCountsAcrossBlocks) {
  std::vector<float> gradient(5000, 0.5f);
  gradient[4000] = gradient[4200] = -1;
  const Result result =
      Encode(*MakeCodecOrDie("local_selection:lt=5000"), gradient, std::vector<float>(5000), 1);
  EXPECT_EQ(result.stats.elements_sent, 1u);
  EXPECT_EQ(result.decoded[4000], -1);
}

}  // namespace
}  // namespace slimps
