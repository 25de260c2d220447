// SPDX-License-Identifier: Apache-2.0
// signsgd, terngrad, qsgd, dithering, drive: they send what their papers define, with any kernels.
#include <cmath>
#include <string>

#include "compress/codec/codec.h"
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

constexpr EncodeContext kContext = {
    .key = 0x123456789abcdef0, .partition = 2, .round = 5, .worker = 1};

const char* const kSpecs[] = {"signsgd",
                              "terngrad",
                              "terngrad:clip=0",
                              "qsgd",
                              "qsgd:bits=2",
                              "qsgd:bits=8,bucket=128,norm=max",
                              "qsgd:bits=4,bucket=4096,norm=max",
                              "dithering",
                              "dithering:k=100,normalize=l2",
                              "dithering:partition=natural",
                              "dithering:partition=natural,k=32,normalize=l2",
                              "drive",
                              "drive:scale=mse"};

struct Encoded {
  std::vector<std::byte> payload;
  std::vector<float> decoded;
  EncodeStats stats;
};

Encoded Encode(const Codec& codec, std::span<const float> gradient, std::span<float> residual = {},
               EncodeContext context = kContext) {
  const size_t n = gradient.size();
  Encoded out = {std::vector<std::byte>(codec.MaxPayloadBytes(n)), std::vector<float>(n), {}};
  const auto stats = codec.Encode(
      {.gradient = gradient, .residual = residual, .grad_scale = 0.75f, .context = context},
      out.payload);
  EXPECT_TRUE(stats.ok()) << codec.spec().ToString() << ": " << stats.status();
  if (!stats.ok()) return out;
  out.stats = *stats;
  EXPECT_EQ(stats->payload_bytes, out.payload.size());
  EXPECT_TRUE(ValidatePayload(codec.format(), out.payload, n).ok())
      << codec.spec().ToString() << ": " << ValidatePayload(codec.format(), out.payload, n);
  Decode(codec.format(), out.payload, n, 0, out.decoded);
  return out;
}

TEST(Quantizers, PayloadSizesMeetTheFormulas) {
  for (size_t n : InterestingLengths()) {
    EXPECT_EQ(MakeCodecOrDie("signsgd")->MaxPayloadBytes(n), 16 + (n + 7) / 8);
    EXPECT_EQ(MakeCodecOrDie("terngrad")->MaxPayloadBytes(n), 16 + 2 * ((n + 7) / 8));
    EXPECT_EQ(MakeCodecOrDie("qsgd")->MaxPayloadBytes(n), 16 + 4 * ((n + 511) / 512) + (n + 1) / 2);
    EXPECT_EQ(MakeCodecOrDie("qsgd:bits=8,bucket=128")->MaxPayloadBytes(n),
              16 + 4 * ((n + 127) / 128) + n);
    EXPECT_EQ(MakeCodecOrDie("qsgd:bits=2")->MaxPayloadBytes(n),
              16 + 4 * ((n + 4095) / 4096) + 2 * ((n + 7) / 8));
    EXPECT_EQ(MakeCodecOrDie("dithering")->MaxPayloadBytes(n), 16 + (n + 1) / 2);
    EXPECT_EQ(MakeCodecOrDie("dithering:k=8")->MaxPayloadBytes(n), 16 + n);
    EXPECT_EQ(MakeCodecOrDie("drive")->MaxPayloadBytes(n),
              44 + 4 * ((n + 4095) / 4096) + n / 4096 * 512 + RotatedElements(n % 4096) / 8);
  }
}

TEST(Quantizers, SignsAreSentAsTheyAreAndCombinedByMajority) {
  const auto codec = MakeCodecOrDie("signsgd");
  const std::vector<float> gradient = {3, -0.001f, 0, -1e-44f, -7};
  EXPECT_THAT(Encode(*codec, gradient).decoded, ElementsAre(1, -1, 1, -1, -1));
  EXPECT_EQ(codec->combine(), Combine::kMajority);
  EXPECT_FALSE(codec->wants_residual());
  EXPECT_EQ(codec->Warning(), "");
  EXPECT_THAT(MakeCodecOrDie("signsgd:error_feedback=on")->Warning(), HasSubstr("1bit"));
  for (const char* spec : {"terngrad", "qsgd", "dithering", "drive"}) {
    EXPECT_EQ(MakeCodecOrDie(spec)->combine(), Combine::kSum);
    EXPECT_FALSE(MakeCodecOrDie(spec)->wants_residual());
    EXPECT_TRUE(MakeCodecOrDie(std::string(spec) + ":error_feedback=on")->wants_residual());
  }
}

// Every kernel set gives the same payload, residual and statistics, at
// every length, with awkward numbers too.
TEST(Quantizers, EveryKernelSetGivesTheSameBits) {
  for (const std::string spec : kSpecs) {
    for (size_t n : InterestingLengths()) {
      const std::vector<float> gradient = AwkwardFloats(n, n);
      std::vector<float> wanted = RandomFloats(n, n + 1);
      const std::vector<float> before = wanted;
      const Encoded scalar = Encode(*MakeCodecOrDie(spec, "scalar"), gradient, wanted);
      for (const Kernels* kernels : AllKernels()) {
        if (!kernels->runs_here()) continue;
        std::vector<float> residual = before;
        const Encoded mine = Encode(*MakeCodecOrDie(spec, kernels->name), gradient, residual);
        ASSERT_EQ(mine.payload, scalar.payload) << spec << " " << n << " " << kernels->name;
        ASSERT_EQ(Difference(residual, wanted), "") << spec << " " << n;
        ASSERT_EQ(mine.stats.error_norm2, scalar.stats.error_norm2);
        ASSERT_EQ(mine.stats.decoded_norm2, scalar.stats.decoded_norm2);
        ASSERT_EQ(mine.stats.input_norm2, scalar.stats.input_norm2);
        ASSERT_EQ(mine.stats.elements_sent, scalar.stats.elements_sent);
      }
    }
  }
}

// Computes x and e by the definition, from the decoded payload. Over rounds, error feedback
// therefore telescopes.
TEST(Quantizers, ResidualIsExactlyXMinusDecoded) {
  for (const char* spec : kSpecs) {
    const auto codec = MakeCodecOrDie(spec);
    for (size_t n : {1, 31, 4095, 4096, 3 * 4096 + 5}) {
      std::vector<float> residual(n), wanted(n);
      for (uint64_t round = 1; round <= 4; ++round) {
        const std::vector<float> gradient = AwkwardFloats(n, round);
        EncodeContext context = kContext;
        context.round = round;
        const Encoded encoded = Encode(*codec, gradient, residual, context);
        double error2 = 0;
        for (size_t i = 0; i < n; ++i) {
          const float scaled = gradient[i] * 0.75f;
          wanted[i] = (scaled + wanted[i]) - encoded.decoded[i];
          error2 += static_cast<double>(wanted[i]) * static_cast<double>(wanted[i]);
        }
        ASSERT_EQ(Difference(residual, wanted), "") << spec << " round " << round;
        if (error2 < 1e30) {
          EXPECT_NEAR(encoded.stats.error_norm2, error2, 1e-3 * error2) << spec;
        }
      }
    }
  }
}

// Over 10,000 rounds a mean has a standard deviation of at most step / 2 / 100, where step is the
// distance of the two numbers that x may become. The bound is seven deviations, plus 2^-17 steps
// for the rounding. 12 elements of 8 codecs exceed it once in 10^10 runs.
TEST(Quantizers, MeansOfTenThousandDrawsAreTheGradients) {
  constexpr int kDraws = 10000;
  const std::vector<float> gradient = {1.0f, -0.9f,  0.5f,   -0.3f,    0.11f, -0.05f,
                                       0.0f, 0.013f, 0.004f, -0.0007f, 1e-4f, -1e-6f};
  for (const char* spec : {"terngrad:clip=0", "qsgd", "qsgd:bits=2", "qsgd:bits=8,norm=max",
                           "dithering", "dithering:k=3,normalize=l2", "dithering:partition=natural",
                           "dithering:partition=natural,k=20"}) {
    const auto codec = MakeCodecOrDie(spec);
    std::vector<double> sum(gradient.size());
    std::vector<float> least(gradient.size(), INFINITY), most(gradient.size(), -INFINITY);
    for (int draw = 1; draw <= kDraws; ++draw) {
      EncodeContext context = kContext;
      context.round = static_cast<uint64_t>(draw);
      const std::vector<float> decoded = Encode(*codec, gradient, {}, context).decoded;
      for (size_t i = 0; i < sum.size(); ++i) {
        sum[i] += static_cast<double>(decoded[i]);
        least[i] = std::min(least[i], decoded[i]);
        most[i] = std::max(most[i], decoded[i]);
      }
    }
    for (size_t i = 0; i < sum.size(); ++i) {
      const double step = static_cast<double>(most[i]) - static_cast<double>(least[i]);
      // If step is 0, no draw sent the element. Its probability of being sent is then under 30 /
      // draws.
      const double bound = step > 0 ? step * (7.0 / 200 + 0x1p-17) : 0.003;
      EXPECT_NEAR(sum[i] / kDraws, 0.75 * static_cast<double>(gradient[i]), bound)
          << spec << " " << i;
    }
  }
}

TEST(Quantizers, NumbersDependOnSeedKeyRoundWorkerAndPartition) {
  const std::vector<float> gradient = RandomFloats(1000, 3);
  for (const std::string spec :
       {"terngrad", "qsgd", "dithering", "dithering:partition=natural", "drive"}) {
    const auto codec = MakeCodecOrDie(spec);
    const auto payload = Encode(*codec, gradient).payload;
    EXPECT_EQ(Encode(*codec, gradient).payload, payload) << "the same numbers again";
    const std::string seeded = spec + (spec.find(':') == std::string::npos ? ":" : ",") + "seed=9";
    EXPECT_NE(Encode(*MakeCodecOrDie(seeded), gradient).payload, payload);
    for (int field = 0; field < 4; ++field) {
      EncodeContext context = kContext;
      if (field == 0) context.key ^= uint64_t{1} << 40;
      if (field == 1) ++context.round;
      if (field == 2) ++context.worker;
      if (field == 3) ++context.partition;
      EXPECT_NE(Encode(*codec, gradient, {}, context).payload, payload) << spec << " " << field;
    }
  }
}

TEST(Quantizers, ZerosStayZerosAndSoDoDenormalsOfATinyNorm) {
  for (const char* spec : kSpecs) {
    if (spec == std::string_view("signsgd") || std::string_view(spec).starts_with("drive"))
      continue;
    for (const std::vector<float>& x :
         {std::vector<float>(5000), std::vector<float>(5000, -1e-40f)}) {
      std::vector<float> residual(x.size());
      const Encoded encoded = Encode(*MakeCodecOrDie(spec), x, residual);
      EXPECT_EQ(Difference(encoded.decoded, std::vector<float>(x.size())), "") << spec;
      EXPECT_EQ(residual[7], x[7] * 0.75f) << spec << ": nothing is lost";
    }
  }
}

TEST(Quantizers, ConstantTensorsAreKeptWholeByMaxNorms) {
  const std::vector<float> x(5000, -0.4f);
  for (const char* spec : {"terngrad", "qsgd:norm=max", "dithering", "dithering:partition=natural",
                           "qsgd:bits=8,norm=max", "dithering:k=127"}) {
    const Encoded encoded = Encode(*MakeCodecOrDie(spec), x);
    for (const float value : encoded.decoded) ASSERT_NEAR(value, -0.3f, 1e-7f) << spec;
  }
}

TEST(Quantizers, EncodingWhatWasDecodedByMaxNormGivesItAgain) {
  std::vector<float> x = RandomFloats(9000, 8);
  for (size_t i = 0; i < x.size(); i += 512) x[i] = 5;  // each bucket keeps its norm
  for (const char* spec : {"qsgd:norm=max", "dithering", "dithering:partition=natural"}) {
    const auto codec = MakeCodecOrDie(spec);
    std::vector<float> once = Encode(*codec, x).decoded;
    for (float& value : once) value /= 0.75f;
    const Encoded twice = Encode(*codec, once);
    for (size_t i = 0; i < x.size(); ++i) {
      ASSERT_NEAR(twice.decoded[i], once[i] * 0.75f, 2e-6) << spec << " " << i;
    }
  }
}

TEST(Quantizers, TernGradClipsAtSoManyDeviations) {
  std::vector<float> x(10000, 0);
  for (size_t i = 0; i < x.size(); ++i) x[i] = i % 2 == 0 ? 1.0f : -1.0f;
  x[77] = 100;  // sigma is 1.414
  const auto largest = [&](const char* spec) {
    const Encoded encoded = Encode(*MakeCodecOrDie(spec), x);
    EXPECT_GT(encoded.decoded[77], 0) << "what is clipped is always sent";
    return *std::max_element(encoded.decoded.begin(), encoded.decoded.end());
  };
  EXPECT_NEAR(largest("terngrad"), 0.75f * 2.5f * std::sqrt((9999 + 1e4f) / 1e4f), 1e-3f);
  EXPECT_EQ(largest("terngrad:clip=0"), 75);
}

// A block of one value, padded with zeros, is where signs after a rotation lose nothing.
TEST(Quantizers, DriveKeepsSingleElementsAndTheirZeros) {
  const auto codec = MakeCodecOrDie("drive");
  for (const size_t n : {1, 16, 4096, 5000}) {
    std::vector<float> x(n), residual(n);
    x[n - 1] = -2;
    const Encoded encoded = Encode(*codec, x, residual);
    for (size_t i = 0; i < n; ++i) {
      EXPECT_EQ(encoded.decoded[i], x[i] * 0.75f) << i;
      EXPECT_EQ(residual[i], 0) << i;
    }
    EXPECT_EQ(encoded.stats.error_norm2, 0);
  }
}

TEST(Quantizers, DriveKeepsTheInnerProductOfEachBlock) {
  for (const size_t n : {7, 3000, 4096}) {
    const std::vector<float> x = RandomFloats(n, n);
    const Encoded encoded = Encode(*MakeCodecOrDie("drive"), x);
    double product = 0, squares = 0;
    for (size_t i = 0; i < n; ++i) {
      product += static_cast<double>(x[i] * 0.75f) * static_cast<double>(encoded.decoded[i]);
      squares += std::pow(static_cast<double>(x[i] * 0.75f), 2);
    }
    EXPECT_NEAR(product, squares, 1e-5 * squares);
    EXPECT_NEAR(encoded.stats.input_norm2, squares, 1e-5 * squares);
  }
}

TEST(Quantizers, BadGradientsAreRefusedAndLeaveTheResidual) {
  for (const char* spec : kSpecs) {
    const auto codec = MakeCodecOrDie(spec);
    for (float bad : {NAN, INFINITY, -INFINITY}) {
      std::vector<float> gradient = RandomFloats(5000, 1), residual = RandomFloats(5000, 2);
      const std::vector<float> before = residual;
      gradient[4500] = bad;
      std::vector<std::byte> payload(codec->MaxPayloadBytes(5000));
      const auto stats = codec->Encode({.gradient = gradient, .residual = residual}, payload);
      EXPECT_THAT(std::string(stats.status().message()), HasSubstr("element 4500")) << spec;
      EXPECT_EQ(Difference(residual, before), "");
    }
  }
}

TEST(Quantizers, OptionsOutOfRangeAreRefused) {
  const struct {
    const char* spec;
    const char* complaint;
  } cases[] = {{"qsgd:bits=3", "bits"},
               {"qsgd:bucket=64", "128 to 4096"},
               {"qsgd:bucket=1000", "a power of two"},
               {"qsgd:bits=2,bucket=512", "4096 to 4096"},
               {"qsgd:norm=l1", "norm"},
               {"qsgd:seed=-1", "seed"},
               {"dithering:k=0", "1 to 127"},
               {"dithering:k=128", "1 to 127"},
               {"dithering:partition=natural,k=33", "1 to 32"},
               {"dithering:partition=cubic", "partition"},
               {"dithering:normalise=max", "did you mean 'normalize'"},
               {"terngrad:clip=-1", "clip"},
               {"drive:scale=l1", "scale"},
               {"signsgd:scaling=l1", "option"}};
  for (const auto& c : cases) {
    const auto spec = ParseCodecSpec(c.spec);
    const absl::Status status = spec.ok() ? MakeCodec(*spec).status() : spec.status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << c.spec;
    EXPECT_THAT(std::string(status.message()), HasSubstr(c.complaint)) << c.spec;
  }
}

}  // namespace
}  // namespace slimps
