// SPDX-License-Identifier: Apache-2.0
// dgc against the paper's algorithm, written out one element at a time.
#include <algorithm>
#include <cmath>
#include <limits>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/compress/codec/sparse/sparse_test_util.h"

namespace slimps {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

enum class Nesterov { kOff, kOn };

// Algorithms 4 and 5 of appendix B of Lin et al., for one worker. Sends the k largest, without a
// sampled threshold.
struct PaperDgc {
  float mu = 0.9f;
  Nesterov nesterov = Nesterov::kOff;
  std::vector<float> u, v;

  // Returns what is sent, with zeros elsewhere.
  std::vector<float> Step(std::span<const float> gradient, float grad_scale, size_t k) {
    u.resize(gradient.size());
    v.resize(gradient.size());
    for (size_t i = 0; i < gradient.size(); ++i) {
      const float g = gradient[i] * grad_scale;
      if (nesterov == Nesterov::kOn) {
        u[i] = mu * (u[i] + g);
        v[i] = v[i] + (u[i] + g);
      } else {
        u[i] = mu * u[i] + g;
        v[i] = v[i] + u[i];
      }
    }
    const auto chosen = LargestBy(v, k, [](float x) { return std::fabs(x); });
    const std::vector<float> sent = KeepOnly(v, chosen);
    for (const size_t i : chosen) u[i] = v[i] = 0;
    return sent;
  }
};

size_t CountOf(double ratio, size_t n) {
  const auto k = static_cast<size_t>(ratio * static_cast<double>(n));
  return std::min(std::max<size_t>(k, 1), n);
}

TEST(Dgc, FollowsThePapersAlgorithmOverRounds) {
  for (const auto& [spec, nesterov] : std::vector<std::pair<std::string, Nesterov>>{
           {"dgc:ratio=0.05", Nesterov::kOff}, {"dgc:nesterov=on,ratio=0.05", Nesterov::kOn}}) {
    for (const std::string_view kernels : {"scalar", ""}) {
      const auto codec = MakeCodecOrDie(spec, kernels);
      for (const size_t n : {1, 16, 257, 4096, 4097, 3 * 4096 + 5}) {
        PaperDgc paper{.nesterov = nesterov};
        std::vector<float> u(n), v(n);
        for (uint64_t round = 1; round <= 6; ++round) {
          const std::vector<float> gradient =
              round % 3 == 0 ? AwkwardFloats(n, round) : RandomFloats(n, round);
          const Encoded encoded = EncodeChecked(
              *codec, {.gradient = gradient, .residual = v, .momentum = u, .grad_scale = 0.75f});
          const std::vector<float> sent = paper.Step(gradient, 0.75f, CountOf(0.05, n));
          ASSERT_EQ(Difference(DecodeAllSparse(encoded.payload, n), sent), "") << spec << n;
          ASSERT_EQ(Difference(v, paper.v), "") << spec << " " << n << " round " << round;
          ASSERT_EQ(Difference(u, paper.u), "") << spec << " " << n << " round " << round;
          EXPECT_EQ(encoded.stats.elements_sent, CountOf(0.05, n));
        }
      }
    }
  }
}

TEST(Dgc, AllLengthsGiveTheSameBitsOnEveryKernelSet) {
  for (const Kernels* set : AllKernels()) {
    if (!set->runs_here()) continue;
    const auto mine = MakeCodecOrDie("dgc:ratio=0.1", set->name);
    const auto scalar = MakeCodecOrDie("dgc:ratio=0.1", "scalar");
    for (const size_t n : InterestingLengths()) {
      std::vector<float> u = RandomFloats(n, n + 1), v = AwkwardFloats(n, n + 2), u2 = u, v2 = v;
      const std::vector<float> gradient = AwkwardFloats(n, n);
      const Encoded a = EncodeChecked(*mine, {.gradient = gradient, .residual = v, .momentum = u});
      const Encoded b =
          EncodeChecked(*scalar, {.gradient = gradient, .residual = v2, .momentum = u2});
      ASSERT_EQ(a.payload, b.payload) << set->name << n;
      ASSERT_EQ(Difference(u, u2), "");
      ASSERT_EQ(Difference(v, v2), "");
      EXPECT_EQ(a.stats.error_norm2, b.stats.error_norm2);
      EXPECT_EQ(a.stats.input_norm2, b.stats.input_norm2);
    }
  }
}

TEST(Dgc, ConstantAndZeroTensorsSendTheFirstElements) {
  const auto codec = MakeCodecOrDie("dgc:k=3");
  for (const float value : {0.0f, 1.0f, 1e-45f}) {
    std::vector<float> gradient(9000, value), u(9000), v(9000);
    const Encoded encoded =
        EncodeChecked(*codec, {.gradient = gradient, .residual = v, .momentum = u});
    std::vector<float> sent(9000);
    std::fill_n(sent.begin(), 3, value);
    EXPECT_EQ(Difference(DecodeAllSparse(encoded.payload, 9000), sent), "") << value;
    EXPECT_EQ(u[2], 0.0f);
    EXPECT_EQ(v[3], value);
  }
}

TEST(Dgc, RefusedGradientsLeaveBothStatesAlone) {
  const auto codec = MakeCodecOrDie("dgc");
  std::vector<float> u = RandomFloats(5000, 1), v = RandomFloats(5000, 2);
  const std::vector<float> u0 = u, v0 = v;
  std::vector<std::byte> payload(codec->MaxPayloadBytes(5000));
  for (const float bad : {NAN, INFINITY, -INFINITY, 3e38f}) {
    std::vector<float> gradient = RandomFloats(5000, 3);
    gradient[4567] = bad;
    const auto stats = codec->Encode(
        {.gradient = gradient, .residual = v, .momentum = u, .grad_scale = 2}, payload);
    EXPECT_EQ(stats.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(stats.status().message()), HasSubstr("4567"));
    EXPECT_EQ(Difference(u, u0), "");
    EXPECT_EQ(Difference(v, v0), "");
  }
  u[7] = 3e38f;  // the gradient is small, its momentum is not
  v[7] = 3e38f;
  const auto stats = codec->Encode({.gradient = v0, .residual = v, .momentum = u}, payload);
  EXPECT_THAT(std::string(stats.status().message()), HasSubstr("with a momentum of"));
  EXPECT_EQ(codec->Encode({.gradient = v0, .residual = v}, payload).status().code(),
            absl::StatusCode::kInvalidArgument)
      << "no momentum at all";
}

TEST(Dgc, BoundsHoldAndSaveTheCheck) {
  for (const char* spec : {"dgc:ratio=0.01", "dgc:nesterov=on,ratio=0.01"}) {
    const auto codec = MakeCodecOrDie(spec);
    std::vector<float> u(5000), v(5000);
    EncodeInput input{.residual = v, .momentum = u};
    EXPECT_FALSE(codec->KnownEncodable(input));
    input.residual_bound = input.momentum_bound = 0;
    for (uint64_t round = 1; round < 20; ++round) {
      const std::vector<float> gradient = RandomFloats(5000, round);
      input.gradient = gradient;
      input.gradient_bound = 6;
      ASSERT_TRUE(codec->KnownEncodable(input));
      const Encoded encoded = EncodeChecked(*codec, input);
      input.residual_bound = encoded.stats.ResidualBound();
      input.momentum_bound = encoded.stats.momentum_bound;
      for (const float value : v) ASSERT_LE(std::fabs(value), input.residual_bound);
      for (const float value : u) ASSERT_LE(std::fabs(value), input.momentum_bound);
      EXPECT_LT(input.momentum_bound, 60.1f) << "6 / (1 - mu)";
    }
    input.gradient_bound = 3e38f;
    input.residual_bound = 3e38f;
    EXPECT_FALSE(codec->KnownEncodable(input));
  }
}

TEST(Dgc, HalfPrecisionLeavesTheRoundingErrorBehind) {
  const auto codec = MakeCodecOrDie("dgc:k=10,value=fp16");
  const std::vector<float> gradient = RandomFloats(1000, 1);
  std::vector<float> u(1000), v(1000);
  const Encoded encoded =
      EncodeChecked(*codec, {.gradient = gradient, .residual = v, .momentum = u});
  const std::vector<float> decoded = DecodeAllSparse(encoded.payload, 1000);
  size_t sent = 0;
  for (size_t i = 0; i < 1000; ++i) {
    EXPECT_EQ(v[i], gradient[i] - decoded[i]);
    EXPECT_EQ(u[i], decoded[i] != 0 ? 0 : gradient[i]);
    sent += decoded[i] != 0 ? 1 : 0;
  }
  EXPECT_EQ(sent, 10u);
}

TEST(Dgc, WithoutAResidualWhatIsNotSentIsLost) {
  const auto codec = MakeCodecOrDie("dgc:k=2,mu=0.5");
  const std::vector<float> gradient = {1, -4, 2, 3};
  std::vector<float> u = {2, 2, 2, 2};
  const Encoded encoded = EncodeChecked(*codec, {.gradient = gradient, .momentum = u});
  // The velocities are 2, -3, 3, 4. Of the two equal magnitudes the first is sent.
  EXPECT_THAT(DecodeAllSparse(encoded.payload, 4), ElementsAre(0, -3, 0, 4));
  EXPECT_THAT(u, ElementsAre(2, 0, 3, 0));
}

TEST(Dgc, WantsItsStatesAndNoMomentumOnTheServer) {
  const auto dgc = MakeCodecOrDie("dgc"), topk = MakeCodecOrDie("topk");
  EXPECT_TRUE(dgc->wants_residual());
  EXPECT_TRUE(dgc->wants_momentum());
  EXPECT_TRUE(dgc->refuses_server_momentum());
  EXPECT_FALSE(topk->wants_momentum());
  EXPECT_FALSE(topk->refuses_server_momentum());
  EXPECT_TRUE(MakeCodecOrDie("topk:momentum=nesterov")->refuses_server_momentum());
  EXPECT_TRUE(MakeCodecOrDie("dgc:warmup=3")->refuses_server_momentum());
  EXPECT_TRUE(MakeCodecOrDie("dgc:warmup=3")->wants_momentum());
}

}  // namespace
}  // namespace slimps
