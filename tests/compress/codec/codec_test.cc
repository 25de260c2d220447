// SPDX-License-Identifier: Apache-2.0
#include "compress/codec/codec.h"

#include <cmath>
#include <string>

#include "compress/codec/block_codec.h"
#include "compress/codec/encode_run.h"
#include "compress/kernels/kernels.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/compress/codec/make_codec.h"
#include "tests/compress/test_data.h"

namespace slimps {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

const char* const kSpecs[] = {"none",
                              "fp16",
                              "bf16",
                              "1bit",
                              "1bit:scaling=two_mean",
                              "1bit:scaling=none",
                              "1bit:scaling=none,threshold=0.25",
                              "2bit",
                              "2bit:threshold=0.125"};

std::vector<std::byte> Encode(const Codec& codec, std::span<const float> gradient,
                              std::span<float> residual = {}, float grad_scale = 1) {
  std::vector<std::byte> payload(codec.MaxPayloadBytes(gradient.size()));
  const auto stats =
      codec.Encode({.gradient = gradient, .residual = residual, .grad_scale = grad_scale}, payload);
  EXPECT_TRUE(stats.ok()) << stats.status();
  payload.resize(stats.ok() ? stats->payload_bytes : 0);
  EXPECT_TRUE(ValidatePayload(codec.format(), payload, gradient.size()).ok())
      << ValidatePayload(codec.format(), payload, gradient.size());
  return payload;
}

std::vector<float> DecodeAll(const Codec& codec, std::span<const std::byte> payload, size_t n) {
  std::vector<float> out(n);
  Decode(codec.format(), payload, n, 0, out);
  return out;
}

TEST(Codec, GoldenPayloads) {
  const std::vector<float> gradient = {1.0f, -0.5f, 0.25f, -0.25f, 0.0f};
  const struct {
    std::string spec, hex;
  } cases[] = {
      {"none", "0000803F 000000BF 0000803E 000080BE 00000000"},
      {"fp16", "003C 00B8 0034 00B4 0000"},
      {"bf16", "803F 00BF 803E 80BE 0000"},
      {"1bit", "B7010100 05000000 00100000 00000000  CDCCCC3E  15"},  // 2 / 5
      {"1bit:scaling=two_mean",                                       // 1.25 / 3 and -0.75 / 2
       "B7010200 05000000 00100000 00000000  5555D53E 0000C0BE  15"},
      {"1bit:scaling=none", "B7010000 05000000 00100000 0000803F  05"},
      {"1bit:scaling=none,threshold=0.25", "B7010000 05000000 00100000 0000803F  01"},
      {"2bit", "B7020000 05000000 00100000 0000003F  01 02"},
      {"2bit:threshold=0.25", "B7020000 05000000 00100000 0000803E  05 0A"},
  };
  for (const auto& c : cases) {
    for (const char* kernels : {"scalar", ""}) {
      EXPECT_EQ(HexFromBytes(Encode(*MakeCodecOrDie(c.spec, kernels), gradient)),
                HexFromBytes(BytesFromHex(c.hex)))
          << c.spec;
    }
  }
}

TEST(Codec, ResidualIsWhatWasNotSent) {
  const std::vector<float> gradient = {1.0f, -0.5f, 0.25f, -0.25f, 0.0f};
  std::vector<float> residual(5);
  Encode(*MakeCodecOrDie("1bit:scaling=none"), gradient, residual);
  EXPECT_THAT(residual, ElementsAre(0.0f, 0.5f, -0.75f, 0.75f, 1.0f));
  residual.assign(5, 0);
  Encode(*MakeCodecOrDie("2bit"), gradient, residual);
  EXPECT_THAT(residual, ElementsAre(0.5f, 0.0f, 0.25f, -0.25f, 0.0f));
  residual = {0, 0, 0.5f, 0, 0};
  Encode(*MakeCodecOrDie("2bit"), gradient, residual, 2.0f);  // x = 2, -1, 1, -0.5, 0
  EXPECT_THAT(residual, ElementsAre(1.5f, -0.5f, 0.5f, 0.0f, 0.0f));
}

TEST(Codec, RawPushWithAResidualSendsAndClearsIt) {
  const std::vector<float> gradient = {1, 2, 3};
  std::vector<float> residual = {0.5f, 0, -1};
  const auto codec = MakeCodecOrDie("none");
  const auto payload = Encode(*codec, gradient, residual, 2);
  EXPECT_THAT(DecodeAll(*codec, payload, 3), ElementsAre(2.5f, 4.0f, 5.0f));
  EXPECT_THAT(residual, ElementsAre(0, 0, 0));
}

// Computes x and e by the definition, one element at a time, from the decoded payload.
TEST(Codec, ResidualIsExactlyXMinusDecoded) {
  for (const char* spec : kSpecs) {
    const auto codec = MakeCodecOrDie(spec);
    for (size_t n : {1, 31, 4096, 2 * 4096 + 1001}) {
      const std::vector<float> gradient = RandomFloats(n, n), before = RandomFloats(n, n + 1);
      std::vector<float> residual = before, wanted(n);
      const std::vector<float> decoded =
          DecodeAll(*codec, Encode(*codec, gradient, residual, 0.375f), n);
      for (size_t i = 0; i < n; ++i) {
        const float scaled = gradient[i] * 0.375f;
        wanted[i] = (scaled + before[i]) - decoded[i];
      }
      EXPECT_EQ(Difference(residual, wanted), "") << spec;
    }
  }
}

// The sum of all that was sent, plus the last residual, is the sum of the gradients up to fp32
// rounding.
TEST(Codec, ErrorFeedbackTelescopes) {
  constexpr size_t kElements = 4096 + 100;
  constexpr int kRounds = 50;
  for (const char* spec : kSpecs) {
    const auto codec = MakeCodecOrDie(spec);
    std::vector<float> residual(kElements);
    std::vector<double> pushed(kElements), sent(kElements);
    for (int round = 0; round < kRounds; ++round) {
      const std::vector<float> gradient = RandomFloats(kElements, static_cast<uint64_t>(round));
      const auto decoded = DecodeAll(*codec, Encode(*codec, gradient, residual), kElements);
      for (size_t i = 0; i < kElements; ++i) {
        pushed[i] += gradient[i];
        sent[i] += decoded[i];
      }
    }
    for (size_t i = 0; i < kElements; ++i) {
      ASSERT_NEAR(sent[i] + residual[i], pushed[i], 1e-4) << spec << " element " << i;
    }
  }
}

TEST(Codec, ScalarAndBestKernelsGiveTheSamePayloadAndResidual) {
  for (const char* spec : kSpecs) {
    const auto scalar = MakeCodecOrDie(spec, "scalar");
    const auto best = MakeCodecOrDie(spec);
    for (size_t n : InterestingLengths()) {
      std::vector<float> gradient = AwkwardFloats(n, n);
      if (std::string_view(spec).ends_with("16")) {
        for (float& value : gradient) value = std::clamp(value, -1e3f, 1e3f);
      }
      std::vector<float> mine = RandomFloats(n, n + 1), wanted = mine;
      for (int round = 0; round < 2; ++round) {
        ASSERT_EQ(Encode(*best, gradient, mine), Encode(*scalar, gradient, wanted)) << spec << n;
        ASSERT_EQ(Difference(mine, wanted), "") << spec;
      }
      ASSERT_EQ(Encode(*best, gradient), Encode(*scalar, gradient));
    }
  }
}

TEST(Codec, PayloadSizeIsKnownBeforehand) {
  for (const char* spec : kSpecs) {
    const auto codec = MakeCodecOrDie(spec);
    for (size_t n : InterestingLengths()) {
      EXPECT_EQ(Encode(*codec, RandomFloats(n, n)).size(), codec->MaxPayloadBytes(n));
    }
  }
  EXPECT_GT(4.0e6 / static_cast<double>(MakeCodecOrDie("1bit")->MaxPayloadBytes(1'000'000)), 30);
  EXPECT_GT(4.0e6 / static_cast<double>(MakeCodecOrDie("2bit")->MaxPayloadBytes(1'000'000)), 15.9);
}

TEST(Codec, NonFiniteGradientsAreRefusedAndTheResidualStays) {
  constexpr size_t kElements = 3 * 4096 + 17;
  for (const char* spec : kSpecs) {
    const auto codec = MakeCodecOrDie(spec);
    for (size_t bad : {size_t{0}, size_t{4095}, size_t{4096}, kElements - 1}) {
      for (float value : {NAN, INFINITY, -INFINITY}) {
        std::vector<float> gradient = RandomFloats(kElements, 1);
        gradient[bad] = value;
        const std::vector<float> before = RandomFloats(kElements, 2);
        std::vector<float> residual = before;
        std::vector<std::byte> payload(codec->MaxPayloadBytes(kElements));
        const auto stats = codec->Encode({.gradient = gradient, .residual = residual}, payload);
        ASSERT_EQ(stats.status().code(), absl::StatusCode::kInvalidArgument) << spec;
        EXPECT_THAT(std::string(stats.status().message()),
                    HasSubstr(absl::StrCat("element ", bad, " of ", kElements)));
        EXPECT_EQ(residual, before);
      }
    }
  }
}

TEST(Codec, FiniteValuesThatOverflowAreRefused) {
  const auto refused = [](const char* spec, std::vector<float> gradient, float grad_scale,
                          std::vector<float> residual) {
    const auto codec = MakeCodecOrDie(spec);
    const std::vector<float> before = residual;
    std::vector<std::byte> payload(codec->MaxPayloadBytes(gradient.size()));
    const auto stats = codec->Encode(
        {.gradient = gradient, .residual = residual, .grad_scale = grad_scale}, payload);
    EXPECT_EQ(residual, before);
    return !stats.ok() && stats.status().message().find("exceeds") != std::string::npos;
  };
  EXPECT_TRUE(refused("none", {3e38f}, 2, {}));
  EXPECT_TRUE(refused("none", {3e38f}, 1, {3e38f}));
  EXPECT_FALSE(refused("none", {3e38f}, 1, {}));
  EXPECT_TRUE(refused("2bit", {3e38f}, 2, {0}));
  EXPECT_TRUE(refused("1bit", {1e38f}, 1, {}));  // a block's sum could overflow
  EXPECT_FALSE(refused("1bit", {4e34f}, 1, {}));
  EXPECT_TRUE(refused("fp16", {65520.0f}, 1, {}));
  EXPECT_FALSE(refused("fp16", {65519.996f}, 1, {}));
  EXPECT_TRUE(refused("bf16", {3.4e38f}, 1, {}));
  EXPECT_FALSE(refused("bf16", {3.38e38f}, 1, {}));
}

TEST(Codec, LargestAcceptedValuesStayFinite) {
  for (const char* spec : {"1bit", "1bit:scaling=two_mean"}) {
    const auto codec = MakeCodecOrDie(spec);
    const std::vector<float> gradient(4096, 0x1p115f);
    std::vector<float> residual(4096);
    const auto decoded = DecodeAll(*codec, Encode(*codec, gradient, residual), 4096);
    EXPECT_EQ(decoded[0], 0x1p115f);
    EXPECT_EQ(residual[4095], 0.0f);
  }
  const std::vector<float> half = {65519.996f, -65519.996f};
  const auto fp16 = MakeCodecOrDie("fp16");
  EXPECT_THAT(DecodeAll(*fp16, Encode(*fp16, half), 2), ElementsAre(65504.0f, -65504.0f));
}

TEST(Codec, ZerosEncodeToZeros) {
  for (const char* spec : {"none", "fp16", "1bit", "1bit:scaling=two_mean", "2bit"}) {
    const auto codec = MakeCodecOrDie(spec);
    const std::vector<float> zeros(100, -0.0f);
    std::vector<float> residual(100);
    for (float value : DecodeAll(*codec, Encode(*codec, zeros, residual), 100)) {
      EXPECT_EQ(value, 0.0f) << spec;
    }
    EXPECT_EQ(residual, std::vector<float>(100, 0.0f));
  }
}

TEST(Codec, TwoMeanOfOneSignOnlySendsZeroForTheOther) {
  const auto codec = MakeCodecOrDie("1bit:scaling=two_mean");
  const std::vector<float> negative = {-1, -3};
  EXPECT_THAT(DecodeAll(*codec, Encode(*codec, negative), 2), ElementsAre(-2.0f, -2.0f));
}

TEST(Codec, LengthsThatDisagreeAreRefused) {
  const auto codec = MakeCodecOrDie("1bit");
  const std::vector<float> gradient(10);
  std::vector<float> residual(9);
  std::vector<std::byte> payload(codec->MaxPayloadBytes(10));
  EXPECT_EQ(codec->Encode({.gradient = gradient, .residual = residual}, payload).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_FALSE(
      codec->Encode({.gradient = gradient, .residual = {}}, std::span(payload).first(21)).ok());
  EXPECT_FALSE(
      codec->Encode({.gradient = gradient, .residual = {}, .grad_scale = NAN}, payload).ok());
  EXPECT_TRUE(codec->Encode({.gradient = gradient, .residual = {}}, payload).ok());
}

// As servers do it (server/round/change_encoder.h).
TEST(Codec, BlocksEncodedInAnyOrderGiveTheWholePayload) {
  constexpr size_t kElements = 5 * 4096 + 3;
  const std::vector<float> gradient = RandomFloats(kElements, 4);
  for (const char* spec : kSpecs) {
    const auto codec = MakeCodecOrDie(spec);
    const auto& by_blocks = dynamic_cast<const BlockCodec&>(*codec);
    std::vector<float> whole_residual(kElements), residual(kElements);
    const auto whole = Encode(*codec, gradient, whole_residual);
    std::vector<std::byte> payload(codec->MaxPayloadBytes(kElements));
    const EncodeInput input = {.gradient = gradient, .residual = residual};
    by_blocks.BuildHeader(input, payload);
    for (size_t block : {3, 0, 5, 4, 1, 2}) by_blocks.EncodeBlock(input, block, payload);
    EXPECT_EQ(payload, whole) << spec;
    EXPECT_EQ(Difference(residual, whole_residual), "");
  }
}

TEST(Codec, AWorkspaceServesOneEncodingAfterTheOther) {
  EncodeWorkspace workspace;
  for (size_t i = 0; i < 12; ++i) {
    const auto codec = MakeCodecOrDie(i % 2 == 0 ? "topk" : "2bit:clip=1");
    std::vector<float> gradient = RandomFloats(i * 9000, i), residual(gradient.size());
    std::vector<std::byte> payload(codec->MaxPayloadBytes(gradient.size()));
    if (i == 3 || i == 8) {
      gradient[100] = NAN;
      EXPECT_EQ(codec->Encode({.gradient = gradient, .residual = residual}, payload, workspace)
                    .status()
                    .code(),
                absl::StatusCode::kInvalidArgument);
      continue;
    }
    std::vector<float> alone_residual = residual;
    const auto alone = Encode(*codec, gradient, alone_residual);
    const auto stats =
        codec->Encode({.gradient = gradient, .residual = residual}, payload, workspace);
    ASSERT_TRUE(stats.ok()) << stats.status();
    payload.resize(stats->payload_bytes);
    EXPECT_EQ(payload, alone) << i;
    EXPECT_EQ(Difference(residual, alone_residual), "");
  }
}

double Norm2(std::span<const float> values) {
  double sum = 0;
  for (const float value : values) sum += static_cast<double>(value) * static_cast<double>(value);
  return sum;
}

TEST(Codec, StatisticsAreThoseOfInputPayloadAndError) {
  for (const char* spec : kSpecs) {
    for (size_t n : {size_t{1}, size_t{77}, size_t{4096}, size_t{3 * 4096 + 5}}) {
      for (const bool feedback : {false, true}) {
        const auto codec = MakeCodecOrDie(spec);
        const std::vector<float> gradient = RandomFloats(n, n);
        std::vector<float> residual = feedback ? RandomFloats(n, n + 1) : std::vector<float>();
        std::vector<float> x = gradient;
        for (size_t i = 0; i < residual.size(); ++i) x[i] += residual[i];
        std::vector<std::byte> payload(codec->MaxPayloadBytes(n));
        const auto stats = codec->Encode({.gradient = gradient, .residual = residual}, payload);
        ASSERT_TRUE(stats.ok()) << stats.status();
        const std::vector<float> decoded = DecodeAll(*codec, payload, n);
        std::vector<float> error = x;
        for (size_t i = 0; i < n; ++i) error[i] -= decoded[i];
        const double scale = Norm2(x) + Norm2(decoded);
        EXPECT_NEAR(stats->input_norm2, Norm2(x), 1e-5 * scale) << spec << " n " << n;
        EXPECT_NEAR(stats->decoded_norm2, Norm2(decoded), 1e-5 * scale) << spec << " n " << n;
        EXPECT_NEAR(stats->error_norm2, Norm2(error), 1e-5 * scale) << spec << " n " << n;
        if (!feedback) continue;
        EXPECT_EQ(Difference(residual, error), "");
        for (const float e : residual) ASSERT_LE(std::abs(e), stats->ResidualBound());
      }
    }
  }
}

TEST(Codec, StatisticsOfSquaresThatOverflowAreInfiniteAndNeverNaN) {
  const std::vector<float> gradient(5000, 1e25f);
  for (const char* spec : {"1bit", "1bit:scaling=two_mean", "2bit", "2bit:threshold=1e30",
                           "randomk:ratio=0.5", "randomk:ratio=0.5,scaled=on"}) {
    for (const bool feedback : {false, true}) {
      const auto codec = MakeCodecOrDie(spec);
      std::vector<float> residual(feedback ? gradient.size() : 0);
      std::vector<std::byte> payload(codec->MaxPayloadBytes(gradient.size()));
      const auto stats = codec->Encode({.gradient = gradient, .residual = residual}, payload);
      ASSERT_TRUE(stats.ok()) << stats.status();
      EXPECT_EQ(stats->input_norm2, INFINITY) << spec;
      EXPECT_FALSE(std::isnan(stats->decoded_norm2)) << spec;
      EXPECT_FALSE(std::isnan(stats->error_norm2)) << spec;
      if (!feedback) {
        EXPECT_EQ(stats->error_norm2, INFINITY) << spec;
      }
    }
  }
}

TEST(Codec, KnownBoundsLeaveTheLookForNaNOut) {
  const auto codec = MakeCodecOrDie("1bit");
  std::vector<float> gradient(5000, 1.0f), residual(5000);
  // This breaks the caller's promise of bounds. Only a codec that looks at the elements notices it.
  gradient[4999] = NAN;
  std::vector<std::byte> payload(codec->MaxPayloadBytes(gradient.size()));
  EncodeInput input = {.gradient = gradient, .residual = residual};
  EXPECT_FALSE(codec->KnownEncodable(input));
  EXPECT_FALSE(codec->Encode(input, payload).ok());
  input.gradient_bound = 1;
  EXPECT_FALSE(codec->KnownEncodable(input)) << "the residual's bound is not known";
  input.residual_bound = 2;
  EXPECT_TRUE(codec->KnownEncodable(input));
  EXPECT_TRUE(codec->Encode(input, payload).ok());
  input.grad_scale = 1e38f;
  EXPECT_FALSE(codec->KnownEncodable(input)) << "over what 1bit can sum";
}

}  // namespace
}  // namespace slimps
