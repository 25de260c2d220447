// SPDX-License-Identifier: Apache-2.0
// Options that all codecs share: clipping, momentum, warm-up.
#include "compress/codec/catalogue/decorators.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/compress/codec/catalogue/spec_error.h"
#include "tests/compress/codec/sparse/sparse_test_util.h"

namespace slimps {
namespace {

using ::testing::HasSubstr;

constexpr const char* kDecorated[] = {"fp16",      "bf16",      "1bit",     "1bit:scaling=two_mean",
                                      "2bit",      "signsgd",   "terngrad", "qsgd",
                                      "dithering", "topk",      "randomk",  "mstopk",
                                      "redsync",   "threshold", "adacomp",  "local_selection",
                                      "dryden",    "drive"};

std::string With(const std::string& spec, const std::string& option) {
  return spec + (spec.find(':') == std::string::npos ? ":" : ",") + option;
}

// One codec, its states and its rounds.
struct Worker {
  std::unique_ptr<Codec> codec;
  std::vector<float> residual, momentum;

  Worker(const std::string& spec, size_t n)
      : codec(MakeCodecOrDie(spec)),
        residual(codec->wants_residual() ? n : 0),
        momentum(codec->wants_momentum() ? n : 0) {}

  Encoded Push(std::span<const float> gradient, uint64_t round, float grad_scale = 1) {
    return EncodeChecked(*codec, {.gradient = gradient,
                                  .residual = residual,
                                  .momentum = momentum,
                                  .grad_scale = grad_scale,
                                  .context = {.key = 5, .round = round}});
  }
};

TEST(Decorators, NesterovMomentumIsWhatTheCodecThenEncodes) {
  for (const std::string spec : kDecorated) {
    for (const size_t n : {1, 257, 4097, 3 * 4096 + 5}) {
      Worker decorated(With(spec, "momentum=nesterov,mu=0.75"), n), plain(spec, n);
      std::vector<float> u(n), handed_on(n);
      for (uint64_t round = 1; round <= 3; ++round) {
        const std::vector<float> gradient = RandomFloats(n, round);
        for (size_t i = 0; i < n; ++i) {
          const float g = gradient[i] * 0.5f;
          u[i] = 0.75f * u[i] + g;
          handed_on[i] = 0.75f * u[i] + g;
        }
        const Encoded mine = decorated.Push(gradient, round, 0.5f);
        const Encoded wanted = plain.Push(handed_on, round);
        ASSERT_EQ(mine.payload, wanted.payload) << spec << " " << n;
        ASSERT_EQ(Difference(decorated.residual, plain.residual), "") << spec;
        ASSERT_EQ(Difference(decorated.momentum, u), "") << spec;
        EXPECT_EQ(mine.stats.error_norm2, wanted.stats.error_norm2);
        EXPECT_EQ(mine.stats.elements_sent, wanted.stats.elements_sent);
      }
    }
  }
}

TEST(Decorators, DgcMomentumOnTopkIsTheDgcCodec) {
  for (const size_t n : {1, 257, 4097, 3 * 4096 + 5}) {
    Worker decorated("topk:momentum=dgc,ratio=0.02", n), dgc("dgc:ratio=0.02", n);
    for (uint64_t round = 1; round <= 5; ++round) {
      const std::vector<float> gradient = RandomFloats(n, round);
      ASSERT_EQ(decorated.Push(gradient, round, 3).payload, dgc.Push(gradient, round, 3).payload);
      ASSERT_EQ(Difference(decorated.residual, dgc.residual), "");
      ASSERT_EQ(Difference(decorated.momentum, dgc.momentum), "");
    }
  }
}

TEST(Decorators, MaskingClearsTheMomentumOfWhatWasSent) {
  for (const std::string spec : {"randomk:ratio=0.1", "threshold:tau=2", "adacomp", "mstopk"}) {
    constexpr size_t kElements = 2 * 4096 + 77;
    Worker worker(With(spec, "momentum=dgc"), kElements);
    std::vector<float> u(kElements);
    for (uint64_t round = 1; round <= 3; ++round) {
      const std::vector<float> gradient = RandomFloats(kElements, round);
      const Encoded encoded = worker.Push(gradient, round);
      const std::vector<float> decoded = DecodeAllSparse(encoded.payload, kElements);
      for (size_t i = 0; i < kElements; ++i) {
        u[i] = decoded[i] != 0 ? 0 : 0.9f * u[i] + gradient[i];
      }
      ASSERT_EQ(Difference(worker.momentum, u), "") << spec;
      EXPECT_GT(encoded.stats.elements_sent, 0u);
      EXPECT_LT(encoded.stats.elements_sent, kElements);
    }
  }
}

// Returns min(1, norm / |g|). The sum of squares is computed as kernels.h and decorators.h define
// it.
float ClipFactor(std::span<const float> gradient, float grad_scale, double norm) {
  double norm2 = 0;
  for (size_t first = 0; first < gradient.size(); first += 4096) {
    const auto block = gradient.subspan(first, std::min<size_t>(4096, gradient.size() - first));
    norm2 +=
        static_cast<double>(BestKernels().momentum.norm2(block.data(), grad_scale, block.size()));
  }
  return norm2 <= norm * norm ? 1.0f : static_cast<float>(norm / std::sqrt(norm2));
}

TEST(Decorators, ClippingScalesLargeGradientsDown) {
  for (const std::string spec : kDecorated) {
    if (spec == "terngrad") continue;  // it has another clip option
    constexpr size_t kElements = 2 * 4096 + 9;
    Worker clipped(With(spec, "clip=8,clip_workers=4"), kElements), plain(spec, kElements);
    for (uint64_t round = 1; round <= 2; ++round) {
      const std::vector<float> gradient = RandomFloats(kElements, round);
      const float factor = ClipFactor(gradient, 0.5f, 4);
      EXPECT_NEAR(factor, 4 / (0.5 * std::sqrt(kElements)), 0.002);
      ASSERT_EQ(clipped.Push(gradient, round, 0.5f).payload,
                plain.Push(gradient, round, 0.5f * factor).payload)
          << spec;
      ASSERT_EQ(Difference(clipped.residual, plain.residual), "") << spec;
    }
  }
}

TEST(Decorators, ClippingLeavesSmallGradientsAlone) {
  const std::vector<float> gradient = RandomFloats(1000, 1);  // norm about 32
  Worker clipped("1bit:clip=40", 1000), plain("1bit", 1000);
  EXPECT_EQ(clipped.Push(gradient, 1).payload, plain.Push(gradient, 1).payload);
  const std::vector<float> zeros(1000);
  EXPECT_EQ(clipped.Push(zeros, 1).payload, plain.Push(zeros, 1).payload);
  EXPECT_EQ(Worker("1bit:clip=40", 0).Push({}, 1).payload, Worker("1bit", 0).Push({}, 1).payload);
}

TEST(Decorators, ClippingHandlesNormsWhoseSquareExceedsFp32) {
  const std::vector<float> gradient(5000, 1e30f);
  Worker clipped("fp16:clip=5", 5000);
  std::vector<float> decoded(5000);
  const Encoded encoded =
      clipped.Push(gradient, 1, 1e-26f);  // unclipped it is refused: 10^4 is in range
  Decode(PayloadFormat::kRawF16, encoded.payload, 5000, 0, decoded);
  EXPECT_NEAR(decoded[17], 5 / std::sqrt(5000.0), 1e-4);
  Worker large("1bit:clip=5", 5000);
  const Encoded signs = large.Push(gradient, 1);
  Decode(PayloadFormat::kLevels, signs.payload, 5000, 0, decoded);
  EXPECT_NEAR(decoded[17], 5 / std::sqrt(5000.0), 1e-4);
}

TEST(Decorators, ClippingComesBeforeMomentum) {
  constexpr size_t kElements = 5000;
  Worker both("topk:clip=2,momentum=nesterov", kElements);
  Worker momentum("topk:momentum=nesterov", kElements);
  for (uint64_t round = 1; round <= 3; ++round) {
    const std::vector<float> gradient = RandomFloats(kElements, round);
    const float factor = ClipFactor(gradient, 1, 2);
    ASSERT_EQ(both.Push(gradient, round).payload, momentum.Push(gradient, round, factor).payload);
    ASSERT_EQ(Difference(both.momentum, momentum.momentum), "");
  }
}

TEST(Decorators, RefusedGradientsLeaveTheStatesAlone) {
  for (const std::string spec : kDecorated) {
    Worker worker(With(spec, "momentum=nesterov"), 5000);
    const auto residual = worker.residual, momentum = worker.momentum = RandomFloats(5000, 9);
    std::vector<std::byte> payload(worker.codec->MaxPayloadBytes(5000));
    for (const float bad : {NAN, INFINITY, 3e38f}) {
      std::vector<float> gradient = RandomFloats(5000, 3);
      gradient[4321] = bad;
      const auto stats = worker.codec->Encode({.gradient = gradient,
                                               .residual = worker.residual,
                                               .momentum = worker.momentum,
                                               .grad_scale = 2},
                                              payload);
      EXPECT_THAT(std::string(stats.status().message()), HasSubstr("4321")) << spec;
      EXPECT_EQ(Difference(worker.residual, residual), "");
      EXPECT_EQ(Difference(worker.momentum, momentum), "");
    }
  }
}

TEST(Decorators, KnownBoundsChangeNothing) {
  Worker checked("qsgd:momentum=nesterov", 5000), known("qsgd:momentum=nesterov", 5000);
  float bound = 0;
  for (uint64_t round = 1; round <= 4; ++round) {
    const std::vector<float> gradient = RandomFloats(5000, round);
    EncodeInput input{.gradient = gradient,
                      .momentum = known.momentum,
                      .gradient_bound = 6,
                      .momentum_bound = bound,
                      .context = {.key = 5, .round = round}};
    ASSERT_TRUE(known.codec->KnownEncodable(input));
    const Encoded encoded = EncodeChecked(*known.codec, input);
    EXPECT_EQ(encoded.payload, checked.Push(gradient, round).payload);
    bound = encoded.stats.momentum_bound;
    for (const float value : known.momentum) ASSERT_LE(std::fabs(value), bound);
    input.gradient_bound = INFINITY;
    EXPECT_FALSE(known.codec->KnownEncodable(input));
  }
}

TEST(Decorators, RawPushesTakeTheSameStepOfMomentum) {
  constexpr size_t kElements = 4097;
  for (const std::string spec : {"qsgd:momentum=nesterov", "topk:momentum=dgc", "dgc:nesterov=on",
                                 "1bit:clip=1,momentum=nesterov"}) {
    Worker encoded(spec, kElements), raw(spec, kElements);
    if (encoded.residual.empty()) encoded.residual.resize(kElements);
    const std::vector<float> gradient = RandomFloats(kElements, 1);
    const Encoded sent = encoded.Push(gradient, 99);
    std::vector<float> out = gradient, decoded(kElements);  // in place
    const auto bound = raw.codec->AdvanceMomentum({.gradient = out,
                                                   .residual = raw.residual,
                                                   .momentum = raw.momentum,
                                                   .gradient_bound = 6,
                                                   .momentum_bound = 0},
                                                  out);
    ASSERT_TRUE(bound.ok()) << bound.status();
    EXPECT_GE(*bound, 5.3f) << spec;
    EXPECT_LT(*bound, 6.1f) << spec;
    if (spec == "1bit:clip=1,momentum=nesterov") {
      Worker unclipped("1bit:momentum=nesterov", kElements);
      std::vector<float> whole(kElements);
      ASSERT_TRUE(unclipped.codec
                      ->AdvanceMomentum({.gradient = gradient,
                                         .residual = unclipped.residual,
                                         .momentum = unclipped.momentum},
                                        whole)
                      .ok());
      EXPECT_EQ(Difference(out, whole), "") << "not clipped";
      continue;
    }
    Decode(encoded.codec->format(), sent.payload, kElements, 0, decoded);
    for (size_t i = 0; i < kElements; ++i) {
      ASSERT_NEAR(out[i], decoded[i] + encoded.residual[i], 1e-5) << spec << " " << i;
      const float u = encoded.momentum[i];
      ASSERT_EQ(u, u != 0 ? raw.momentum[i] : 0.0f) << spec;
    }
  }
}

TEST(Decorators, WarmupLowersTheRatioStepByStep) {
  constexpr size_t kElements = 100000;
  const std::vector<float> gradient = RandomFloats(kElements, 1);
  const struct {
    std::string spec;
    std::map<uint64_t, size_t> sent;  // by round
  } cases[] = {
      {"dgc:warmup=3",
       {{1, 25000},
        {3, 25000},
        {4, 6250},
        {7, 1562},
        {10, 400},
        {12, 400},
        {13, 100},
        {99, 100},
        {0, 100}}},
      {"topk:ratio=0.01,warmup=1", {{1, 25000}, {2, 6250}, {3, 1562}, {4, 1000}, {5, 1000}}},
      {"topk:ratio=0.0001,warmup=1", {{5, 100}, {6, 10}}},
      {"randomk:ratio=0.5,warmup=1", {{1, 50000}, {9, 50000}}},
  };
  for (const auto& c : cases) {
    for (const auto& [round, sent] : c.sent) {
      Worker worker(c.spec, kElements);
      EXPECT_EQ(worker.Push(gradient, round).stats.elements_sent, sent) << c.spec << " " << round;
    }
  }
}

TEST(Decorators, WhatMakesNoSenseIsRefusedWithTheReason) {
  EXPECT_THAT(ErrorOf("none:clip=1"), HasSubstr("sent as they are"));
  EXPECT_THAT(ErrorOf("none:momentum=nesterov"), HasSubstr("sent as they are"));
  EXPECT_THAT(ErrorOf("1bit:momentum=dgc"), HasSubstr("use nesterov"));
  EXPECT_THAT(ErrorOf("topk:error_feedback=off,momentum=dgc"), HasSubstr("with error feedback"));
  EXPECT_THAT(ErrorOf("dgc:momentum=nesterov"), HasSubstr("momentum of its own"));
  EXPECT_THAT(ErrorOf("1bit:warmup=10"), HasSubstr("no option ratio"));
  for (const char* spec : {"dgc:clip=1", "dgc:clip=1,clip_workers=4", "topk:clip=1,momentum=dgc"}) {
    EXPECT_THAT(ErrorOf(spec), HasSubstr("clips a worker's whole gradient")) << spec;
  }
  EXPECT_THAT(ErrorOf("topk:k=10,warmup=10"), HasSubstr("ratio instead of k"));
  EXPECT_THAT(ErrorOf("topk:mu=0.5"), HasSubstr("goes with option momentum"));
  EXPECT_THAT(ErrorOf("topk:clip_workers=2"), HasSubstr("goes with option clip"));
  EXPECT_THAT(ErrorOf("terngrad:clip=2,clip_workers=2"), HasSubstr("its option clip is another"));
}

TEST(Decorators, ValuesHaveRanges) {
  EXPECT_THAT(ErrorOf("1bit:clip=0"), HasSubstr("over 0"));
  EXPECT_THAT(ErrorOf("1bit:clip=1,clip_workers=0"), HasSubstr("from 1"));
  EXPECT_THAT(ErrorOf("1bit:momentum=nesterof"), HasSubstr("did you mean 'nesterov'"));
  EXPECT_THAT(ErrorOf("1bit:momentum=nesterov,mu=1"), HasSubstr("from 0 to below 1"));
  EXPECT_THAT(ErrorOf("1bit:momentum=nesterov,mu=-0.1"), HasSubstr("from 0 to below 1"));
  EXPECT_THAT(ErrorOf("dgc:mu=nan"), HasSubstr("from 0 to below 1"));
  EXPECT_THAT(ErrorOf("topk:warmup=0"), HasSubstr("from 1"));
  EXPECT_THAT(ErrorOf("dgc:ratio=0"), HasSubstr("over 0"));
  EXPECT_THAT(ErrorOf("dgc:ratio=0.1,k=5"), HasSubstr("one of them"));
}

}  // namespace
}  // namespace slimps
