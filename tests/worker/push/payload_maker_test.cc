// SPDX-License-Identifier: Apache-2.0
#include "worker/push/payload_maker.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "tests/compress/codec/make_codec.h"
#include "worker/push/lent_gradient.h"

namespace slimps {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

class PayloadMakerTest : public ::testing::Test {
 protected:
  // Makes the payload of partition 0, of a tensor with `gradient` in grad_buf.
  absl::StatusOr<MadePayload> Push(PayloadMaker& maker, const std::vector<float>& gradient,
                                   const Codec& codec, const Codec& compressor) {
    tensor_.elements = gradient.size();
    tensor_.partitions = {{0, 0, gradient.size()}};
    grad_buf_ = *device_->AllocateHost(gradient.size());
    std::ranges::copy(gradient, grad_buf_->floats().begin());
    float largest = 0;
    for (const float x : gradient) {
      largest = std::isnan(x) ? kInfinity : std::max(largest, std::abs(x));
    }
    return maker.Make(
        {.tensor = &tensor_, .round = ++round_, .grad_buf = grad_buf_, .gradient_bound = largest},
        codec, compressor);
  }
  std::vector<float> Sent(PayloadMaker& maker, const std::vector<float>& gradient,
                          const Codec& codec, const Codec& compressor) {
    const auto made = Push(maker, gradient, codec, compressor);
    EXPECT_TRUE(made.ok()) << made.status();
    std::vector<float> decoded(gradient.size());
    Decode(made->format, made->payload.bytes(), decoded.size(), 0, decoded);
    return decoded;
  }

  // Sends `gradient` raw, whatever its codec.
  std::vector<float> SentRaw(PayloadMaker& maker, const std::vector<float>& gradient,
                             const Codec& codec, const Codec& compressor) {
    const auto made = Push(maker, gradient, codec, compressor);
    EXPECT_TRUE(made.ok()) << made.status();
    EXPECT_EQ(made->format, PayloadFormat::kRawF32);
    std::vector<float> decoded(gradient.size());
    Decode(made->format, made->payload.bytes(), decoded.size(), 0, decoded);
    return decoded;
  }

  const std::unique_ptr<Device> device_ = MakeHostDevice();
  const std::unique_ptr<Codec> none_ = MakeCodecOrDie("none");
  TensorPlan tensor_{.key = Key("w"), .info = {}, .partitions = {}};
  std::shared_ptr<HostBuffer> grad_buf_;
  uint64_t round_ = 0;
};

using Floats = std::vector<float>;

TEST_F(PayloadMakerTest, ARawGradientTravelsWhereItIs) {
  PayloadMaker maker({.grad_scale = 1});
  const auto made = Push(maker, {1, 2, 3}, *none_, *none_);
  ASSERT_TRUE(made.ok());
  EXPECT_EQ(static_cast<const void*>(made->payload.bytes().data()), grad_buf_->floats().data());
  EXPECT_EQ(made->stats.elements_sent, 3u);
  EXPECT_EQ(made->stats.payload_bytes, 12u);
  PayloadMaker scaling({.grad_scale = 4});
  EXPECT_EQ(Sent(scaling, {1, 2, 3}, *none_, *none_), (Floats{4, 8, 12}));
  EXPECT_EQ(grad_buf_->floats()[2], 12) << "scaled in place";
}

// Regression: pushes that servers had acknowledged filled the staging, and the next one waited in
// vain.
TEST_F(PayloadMakerTest, APayloadThatIsKeptHoldsNoGradBufAndNoRoomToSpare) {
  PayloadMaker maker({.grad_scale = 1, .keeps_payloads = true});
  const auto raw = Push(maker, {1, 2, 3}, *none_, *none_);
  ASSERT_TRUE(raw.ok());
  EXPECT_EQ(grad_buf_.use_count(), 1);
  EXPECT_EQ(raw->payload.size(), 12u);
  const size_t before = maker.bit_bufs().bytes_in_use;
  const auto topk = MakeCodecOrDie("topk:ratio=0.01");
  const auto sparse = Push(maker, Floats(10000, 1.0f), *topk, *topk);
  ASSERT_TRUE(sparse.ok());
  EXPECT_LE(maker.bit_bufs().bytes_in_use - before, 4096u) << "a block of the pool, not 80 kB";
}

TEST_F(PayloadMakerTest, ALentGradientIsOnlyReadAndKeptAsLongAsItWasLent) {
  const auto one_bit = MakeCodecOrDie("1bit"), dgc = MakeCodecOrDie("dgc:k=1,mu=0.5");
  const Floats gradient = {1, -2, 3};
  tensor_.elements = gradient.size();
  tensor_.partitions = {{0, 0, gradient.size()}};
  for (const bool until_acknowledged : {false, true}) {
    bool is_returned = false;
    const auto lend = [&]() -> std::shared_ptr<HostBuffer> {
      is_returned = false;
      const auto loan =
          std::make_shared<GradientLoan>(LentGradient{.values = gradient,
                                                      .place = {},
                                                      .returned = nullptr,
                                                      .until_acknowledged = until_acknowledged});
      loan->Accept([&](const absl::Status&) { is_returned = true; });
      return LendPartitions(tensor_, loan)[0];
    };
    const auto make = [&](PayloadMaker& maker, const Codec& codec, const Codec& compressor) {
      auto made = maker.Make({.tensor = &tensor_, .round = ++round_, .grad_buf = lend()}, codec,
                             compressor);
      EXPECT_TRUE(made.ok()) << made.status();
      return *std::move(made);
    };
    PayloadMaker plain({.grad_scale = 1}), scaling({.grad_scale = 4});
    {
      const MadePayload raw = make(plain, *none_, *none_);
      EXPECT_EQ(is_returned, !until_acknowledged);
      EXPECT_EQ(static_cast<const void*>(raw.payload.bytes().data()) == gradient.data(),
                until_acknowledged);
    }
    EXPECT_TRUE(is_returned);
    for (const Codec* codec : {none_.get(), one_bit.get(), dgc.get()}) {
      const MadePayload made = make(scaling, *codec, *dgc);
      EXPECT_TRUE(is_returned) << codec->spec().name;
      EXPECT_EQ(gradient, (Floats{1, -2, 3})) << codec->spec().name;
    }
  }
}

TEST_F(PayloadMakerTest, ARawPushSendsWhatEncodedOnesHeldBackOnce) {
  PayloadMaker maker({.grad_scale = 1});
  const auto two_bit = MakeCodecOrDie("2bit:threshold=1");
  EXPECT_EQ(Sent(maker, {1.5f, 0.25f, -3}, *two_bit, *two_bit), (Floats{1, 0, -1}));
  EXPECT_EQ(Sent(maker, {1, 1, 1}, *none_, *two_bit), (Floats{1.5f, 1.25f, -1}));
  EXPECT_EQ(Sent(maker, {1, 1, 1}, *none_, *two_bit), (Floats{1, 1, 1}));
}

TEST_F(PayloadMakerTest, HalfPrecisionKeepsItsRoundingForTheNextPush) {
  PayloadMaker maker({.grad_scale = 1});
  const auto two_bit = MakeCodecOrDie("2bit:threshold=1"), half = MakeCodecOrDie("fp16");
  Sent(maker, {0x1p-12f}, *two_bit, *two_bit);  // e = 2^-12
  // 1 + 2^-12 rounds to 1 in half precision. The rest goes with the next push.
  EXPECT_EQ(Sent(maker, {1}, *half, *two_bit), Floats{1});
  EXPECT_EQ(Sent(maker, {0}, *half, *two_bit), Floats{0x1p-12f});
}

TEST_F(PayloadMakerTest, RawPushesOfACodecWithMomentumTakeItsStep) {
  PayloadMaker maker({.grad_scale = 2});
  const auto dgc = MakeCodecOrDie("dgc:k=1,mu=0.5");
  // Raw: u = 0.5 u + g, and all of u is sent.
  EXPECT_EQ(Sent(maker, {1, 4}, *none_, *dgc), (Floats{2, 8}));
  EXPECT_EQ(Sent(maker, {1, 4}, *none_, *dgc), (Floats{3, 12}));
  // Encoded: the largest element is sent and loses its momentum. The rest waits.
  EXPECT_EQ(Sent(maker, {1, 4}, *dgc, *dgc), (Floats{0, 14}));
  EXPECT_EQ(Sent(maker, {1, 4}, *none_, *dgc), (Floats{3.5f + 3.75f, 8}));
}

TEST_F(PayloadMakerTest, AValueThatFp32CannotCarryIsNamedAndChangesNothing) {
  PayloadMaker maker({.grad_scale = 1});
  const auto half = MakeCodecOrDie("fp16:error_feedback=on"), dgc = MakeCodecOrDie("dgc:k=1");
  for (const Codec* codec : {half.get(), dgc.get(), none_.get()}) {
    const auto refused = Push(maker, {1, kInfinity}, *codec, *dgc);
    EXPECT_EQ(refused.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_NE(refused.status().message().find("key s:w partition 0: "), absl::string_view::npos);
    EXPECT_NE(refused.status().message().find("element 1"), absl::string_view::npos)
        << refused.status();
  }
  EXPECT_EQ(Sent(maker, {1, 2}, *none_, *dgc), (Floats{1, 2}));
}

TEST_F(PayloadMakerTest, AValueBeyondHalfPrecisionTravelsRaw) {
  PayloadMaker maker({.grad_scale = 2});
  const auto half = MakeCodecOrDie("fp16");
  EXPECT_EQ(SentRaw(maker, {1, 1e6f}, *half, *half), (Floats{2, 2e6f}));
  const auto next = Push(maker, {1, 3}, *half, *half);
  ASSERT_TRUE(next.ok()) << next.status();
  EXPECT_EQ(next->format, PayloadFormat::kRawF16);
}

TEST_F(PayloadMakerTest, AValueBeyondHalfPrecisionTakesTheResidualAlong) {
  PayloadMaker maker({.grad_scale = 1});
  const auto topk = MakeCodecOrDie("topk:k=1,value=fp16");
  EXPECT_EQ(Sent(maker, {1, 4}, *topk, *topk), (Floats{0, 4}));
  EXPECT_EQ(SentRaw(maker, {1, 1e6f}, *topk, *topk), (Floats{2, 1e6f}));
  EXPECT_EQ(Sent(maker, {3, 1}, *topk, *topk), (Floats{3, 0}));
}

TEST_F(PayloadMakerTest, AValueBeyondHalfPrecisionStepsMomentumOnce) {
  const auto half = MakeCodecOrDie("fp16"), dgc = MakeCodecOrDie("dgc:k=1,mu=0.5"),
             half_dgc = MakeCodecOrDie("dgc:k=1,mu=0.5,value=fp16");
  PayloadMaker maker({.grad_scale = 2});
  EXPECT_EQ(SentRaw(maker, {1, 1e6f}, *half, *dgc), (Floats{2, 2e6f}));
  EXPECT_EQ(SentRaw(maker, {1, 1e6f}, *half, *dgc), (Floats{3, 3e6f}));
  PayloadMaker encoding({.grad_scale = 2});
  EXPECT_EQ(SentRaw(encoding, {1, 1e6f}, *half_dgc, *half_dgc), (Floats{2, 2e6f}));
  EXPECT_EQ(SentRaw(encoding, {1, 1e6f}, *half_dgc, *half_dgc), (Floats{3, 3e6f}));
}

TEST_F(PayloadMakerTest, WhatIsNotFinitePassesAndChangesNoState) {
  PayloadMaker maker({.grad_scale = 2, .pass_non_finite = true});
  const auto topk = MakeCodecOrDie("topk:k=1"), dgc = MakeCodecOrDie("dgc:k=1,mu=0.5");
  EXPECT_EQ(Sent(maker, {1, 4}, *topk, *topk), (Floats{0, 8}));
  EXPECT_EQ(SentRaw(maker, {kInfinity, 4}, *topk, *topk), (Floats{kInfinity, 8}));
  EXPECT_EQ(SentRaw(maker, {4, -kInfinity}, *none_, *topk), (Floats{8, -kInfinity}));
  EXPECT_TRUE(std::isnan(SentRaw(maker, {std::nanf(""), 1}, *topk, *topk)[0]));
  EXPECT_EQ(SentRaw(maker, {3e38f, 1}, *topk, *topk), (Floats{kInfinity, 2})) << "by its scale";
  EXPECT_EQ(Sent(maker, {4, 1}, *topk, *topk), (Floats{10, 0})) << "with the residual 2";
  PayloadMaker with_momentum({.grad_scale = 2, .pass_non_finite = true});
  EXPECT_EQ(SentRaw(with_momentum, {1, 1}, *none_, *dgc), (Floats{2, 2}));
  EXPECT_EQ(SentRaw(with_momentum, {1, kInfinity}, *none_, *dgc), (Floats{2, kInfinity}));
  EXPECT_EQ(SentRaw(with_momentum, {1, kInfinity}, *dgc, *dgc), (Floats{2, kInfinity}));
  EXPECT_EQ(SentRaw(with_momentum, {1, 1}, *none_, *dgc), (Floats{3, 3}));
  const auto votes = MakeCodecOrDie("signsgd");
  for (const Codec* codec : {none_.get(), votes.get()}) {
    const auto refused = Push(maker, {kInfinity, 1}, *codec, *votes);
    EXPECT_EQ(refused.status().code(), absl::StatusCode::kInvalidArgument) << refused.status();
  }
}

TEST_F(PayloadMakerTest, BitBufMemoryIsUsedAgain) {
  PayloadMaker maker({.grad_scale = 1});
  const auto one_bit = MakeCodecOrDie("1bit");
  const Floats gradient(100'000, 1.0f);
  const std::byte* first = nullptr;
  for (int push = 0; push < 5; ++push) {
    const auto made = Push(maker, gradient, *one_bit, *one_bit);
    ASSERT_TRUE(made.ok());
    if (push == 0) first = made->payload.bytes().data();
    EXPECT_EQ(made->payload.bytes().data(), first);
    EXPECT_EQ(maker.bit_bufs().blocks_made, 1);
  }
  EXPECT_EQ(maker.bit_bufs().bytes_in_use, 0u);
  // Two payloads under way need two buffers.
  const auto one = Push(maker, gradient, *one_bit, *one_bit);
  const auto two = Push(maker, gradient, *one_bit, *one_bit);
  EXPECT_EQ(maker.bit_bufs().blocks_made, 2);
}

TEST_F(PayloadMakerTest, APayloadOutlivesItsMaker) {
  absl::StatusOr<MadePayload> made;
  {
    PayloadMaker maker({.grad_scale = 1});
    made = Push(maker, Floats(5000, 1.0f), *MakeCodecOrDie("1bit"), *none_);
  }
  ASSERT_TRUE(made.ok());
  EXPECT_TRUE(ValidatePayload(made->format, made->payload.bytes(), 5000).ok());
}

}  // namespace
}  // namespace slimps
