// SPDX-License-Identifier: Apache-2.0
#include "server/round/aggregate.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "compress/codec/catalogue/registry.h"
#include "compress/format/decode.h"
#include "gtest/gtest.h"
#include "proto/base/buffer.h"
#include "tests/compress/format/sum_test_util.h"
#include "tests/compress/test_data.h"
#include "tests/server/round/server_test_util.h"

namespace slimps {
namespace {

// A partition's weights and state, before and after a round.
struct State {
  explicit State(size_t n)
      : before(RandomFloats(n, 1)), after(n), state0(RandomFloats(n, 2)), state1(n, 0.5f) {}

  AggregateInput Input(const Optimizer& optimizer, const std::vector<PayloadView>& payloads) {
    return {.payloads = payloads,
            .optimizer = &optimizer,
            .step = optimizer.PlanStep({.contributors = 3}),
            .before = before,
            .after = after,
            .state0 = state0,
            .state1 = state1};
  }
  std::string DifferenceTo(const State& other) const {
    return Difference(after, other.after) + Difference(state0, other.state0) +
           Difference(state1, other.state1);
  }

  std::vector<float> before, after, state0, state1;
};

// Computes the same result in separate passes over whole tensors: decodes and adds each payload in
// turn, takes signs, steps.
void InTurn(const AggregateInput& input) {
  const size_t n = input.before.size();
  std::vector<float> sum(n, 0.0f);
  for (const PayloadView& one : input.payloads) {
    DecodeAddWith(*FindKernels("scalar"), one.format, one.bytes, n, 0, sum);
  }
  if (input.combine == Combine::kMajority) {
    for (float& x : sum) x = x > 0 ? 1.0f : x < 0 ? -1.0f : x;
  }
  ApplyBlock(*input.optimizer, input.step, input.before, sum, input.after, input.state0,
             input.state1);
}

wire::OptimizerSpec Adam() {
  wire::OptimizerSpec spec;
  spec.set_kind(wire::OptimizerSpec::ADAM);
  spec.set_learning_rate(0.01);
  spec.set_beta1(0.9);
  spec.set_beta2(0.999);
  spec.set_epsilon(1e-8);
  return spec;
}

TEST(AggregateRound, IsTheSeparatePassesBitForBitForAnyWorkersFormatsAndKernels) {
  for (const wire::OptimizerSpec& spec : {wire::OptimizerSpec(), SgdSpec(0.1, 0.9), Adam()}) {
    const auto optimizer = MakeOptimizer(spec);
    for (const Combine combine : {Combine::kSum, Combine::kMajority}) {
      for (size_t workers = 1; workers <= 17; ++workers) {
        const size_t n = workers % 3 == 0 ? 2 * kBlockElements + 33 : 17 * workers;
        const TestRound round(n, workers, TestRound::kMixed, workers);
        State expected(n);
        AggregateInput input = expected.Input(*optimizer, round.views());
        input.combine = combine;
        InTurn(input);
        for (const Kernels* kernels : AllKernels()) {
          if (!kernels->runs_here()) continue;
          State got(n);
          input = got.Input(*optimizer, round.views());
          input.combine = combine;
          AggregateRoundWith(*kernels, input, 0, n);
          ASSERT_EQ(got.DifferenceTo(expected), "") << kernels->name << ", " << workers;
        }
      }
    }
  }
}

TEST(AggregateRound, AWorkerOfEveryCodecIsTheSeparatePassesToo) {
  constexpr size_t kElements = 2 * kBlockElements + 100;
  std::vector<std::vector<std::byte>> bytes;
  std::vector<PayloadFormat> formats;
  for (const CodecEntry& entry : AllCodecs()) {
    const std::unique_ptr<Codec> codec = MakeCodec({.name = std::string(entry.name)}).value();
    std::vector<float> gradient = RandomFloats(kElements, bytes.size()), momentum(kElements);
    bytes.emplace_back(codec->MaxPayloadBytes(kElements));
    const auto stats = codec->Encode(
        {.gradient = gradient,
         .residual = {},
         .momentum = codec->wants_momentum() ? std::span(momentum) : std::span<float>()},
        bytes.back());
    ASSERT_TRUE(stats.ok()) << entry.name << ": " << stats.status();
    bytes.back().resize(stats->payload_bytes);
    formats.push_back(codec->format());
    ASSERT_TRUE(ValidatePayload(formats.back(), bytes.back(), kElements).ok()) << entry.name;
  }
  std::vector<PayloadView> payloads;
  for (size_t i = 0; i < bytes.size(); ++i) payloads.push_back({formats[i], bytes[i]});
  const auto optimizer = MakeOptimizer(SgdSpec(0.1, 0.9));
  State expected(kElements);
  InTurn(expected.Input(*optimizer, payloads));
  for (const Kernels* kernels : AllKernels()) {
    if (!kernels->runs_here()) continue;
    State got(kElements);
    AggregateRoundWith(*kernels, got.Input(*optimizer, payloads), 0, kElements);
    EXPECT_EQ(got.DifferenceTo(expected), "") << kernels->name;
  }
}

TEST(AggregateRound, RangesMayBeComputedApartInAnyOrder) {
  constexpr size_t kElements = 5 * kBlockElements + 7;
  const TestRound round(kElements, 5, TestRound::kMixed, 4);
  const auto optimizer = MakeOptimizer(SgdSpec(0.1, 0.9));
  State whole(kElements), parts(kElements);
  AggregateRound(whole.Input(*optimizer, round.views()), 0, kElements);
  const AggregateInput input = parts.Input(*optimizer, round.views());
  AggregateRound(input, 3 * kBlockElements, kElements);
  AggregateRound(input, kBlockElements, 3 * kBlockElements);
  AggregateRound(input, 0, kBlockElements);
  EXPECT_EQ(parts.DifferenceTo(whole), "");
}

TEST(AggregateRound, LargePartitionsWhoseWeightsGoPastTheCachesGetTheSameBits) {
  constexpr size_t kElements = (8 << 20) + 4096 + 5;  // over 32 MiB
  const TestRound round(kElements, 2, TestRound::kOneBit, 5);
  const auto optimizer = MakeOptimizer(SgdSpec(0.1));
  AlignedBuffer weights = AlignedBuffer::OfFloats(kElements);
  AlignedBuffer next = AlignedBuffer::OfFloats(kElements);
  std::fill(weights.floats().begin(), weights.floats().end(), 0.25f);
  AggregateInput input = {.payloads = round.views(),
                          .optimizer = optimizer.get(),
                          .step = optimizer->PlanStep({}),
                          .before = weights.floats(),
                          .after = next.floats()};
  AggregateRound(input, 0, kElements);
  input.after = weights.floats();  // in place: these weights are never written past the caches
  AggregateRound(input, 0, kElements);
  EXPECT_EQ(Difference(next.floats(), weights.floats()), "");
}

TEST(AggregateRound, AMajorityOfSignsIsTheirSignAndATieIsZero) {
  const std::vector<std::vector<float>> votes = {{1, -1, 1, 3, 0}, {1, -1, -1, -1, 0}};
  std::vector<PayloadView> payloads;
  for (const auto& vote : votes) {
    payloads.push_back({PayloadFormat::kRawF32, std::as_bytes(std::span<const float>(vote))});
  }
  const auto optimizer = MakeOptimizer({});
  State state(5);
  AggregateInput input = state.Input(*optimizer, payloads);
  input.combine = Combine::kMajority;
  AggregateRound(input, 0, 5);
  EXPECT_EQ(state.after, (std::vector<float>{1, -1, 0, 1, 0}));
}

// Encodes a round's change in the same pass, and again in separate passes.
class ChangeEncoderTest : public ::testing::Test {
 protected:
  struct Result {
    absl::StatusOr<EncodeStats> stats = absl::UnknownError("not run");
    std::vector<std::byte> payload;
    std::vector<float> seen;
  };

  static Result InOnePass(const Kernels& kernels, const CodecSpec& spec, size_t n, State& state,
                          const AggregateInput& input) {
    const std::unique_ptr<Codec> codec = MakeCodec(spec, kernels).value();
    const auto& block_codec = dynamic_cast<const BlockCodec&>(*codec);
    Result result = {.payload = std::vector<std::byte>(codec->MaxPayloadBytes(n)), .seen = Seen(n)};
    EncodeWorkspace workspace;
    const std::vector<float> before = result.seen;
    ChangeEncoder change(block_codec, Context(), {.before = before, .after = result.seen},
                         result.payload, workspace, nullptr, kernels);
    AggregateInput with_change = input;
    with_change.change = &change;
    AggregateRoundWith(kernels, with_change, 0, n);
    result.stats = change.Finish(state.after);
    return result;
  }

  static Result InTurnToo(const CodecSpec& spec, size_t n, State& state,
                          const AggregateInput& input) {
    const std::unique_ptr<Codec> codec = MakeCodec(spec, *FindKernels("scalar")).value();
    InTurn(input);
    Result result = {.payload = std::vector<std::byte>(codec->MaxPayloadBytes(n)), .seen = Seen(n)};
    std::vector<float> x(n);
    for (size_t i = 0; i < n; ++i) x[i] = state.after[i] - result.seen[i];
    result.stats =
        codec->Encode({.gradient = x, .residual = {}, .context = Context()}, result.payload);
    if (result.stats.ok()) DecodeAdd(codec->format(), result.payload, n, 0, result.seen);
    return result;
  }

  static std::vector<float> Seen(size_t n) { return RandomFloats(n, 3); }
  static EncodeContext Context() { return {.key = 5, .partition = 1, .round = 7}; }
};

TEST_F(ChangeEncoderTest, GivesTheBitsOfSeparatePasses) {
  const auto optimizer = MakeOptimizer(SgdSpec(0.1, 0.9));
  for (const char* name : {"1bit", "1bit:scaling=two_mean", "2bit", "fp16", "none"}) {
    const CodecSpec spec = ParseCodecSpec(name).value();
    for (const size_t n : {size_t{0}, size_t{1}, size_t{257}, 2 * kBlockElements + 9}) {
      const TestRound round(n, 4, TestRound::kTwoBits, 6);
      State apart(n);
      const Result expected = InTurnToo(spec, n, apart, apart.Input(*optimizer, round.views()));
      ASSERT_TRUE(expected.stats.ok()) << expected.stats.status();
      for (const Kernels* kernels : AllKernels()) {
        if (!kernels->runs_here()) continue;
        State together(n);
        const Result got =
            InOnePass(*kernels, spec, n, together, together.Input(*optimizer, round.views()));
        ASSERT_TRUE(got.stats.ok()) << got.stats.status();
        EXPECT_EQ(together.DifferenceTo(apart), "");
        EXPECT_EQ(got.payload, expected.payload) << name << " " << kernels->name << " " << n;
        EXPECT_EQ(Difference(got.seen, expected.seen), "") << name << " " << kernels->name;
        EXPECT_EQ(got.stats->input_norm2, expected.stats->input_norm2);
        EXPECT_EQ(got.stats->error_norm2, expected.stats->error_norm2);
        EXPECT_EQ(got.stats->payload_bytes, expected.stats->payload_bytes);
      }
    }
  }
}

TEST_F(ChangeEncoderTest, WhatWorkersSeeFollowsTheWeights) {
  constexpr size_t kElements = 300;
  const auto optimizer = MakeOptimizer(SgdSpec(0.01));
  const std::unique_ptr<Codec> codec = MakeCodec(ParseCodecSpec("1bit").value()).value();
  State state(kElements);
  std::vector<float> seen = state.before, worker = state.before;
  std::vector<std::byte> payload(codec->MaxPayloadBytes(kElements));
  EncodeWorkspace workspace;
  for (uint64_t round = 1; round <= 40; ++round) {
    const TestRound pushed(kElements, 3, TestRound::kOneBit, round);
    workspace.Reset();
    const std::vector<float> before = seen;
    ChangeEncoder change(dynamic_cast<const BlockCodec&>(*codec), {.round = round},
                         {.before = before, .after = seen}, payload, workspace);
    AggregateInput input = state.Input(*optimizer, pushed.views());
    input.change = &change;
    AggregateRound(input, 0, kElements);
    ASSERT_TRUE(change.Finish(state.after).ok());
    DecodeAdd(codec->format(), payload, kElements, 0, worker);
    ASSERT_EQ(Difference(worker, seen), "") << "round " << round;
    state.before = state.after;
  }
  for (size_t i = 0; i < kElements; ++i) EXPECT_NEAR(seen[i], state.after[i], 0.5f);
}

TEST_F(ChangeEncoderTest, AChangeThatCannotBeEncodedMakesTheWeightsAKeyframe) {
  constexpr size_t kElements = 2 * kBlockElements;
  const auto optimizer = MakeOptimizer({});
  std::vector<float> bad(kElements, 1.0f);
  bad[kBlockElements + 3] = std::numeric_limits<float>::quiet_NaN();
  const PayloadView raw = {PayloadFormat::kRawF32, std::as_bytes(std::span<const float>(bad))};
  State state(kElements);
  const Result result = InOnePass(BestKernels(), ParseCodecSpec("1bit").value(), kElements, state,
                                  state.Input(*optimizer, {raw}));
  EXPECT_EQ(result.stats.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Difference(result.seen, bad), "");
}

}  // namespace
}  // namespace slimps
