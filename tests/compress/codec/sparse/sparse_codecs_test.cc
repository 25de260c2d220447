// SPDX-License-Identifier: Apache-2.0
// What holds for every codec of the sparse format except adacomp: states, statistics, sizes, kernel
// sets.
#include <cmath>
#include <random>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/compress/codec/sparse/sparse_test_util.h"

namespace slimps {
namespace {

using ::testing::HasSubstr;

const char* const kSpecs[] = {"topk:ratio=0.05",
                              "topk:ratio=0.05,value=fp16",
                              "topk:ratio=0.6",
                              "mstopk:ratio=0.05",
                              "mstopk:ratio=0.05,passes=3,value=fp16",
                              "redsync:ratio=0.05",
                              "redsync:ratio=0.9",
                              "threshold:tau=2",
                              "threshold:tau=0.1",
                              "threshold:tau=2,value=fp32",
                              "randomk:ratio=0.05",
                              "randomk:ratio=0.05,value=fp16,seed=7",
                              "randomk:ratio=0.05,scaled=on"};

std::vector<float> TameFloats(size_t n, uint64_t seed) {  // awkward, but within fp16 and every sum
  std::vector<float> values = AwkwardFloats(n, seed);
  for (float& value : values) value = std::clamp(value, -1e3f, 1e3f);
  return values;
}

TEST(SparseCodecs, AllKernelsGiveTheSamePayloadResidualAndStatistics) {
  std::vector<size_t> lengths = InterestingLengths();
  lengths.push_back(3 * 4096 + 5);
  for (const char* spec : kSpecs) {
    const auto scalar = MakeCodecOrDie(spec, "scalar");
    for (const Kernels* kernels : AllKernels()) {
      if (!kernels->runs_here() || kernels->name == "scalar") continue;
      const auto codec = MakeCodecOrDie(spec, kernels->name);
      for (const size_t n : lengths) {
        const std::vector<float> gradient = TameFloats(n, n);
        std::vector<float> mine = RandomFloats(n, n + 1), wanted = mine;
        for (uint64_t round = 1; round <= 2; ++round) {
          const auto input = [&](std::span<float> residual) {
            return EncodeInput{.gradient = gradient,
                               .residual = residual,
                               .grad_scale = 0.75f,
                               .context = {.key = 3, .round = round}};
          };
          const Encoded a = EncodeChecked(*codec, input(mine));
          const Encoded b = EncodeChecked(*scalar, input(wanted));
          ASSERT_EQ(a.payload, b.payload) << spec << " n " << n;
          ASSERT_EQ(Difference(mine, wanted), "") << spec;
          ASSERT_EQ(a.stats.elements_sent, b.stats.elements_sent);
          ASSERT_EQ(a.stats.input_norm2, b.stats.input_norm2);
          ASSERT_EQ(a.stats.decoded_norm2, b.stats.decoded_norm2);
          ASSERT_EQ(a.stats.error_norm2, b.stats.error_norm2);
          ASSERT_EQ(EncodeChecked(*codec, input({})).payload,
                    EncodeChecked(*scalar, input({})).payload);
        }
      }
    }
  }
}

TEST(SparseCodecs, ResidualIsExactlyXMinusDecoded) {
  for (const char* spec : kSpecs) {
    const auto codec = MakeCodecOrDie(spec);
    for (const size_t n : {1, 31, 4096, 2 * 4096 + 1001, 20 * 4096}) {
      const std::vector<float> gradient = RandomFloats(n, n), before = RandomFloats(n, n + 1);
      std::vector<float> residual = before, wanted(n);
      const Encoded encoded = EncodeChecked(*codec, {.gradient = gradient,
                                                     .residual = residual,
                                                     .grad_scale = 0.375f,
                                                     .context = {.round = 1}});
      const std::vector<float> decoded = DecodeAllSparse(encoded.payload, n);
      for (size_t i = 0; i < n; ++i) {
        const float scaled = gradient[i] * 0.375f;
        wanted[i] = (scaled + before[i]) - decoded[i];
      }
      ASSERT_EQ(Difference(residual, wanted), "") << spec << " n " << n;
    }
  }
}

TEST(SparseCodecs, ErrorFeedbackTelescopes) {
  constexpr size_t kElements = 4096 + 100;
  for (const char* spec : kSpecs) {
    if (std::string_view(spec).find("scaled") != std::string_view::npos) continue;  // diverges
    const auto codec = MakeCodecOrDie(spec);
    std::vector<float> residual(kElements);
    std::vector<double> pushed(kElements), sent(kElements);
    for (uint64_t round = 1; round <= 40; ++round) {
      const std::vector<float> gradient = RandomFloats(kElements, round);
      const Encoded encoded = EncodeChecked(
          *codec, {.gradient = gradient, .residual = residual, .context = {.round = round}});
      const auto decoded = DecodeAllSparse(encoded.payload, kElements);
      for (size_t i = 0; i < kElements; ++i) {
        pushed[i] += gradient[i];
        sent[i] += decoded[i];
      }
    }
    for (size_t i = 0; i < kElements; ++i) {
      ASSERT_NEAR(sent[i] + residual[i], pushed[i], 2e-4) << spec << " element " << i;
    }
  }
}

TEST(SparseCodecs, StatisticsAreThoseOfInputDecodedAndError) {
  for (const char* spec : kSpecs) {
    for (const bool feedback : {false, true}) {
      for (const size_t n : {0, 100, 5 * 4096 + 3}) {
        const std::vector<float> gradient = RandomFloats(n, 1);
        std::vector<float> residual(feedback ? n : 0);
        const Encoded encoded = EncodeSparse(spec, gradient, residual);
        const auto decoded = DecodeAllSparse(encoded.payload, n);
        double input2 = 0, decoded2 = 0, error2 = 0;
        for (size_t i = 0; i < n; ++i) {
          const double x = gradient[i], y = decoded[i];
          input2 += x * x;
          decoded2 += y * y;
          error2 += (x - y) * (x - y);
        }
        const EncodeStats& stats = encoded.stats;
        EXPECT_NEAR(stats.input_norm2, input2, 1e-4 * input2) << spec;
        EXPECT_NEAR(stats.decoded_norm2, decoded2, 1e-4 * decoded2) << spec;
        EXPECT_NEAR(stats.error_norm2, error2, 1e-4 * (error2 + input2)) << spec;
        EXPECT_EQ(stats.payload_bytes, encoded.payload.size());
      }
    }
  }
}

// Small elements beside a spike must not be lost in the square of the spike.
TEST(SparseCodecs, NoResidualExceedsItsBound) {
  for (const char* spec : kSpecs) {
    if (std::string_view(spec).find("fp16") != std::string_view::npos) continue;
    std::vector<float> gradient = RandomFloats(3 * 4096, 2);
    for (float& value : gradient) value *= 1e-6f;
    gradient[5000] = 1e12f;
    std::vector<float> residual(gradient.size());
    const Encoded encoded = EncodeSparse(spec, gradient, residual);
    for (const float value : residual) {
      ASSERT_LE(std::fabs(value), encoded.stats.ResidualBound()) << spec;
    }
  }
}

TEST(SparseCodecs, PayloadSizesMeetTheFormula) {
  for (const char* spec : kSpecs) {
    const auto codec = MakeCodecOrDie(spec);
    for (const size_t n : {0, 1, 99, 4096, 50'000}) {
      const Encoded encoded = EncodeSparse(spec, RandomFloats(n, n));
      const size_t sent = encoded.stats.elements_sent;
      const auto value_coding = std::to_integer<int>(encoded.payload[2]);
      const size_t bits = std::array{32, 16, 0, 1, 1}[static_cast<size_t>(value_coding)];
      if (encoded.payload[1] == std::byte{2}) {
        EXPECT_EQ(encoded.payload.size(), 40 + (sent * bits + 7) / 8) << spec;
        EXPECT_EQ(encoded.payload.size(), codec->MaxPayloadBytes(n));
      } else if (encoded.payload[1] == std::byte{0}) {
        EXPECT_EQ(encoded.payload.size(), PackedBytes(n, sent, bits)) << spec;
      } else {
        EXPECT_LT(encoded.payload.size(), PackedBytes(n, sent, bits)) << spec;
      }
    }
  }
}

TEST(SparseCodecs, NonFiniteGradientsAreRefusedAndTheResidualStays) {
  constexpr size_t kElements = 4096 + 17;
  for (const char* spec : kSpecs) {
    const auto codec = MakeCodecOrDie(spec);
    for (const float value : {NAN, INFINITY, -INFINITY}) {
      std::vector<float> gradient = RandomFloats(kElements, 1);
      gradient[4100] = value;
      const std::vector<float> before = RandomFloats(kElements, 2);
      std::vector<float> residual = before;
      std::vector<std::byte> payload(codec->MaxPayloadBytes(kElements));
      const auto stats = codec->Encode({.gradient = gradient, .residual = residual}, payload);
      ASSERT_EQ(stats.status().code(), absl::StatusCode::kInvalidArgument) << spec;
      EXPECT_THAT(std::string(stats.status().message()), HasSubstr("element 4100 of 4113"));
      EXPECT_EQ(residual, before);
    }
  }
}

TEST(SparseCodecs, LargestAcceptedValuesStayFinite) {
  for (const char* spec : kSpecs) {
    const auto codec = MakeCodecOrDie(spec);
    std::vector<float> gradient(2 * 4096, codec->limit());
    for (size_t i = 0; i < gradient.size(); i += 3) gradient[i] = -codec->limit();
    std::vector<float> residual(gradient.size());
    const Encoded encoded = EncodeChecked(
        *codec, {.gradient = gradient, .residual = residual, .context = {.round = 1}});
    for (const float value : residual) ASSERT_TRUE(std::isfinite(value)) << spec;
    gradient[77] = std::nextafter(codec->limit(), INFINITY);
    std::vector<std::byte> payload(codec->MaxPayloadBytes(gradient.size()));
    EXPECT_FALSE(codec->Encode({.gradient = gradient}, payload).ok()) << spec;
  }
}

TEST(SparseCodecs, ErrorFeedbackIsOnUnlessOptionsSayOtherwise) {
  EXPECT_TRUE(MakeCodecOrDie("topk")->wants_residual());
  EXPECT_TRUE(MakeCodecOrDie("mstopk")->wants_residual());
  EXPECT_TRUE(MakeCodecOrDie("redsync")->wants_residual());
  EXPECT_TRUE(MakeCodecOrDie("threshold")->wants_residual());
  EXPECT_TRUE(MakeCodecOrDie("randomk")->wants_residual());
  EXPECT_FALSE(MakeCodecOrDie("randomk:scaled=on")->wants_residual());
  EXPECT_EQ(MakeCodecOrDie("randomk")->Warning(), "");
  EXPECT_NE(MakeCodecOrDie("randomk:scaled=on,error_feedback=on")->Warning(), "");
  EXPECT_FALSE(MakeCodecOrDie("topk:error_feedback=off")->wants_residual());
}

// If a codec encodes what it has decoded, the result is the same.
TEST(SparseCodecs, EncodingWhatWasDecodedChangesNothing) {
  constexpr size_t kElements = 3 * 4096 + 5;
  for (const char* spec : kSpecs) {
    if (std::string_view(spec).find("scaled") != std::string_view::npos) continue;
    const Encoded once = EncodeSparse(spec, RandomFloats(kElements, 8));
    const auto decoded = DecodeAllSparse(once.payload, kElements);
    const Encoded twice = EncodeSparse(spec, decoded);
    EXPECT_EQ(DecodeAllSparse(twice.payload, kElements), decoded) << spec;
  }
}

TEST(RedSync, SendsTheMeanOfTheLargestOfOneSign) {
  const std::vector<float> x = {3, -4, 1, 2, -1, 2, -0.0f};
  const auto decoded = [&](const std::string& spec, uint64_t round) {
    return DecodeAllSparse(EncodeSparse(spec, x, {}, round).payload, x.size());
  };
  EXPECT_EQ(decoded("redsync:k=2", 1), (std::vector<float>{2.5f, 0, 0, 2.5f, 0, 0, 0}));
  EXPECT_EQ(decoded("redsync:k=2", 2), (std::vector<float>{0, -2.5f, 0, 0, -2.5f, 0, 0}));
  EXPECT_EQ(decoded("redsync:k=7", 3), (std::vector<float>{2, 0, 2, 2, 0, 2, 0}));
  EXPECT_EQ(decoded("redsync:k=7", 4), (std::vector<float>{0, -2.5f, 0, 0, -2.5f, 0, 0}));
}

TEST(RedSync, KeepsTheTopOfEitherSignInLargeTensors) {
  constexpr size_t kElements = 40 * 4096 + 77;
  std::vector<float> x = RandomFloats(kElements, 12);
  for (const uint64_t round : {1, 2}) {
    const float sign = round == 1 ? 1.0f : -1.0f;
    const auto wanted = LargestBy(x, kElements / 100, [sign](float value) { return sign * value; });
    const auto decoded = DecodeAllSparse(EncodeSparse("redsync", x, {}, round).payload, kElements);
    std::vector<size_t> kept;
    for (size_t i = 0; i < kElements; ++i) {
      if (decoded[i] != 0) kept.push_back(i);
    }
    EXPECT_EQ(kept, wanted);
  }
}

TEST(Threshold, SendsTauWithTheSignOfWhatReachesIt) {
  const std::vector<float> x = {0.5f, -0.5f, 0.49f, 3, -3, 0};
  std::vector<float> residual(6);
  EXPECT_EQ(DecodeAllSparse(EncodeSparse("threshold", x, residual).payload, 6),
            (std::vector<float>{0.5f, -0.5f, 0, 0.5f, -0.5f, 0}));
  EXPECT_EQ(residual, (std::vector<float>{0, 0, 0.49f, 2.5f, -2.5f, 0}));
  EXPECT_EQ(DecodeAllSparse(EncodeSparse("threshold:value=fp32,tau=0.5", x).payload, 6),
            (std::vector<float>{0.5f, -0.5f, 0, 3, -3, 0}));
}

}  // namespace
}  // namespace slimps
