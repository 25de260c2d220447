// SPDX-License-Identifier: Apache-2.0
// thc: payloads of workers that share norms are summed as integers, and their sum is right.
#include "compress/codec/quantise/thc.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "compress/codec/codec.h"
#include "compress/codec/encode_run.h"
#include "compress/codec/phases.h"
#include "compress/format/lanes.h"
#include "compress/format/sum.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/compress/codec/make_codec.h"
#include "tests/compress/test_data.h"

namespace slimps {
namespace {

using ::testing::HasSubstr;

constexpr size_t kElements = 2 * kBlockElements + 700;

struct Encoded {
  std::vector<std::byte> payload;
  std::vector<float> decoded;
  EncodeStats stats;
};

EncodeContext ContextOf(uint32_t worker, uint64_t round = 5) {
  return {.key = 0x123456789abcdef0, .partition = 0, .round = round, .worker = worker};
}

Encoded Checked(const Codec& codec, std::vector<std::byte> payload, EncodeStats stats, size_t n) {
  Encoded out = {std::move(payload), std::vector<float>(n), stats};
  EXPECT_TRUE(ValidatePayload(codec.format(), out.payload, n).ok());
  Decode(codec.format(), out.payload, n, 0, out.decoded);
  return out;
}

Encoded EncodeAlone(const Codec& codec, const EncodeInput& input) {
  const size_t n = input.gradient.size();
  std::vector<std::byte> payload(codec.MaxPayloadBytes(n));
  const auto stats = codec.Encode(input, payload);
  EXPECT_TRUE(stats.ok()) << stats.status();
  return Checked(codec, std::move(payload), stats.value_or(EncodeStats()), n);
}

const std::vector<uint32_t> kContributors = {0, 1};

// One worker's exchange of a tensor of one dimension.
class Worker final {
 public:
  Worker(const Codec& codec, const std::vector<PhasedPart>& parts, EncodeContext context,
         std::span<float> memory = {})
      : codec_(codec), parts_(parts) {
    for (const PhasedPart& part : parts_) elements_ += part.elements;
    shape_ = {static_cast<int64_t>(elements_)};
    run_ = codec.phases()->BeginExchange(
        {.shape = shape_, .parts = parts_, .memory = memory, .context = context});
  }
  Worker(const Codec& codec, std::span<const float> gradient, std::span<float> residual,
         EncodeContext context, std::span<float> memory = {})
      : Worker(codec, {{.elements = gradient.size(), .gradient = gradient, .residual = residual}},
               context, memory) {}

  PhasedRun& run() { return *run_; }

  std::vector<float> Norms() {
    const std::vector<AuxiliaryShape> keys = codec_.phases()->AuxiliaryKeys(shape_);
    EXPECT_EQ(keys.size(), 1u);
    EXPECT_EQ(keys[0].combine, Combine::kMaximum);
    std::vector<float> norms(keys[0].elements());
    const absl::Status status = run_->Contribute(0, norms);
    EXPECT_TRUE(status.ok()) << status;
    return norms;
  }

  // Returns the payload of one part under norms that all workers share.
  Encoded Write(const std::vector<float>& norms, size_t part = 0) {
    const absl::Status taken = run_->Take(0, norms, kContributors);
    EXPECT_TRUE(taken.ok()) << taken;
    return WriteNow(part);
  }

  // The same with the norms that are known.
  Encoded WriteNow(size_t part = 0) {
    EXPECT_TRUE(run_->may_write());
    EXPECT_TRUE(run_->Sends(part));
    std::vector<std::byte> payload(run_->MaxPayloadBytes(part));
    const absl::StatusOr<size_t> used = run_->Write(part, payload);
    EXPECT_TRUE(used.ok()) << used.status();
    payload.resize(used.value_or(0));
    return Checked(codec_, std::move(payload), run_->StatsOf(part), parts_[part].elements);
  }

 private:
  const Codec& codec_;
  const std::vector<PhasedPart> parts_;
  size_t elements_ = 0;
  std::vector<int64_t> shape_;
  std::unique_ptr<PhasedRun> run_;
};

double Squares(std::span<const float> values) {
  double sum = 0;
  for (const float value : values) sum += static_cast<double>(value) * static_cast<double>(value);
  return sum;
}

TEST(Thc, WorkersOfOneRoundAreSummedAsIntegers) {
  const auto codec = MakeCodecOrDie("thc:error_feedback=off");
  std::vector<std::vector<float>> gradients;
  std::vector<float> sum(kElements);
  for (uint64_t worker = 0; worker < 4; ++worker) {
    gradients.push_back(RandomFloats(kElements, worker));
    for (float& value : gradients.back()) value *= static_cast<float>(1 + worker);
    for (size_t i = 0; i < kElements; ++i) sum[i] += gradients.back()[i];
  }
  std::deque<Worker> workers;  // which stay where they are
  std::vector<float> norms(Codec::Blocks(kElements));
  for (uint32_t worker = 0; worker < 4; ++worker) {
    workers.emplace_back(*codec, gradients[worker], std::span<float>(), ContextOf(worker));
    const std::vector<float> own = workers.back().Norms();
    for (size_t block = 0; block < norms.size(); ++block) {
      norms[block] = std::max(norms[block], own[block]);
    }
  }
  std::vector<Encoded> encoded;
  std::vector<PayloadView> views;
  for (Worker& worker : workers) encoded.push_back(worker.Write(norms));
  std::vector<float> error(kElements), in_turn(kElements);
  for (const Encoded& one : encoded) {
    views.push_back({codec->format(), one.payload});
    for (size_t i = 0; i < kElements; ++i) in_turn[i] += one.decoded[i];
  }
  EXPECT_EQ(LanesRun(views), views.size());
  SumPayloads(views, kElements, 0, error);
  for (size_t i = 0; i < kElements; ++i) {
    ASSERT_NEAR(error[i], in_turn[i], 1e-4) << "decoding each would give the same";
    error[i] -= sum[i];
  }
  // Each worker's error is that of the largest range: 0.013 of the largest norm, and less clamping.
  EXPECT_LT(Squares(error), 4 * 0.03 * Squares(gradients[3]));
}

TEST(Thc, WorkersShareTheRotationAndNotTheRounding) {
  const auto codec = MakeCodecOrDie("thc");
  const std::vector<float> gradient = RandomFloats(kElements, 1);
  const auto payload = [&](uint32_t worker, uint64_t round) {
    return EncodeAlone(*codec,
                       {.gradient = gradient, .residual = {}, .context = ContextOf(worker, round)})
        .payload;
  };
  const auto first = payload(0, 5), second = payload(1, 5), later = payload(0, 6);
  EXPECT_EQ(payload(0, 5), first);
  EXPECT_NE(second, first);
  EXPECT_EQ(LanesLayoutOf(first).stream.worker, kAnyWorker);
  EXPECT_TRUE(HaveOneScale(first, second));
  EXPECT_FALSE(HaveOneScale(first, later)) << "each round has a rotation of its own";
}

// Within a wide range nothing is clamped, and the mean of many draws is the gradient.
TEST(Thc, RoundingIsUnbiasedWithinTheRange) {
  constexpr int kDraws = 4000;
  const auto codec = MakeCodecOrDie("thc:error_feedback=off");
  const std::vector<float> gradient = RandomFloats(64, 3);
  const std::vector<float> norms = {60};  // six times |x|
  std::vector<double> mean(gradient.size());
  double one2 = 0;
  for (int draw = 1; draw <= kDraws; ++draw) {
    const Encoded encoded =
        Worker(*codec, gradient, {}, ContextOf(0, static_cast<uint64_t>(draw))).Write(norms);
    for (size_t i = 0; i < mean.size(); ++i) {
      mean[i] += static_cast<double>(encoded.decoded[i]) / kDraws;
    }
    one2 += encoded.stats.error_norm2 / kDraws;
  }
  double error2 = 0;
  for (size_t i = 0; i < mean.size(); ++i) {
    error2 += std::pow(mean[i] - static_cast<double>(gradient[i]), 2);
  }
  EXPECT_LT(error2, 2 * one2 / kDraws);
}

TEST(Thc, WhatIsClampedOrRoundedStaysInTheResidual) {
  const auto codec = MakeCodecOrDie("thc");
  EXPECT_TRUE(codec->wants_residual());
  std::vector<float> residual(kElements), wanted(kElements);
  const std::vector<float> norms(Codec::Blocks(kElements), 30);  // under half of |x|
  for (uint64_t round = 1; round <= 3; ++round) {
    const std::vector<float> gradient = RandomFloats(kElements, round);
    const Encoded encoded = Worker(*codec, gradient, residual, ContextOf(1, round)).Write(norms);
    for (size_t i = 0; i < kElements; ++i)
      wanted[i] = (gradient[i] + wanted[i]) - encoded.decoded[i];
    ASSERT_EQ(Difference(residual, wanted), "") << round;
    EXPECT_NEAR(encoded.stats.error_norm2, Squares(wanted), 1e-3 * Squares(wanted));
  }
}

TEST(Thc, EveryKernelSetGivesTheSameBits) {
  for (const size_t n : InterestingLengths()) {
    const std::vector<float> gradient = AwkwardFloats(n, n), before = RandomFloats(n, n + 1);
    std::vector<float> wanted = before;
    const EncodeContext context = ContextOf(3);
    const Encoded scalar =
        EncodeAlone(*MakeCodecOrDie("thc", "scalar"),
                    {.gradient = gradient, .residual = wanted, .context = context});
    for (const Kernels* kernels : AllKernels()) {
      if (!kernels->runs_here() || n == 0) continue;
      std::vector<float> residual = before;
      const Encoded mine =
          EncodeAlone(*MakeCodecOrDie("thc", kernels->name),
                      {.gradient = gradient, .residual = residual, .context = context});
      ASSERT_EQ(mine.payload, scalar.payload) << n << " " << kernels->name;
      ASSERT_EQ(Difference(residual, wanted), "") << n;
      ASSERT_EQ(mine.stats.error_norm2, scalar.stats.error_norm2);
      ASSERT_EQ(mine.stats.decoded_norm2, scalar.stats.decoded_norm2);
    }
  }
}

// A worker whose norms are the largest sends what it would send alone.
TEST(Thc, AnExchangeInPartsIsThatOfEachPart) {
  const auto codec = MakeCodecOrDie("thc");
  const std::vector<float> gradient = RandomFloats(kElements, 1);
  std::vector<float> residual(kElements), alone_residual(kElements);
  std::vector<PhasedPart> parts;
  for (size_t first = 0; first < kElements; first += 2 * kBlockElements) {
    const size_t n = std::min(2 * kBlockElements, kElements - first);
    parts.push_back({.elements = n,
                     .gradient = std::span(gradient).subspan(first, n),
                     .residual = std::span(residual).subspan(first, n)});
  }
  Worker worker(*codec, parts, ContextOf(3));
  const std::vector<float> norms = worker.Norms();
  ASSERT_EQ(norms.size(), 3u);
  for (size_t i = 0; i < parts.size(); ++i) {
    EncodeContext context = ContextOf(3);
    context.partition = static_cast<uint32_t>(i);
    const Encoded alone = EncodeAlone(
        *codec,
        {.gradient = parts[i].gradient,
         .residual = std::span(alone_residual).subspan(i * 2 * kBlockElements, parts[i].elements),
         .context = context});
    const Encoded mine = worker.Write(norms, i);
    EXPECT_EQ(mine.payload, alone.payload) << i;
    EXPECT_EQ(mine.stats.error_norm2, alone.stats.error_norm2) << i;
  }
  EXPECT_EQ(Difference(residual, alone_residual), "");
}

TEST(Thc, TheRoundBeforeMayGiveTheScales) {
  const auto codec = MakeCodecOrDie("thc:scale=previous"), current = MakeCodecOrDie("thc");
  EXPECT_TRUE(codec->phases()->wants_memory());
  EXPECT_FALSE(current->phases()->wants_memory());
  std::vector<float> memory(Codec::Blocks(kElements)), residual(kElements), wanted(kElements);
  std::vector<float> before;
  for (uint64_t round = 1; round <= 4; ++round) {
    // Growing, so that much is clamped; a block that was zero before; then as it was.
    std::vector<float> gradient = RandomFloats(kElements, round);
    for (float& value : gradient) value *= static_cast<float>(round);
    if (round == 1) std::fill_n(gradient.begin(), kBlockElements, 0.0f);
    const EncodeContext context = ContextOf(1, round);
    Worker worker(*codec, gradient, residual, context, memory);
    Worker same(*current, gradient, wanted, context);
    const std::vector<float> norms = same.Norms();
    EXPECT_EQ(worker.run().may_write(), round > 1) << "nothing is known before the first";
    const Encoded expected = same.Write(round == 1 ? norms : before);
    const Encoded mine = round == 1 ? worker.Write(worker.Norms()) : worker.WriteNow();
    EXPECT_EQ(mine.payload, expected.payload) << round;
    EXPECT_EQ(Difference(residual, wanted), "") << round;
    if (round > 1) {
      EXPECT_EQ(worker.Norms(), norms) << "found while encoding";
      ASSERT_TRUE(worker.run().Take(0, norms, kContributors).ok());
    }
    EXPECT_EQ(memory, norms) << round;
    before = norms;
  }
}

TEST(Thc, ARoundWithoutContributorsLeavesTheScalesBefore) {
  const auto codec = MakeCodecOrDie("thc:scale=previous");
  std::vector<float> memory = {3, 0, 5};
  Worker worker(*codec, {{.elements = kElements}}, ContextOf(1), memory);
  EXPECT_TRUE(worker.run().may_write());
  ASSERT_TRUE(worker.run().Take(0, std::vector<float>(3), {}).ok());
  EXPECT_EQ(memory, (std::vector<float>{3, 0, 5}));
}

TEST(Thc, WithScalesFromBeforeWhatCannotBeSentIsRefusedAsItIsWritten) {
  const auto codec = MakeCodecOrDie("thc:scale=previous");
  for (const float bad : {NAN, std::numeric_limits<float>::infinity(), -0x1p115f}) {
    std::vector<float> gradient = RandomFloats(5000, 1), residual(5000), memory = {30, 10};
    gradient[4500] = bad;
    Worker worker(*codec, gradient, residual, ContextOf(0), memory);
    std::vector<std::byte> payload(worker.run().MaxPayloadBytes(0));
    const absl::Status refused = worker.run().Write(0, payload).status();
    EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(refused.message()),
                HasSubstr("partition 0: gradient element 4500 of 5000"));
  }
}

TEST(Thc, ScalesFromBeforeNeedErrorFeedback) {
  const auto refusal = [](const char* spec) {
    return std::string(MakeCodec(spec).status().message());
  };
  EXPECT_THAT(refusal("thc:scale=previous,error_feedback=off"),
              HasSubstr("scale=previous with error_feedback=off: expected error_feedback=on"));
  EXPECT_THAT(refusal("thc:scale=last"), HasSubstr("'last'"));
}

TEST(Thc, PartitionsHaveWholeBlocks) {
  const auto codec = MakeCodecOrDie("thc");
  const auto elements = [&](size_t usual) {
    return codec->phases()->PartitionElements({}, {.usual_elements = usual});
  };
  EXPECT_EQ(elements(1 << 20), size_t{1} << 20);
  EXPECT_EQ(elements(10'000), 8192u);
  EXPECT_EQ(elements(1), 4096u);
}

TEST(Thc, NumbersThatCannotBeExchangedAreRefused) {
  const auto codec = MakeCodecOrDie("thc");
  std::vector<float> gradient = RandomFloats(5000, 1);
  const auto refusal_of = [&](float value) {
    gradient[4500] = value;
    std::vector<float> norms(2);
    Worker worker(*codec, gradient, {}, ContextOf(0));
    return std::string(worker.run().Contribute(0, norms).message());
  };
  EXPECT_EQ(refusal_of(NAN),
            "partition 0: gradient element 4500 of 5000: expected a finite number, got nan");
  EXPECT_THAT(refusal_of(std::numeric_limits<float>::infinity()), HasSubstr("got inf"));
  EXPECT_THAT(refusal_of(-0x1p115f), HasSubstr("it exceeds what codec thc carries"));
  EXPECT_EQ(refusal_of(0x1p113f), "");
  Worker worker(*codec, gradient, {}, ContextOf(0));
  const auto refusal = [&](const std::vector<float>& norms) {
    return std::string(worker.run().Take(0, norms, {}).message());
  };
  EXPECT_EQ(refusal({1, -1}), "norm of all workers: block 1 is -1, expected 0 to 1.32923e+36");
  EXPECT_THAT(refusal({1, NAN}), HasSubstr("block 1 is nan"));
  EXPECT_THAT(refusal({std::numeric_limits<float>::infinity(), 1}), HasSubstr("block 0 is inf"));
  EXPECT_THAT(refusal({1, 0x1p121f}), HasSubstr("block 1 is"));
  EXPECT_EQ(refusal({1, 0}), "");
}

}  // namespace
}  // namespace slimps
