// SPDX-License-Identifier: Apache-2.0
#include "worker/combination.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/compress/codec/make_codec.h"

namespace slimps {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

wire::OptimizerSpec Optimizer(wire::OptimizerSpec::Kind kind, double momentum = 0) {
  wire::OptimizerSpec spec;
  spec.set_kind(kind);
  spec.set_momentum(momentum);
  spec.set_beta1(0.9);
  return spec;
}

const wire::OptimizerSpec kSums = Optimizer(wire::OptimizerSpec::NONE);

std::string Refusal(const Combination& combination) {
  const absl::Status status = CheckCombination(combination);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  return std::string(status.message());
}

TEST(Combination, WhatMakesSenseIsAllowed) {
  const auto codec = MakeCodecOrDie("1bit");
  const wire::OptimizerSpec sgd = Optimizer(wire::OptimizerSpec::SGD, 0.9);
  EXPECT_TRUE(CheckCombination({.codec = codec.get()}).ok());
  EXPECT_TRUE(CheckCombination({.codec = codec.get(), .optimizer = kSums}).ok());
  EXPECT_TRUE(
      CheckCombination({.codec = codec.get(), .optimizer = sgd, .backup_model = true}).ok());
  EXPECT_TRUE(
      CheckCombination({.codec = codec.get(), .mode = wire::DIST_ASYNC, .optimizer = sgd}).ok());
}

TEST(Combination, TheBackupModelNeedsRoundsAndGlobalWeights) {
  EXPECT_THAT(Refusal({.mode = wire::DIST_ASYNC, .backup_model = true}),
              AllOf(HasSubstr("backup model with dist_async"), HasSubstr("has no rounds")));
  EXPECT_THAT(Refusal({.optimizer = kSums, .backup_model = true}),
              AllOf(HasSubstr("backup model without a server optimizer"), HasSubstr("sums")));
}

TEST(Combination, StalenessAndMeasuringAgainAreRefusedWhereTheyHaveNoEffect) {
  EXPECT_THAT(Refusal({.staleness = 3}), HasSubstr("staleness=3 with dist_sync: expected 0"));
  EXPECT_TRUE(CheckCombination({.mode = wire::DIST_SSP, .staleness = 3}).ok());
  EXPECT_THAT(Refusal({.mode = wire::DIST_SSP, .remeasure_every = 20}),
              HasSubstr("remeasure_every=20 with dist_ssp: expected 0"));
  EXPECT_TRUE(CheckCombination({.remeasure_every = 20}).ok());
}

TEST(Combination, AsynchronousWithoutOptimizerIsRefused) {
  EXPECT_THAT(Refusal({.mode = wire::DIST_ASYNC, .optimizer = kSums}),
              HasSubstr("dist_async without a server optimizer"));
  EXPECT_TRUE(CheckCombination({.mode = wire::DIST_ASYNC}).ok()) << "it may come yet";
}

TEST(Combination, OneBitAdamTakesNoPolicyThatAdapts) {
  const wire::OptimizerSpec adam = Optimizer(wire::OptimizerSpec::ONEBIT_ADAM);
  EXPECT_THAT(Refusal({.policy = "lgreco:codec=topk", .optimizer = adam}),
              AllOf(HasSubstr("optimizer onebit_adam with policy lgreco:codec=topk"),
                    HasSubstr("expected threshold")));
}

TEST(Combination, OneBitWithAdamIsWarnedOf) {
  const auto one_bit = MakeCodecOrDie("1bit"), four_bits = MakeCodecOrDie("qsgd:bits=4");
  for (const auto kind : {wire::OptimizerSpec::ADAM, wire::OptimizerSpec::ADAMW}) {
    const wire::OptimizerSpec adam = Optimizer(kind);
    EXPECT_THAT(WarningOf({.codec = one_bit.get(), .optimizer = adam}),
                AllOf(HasSubstr("freeze_after=\"auto\""), HasSubstr("qsgd:bits=4")));
    EXPECT_EQ(WarningOf({.codec = four_bits.get(), .optimizer = adam}), "");
    EXPECT_EQ(WarningOf({.optimizer = adam}), "");
  }
  for (const auto kind : {wire::OptimizerSpec::SGD, wire::OptimizerSpec::ONEBIT_ADAM}) {
    EXPECT_EQ(WarningOf({.codec = one_bit.get(), .optimizer = Optimizer(kind)}), "");
  }
  EXPECT_EQ(WarningOf({.codec = one_bit.get()}), "");
}

TEST(Combination, BoundedStalenessHasNoRoundsInCommonEither) {
  const auto codec = MakeCodecOrDie("1bit"), signsgd = MakeCodecOrDie("signsgd");
  const wire::OptimizerSpec sgd = Optimizer(wire::OptimizerSpec::SGD, 0.9);
  EXPECT_TRUE(
      CheckCombination({.codec = codec.get(), .mode = wire::DIST_SSP, .optimizer = sgd}).ok());
  EXPECT_THAT(Refusal({.mode = wire::DIST_SSP, .optimizer = sgd, .backup_model = true}),
              AllOf(HasSubstr("the backup model with dist_ssp: expected dist_sync"),
                    HasSubstr("dist_ssp has no rounds in common")));
  EXPECT_THAT(Refusal({.mode = wire::DIST_SSP, .optimizer = kSums}),
              HasSubstr("dist_ssp without a server optimizer"));
  EXPECT_THAT(Refusal({.codec = signsgd.get(), .mode = wire::DIST_SSP}),
              HasSubstr("codec signsgd with dist_ssp"));
  EXPECT_THAT(Refusal({.pull_codec = codec.get(), .mode = wire::DIST_SSP}),
              HasSubstr("pull compression 1bit with dist_ssp"));
}

TEST(Combination, ModesHaveTheNamesOfStores) {
  for (const wire::StoreMode mode : {wire::DIST_SYNC, wire::DIST_ASYNC, wire::DIST_SSP}) {
    EXPECT_EQ(FindStoreMode(StoreModeName(mode)), mode);
  }
  EXPECT_EQ(FindStoreMode("dist_device_sync"), wire::DIST_SYNC);
  EXPECT_EQ(FindStoreMode("local"), std::nullopt);
}

TEST(Combination, OneVoteIsNoMajority) {
  const auto signsgd = MakeCodecOrDie("signsgd");
  EXPECT_THAT(Refusal({.codec = signsgd.get(), .mode = wire::DIST_ASYNC}),
              AllOf(HasSubstr("codec signsgd with dist_async"), HasSubstr("majority")));
  // Without an optimizer the store returns the vote itself, and signSGD's workers step by it.
  EXPECT_TRUE(CheckCombination({.codec = signsgd.get(), .optimizer = kSums}).ok());
}

TEST(Combination, PullsCarryChangesThatAllWorkersShareAndThatHaveAMagnitude) {
  const auto one_bit = MakeCodecOrDie("1bit"), signsgd = MakeCodecOrDie("signsgd"),
             half = MakeCodecOrDie("fp16"), none = MakeCodecOrDie("none");
  EXPECT_TRUE(CheckCombination({.codec = signsgd.get(), .pull_codec = one_bit.get()}).ok());
  EXPECT_TRUE(CheckCombination({.pull_codec = one_bit.get(), .optimizer = kSums}).ok());
  EXPECT_TRUE(CheckCombination({.pull_codec = none.get(), .mode = wire::DIST_ASYNC}).ok());
  for (const Codec* codec : {one_bit.get(), half.get()}) {
    EXPECT_THAT(Refusal({.pull_codec = codec, .mode = wire::DIST_ASYNC}),
                AllOf(HasSubstr("with dist_async"), HasSubstr("expected dist_sync"),
                      HasSubstr("pull compression " + codec->spec().name)));
  }
  EXPECT_THAT(Refusal({.pull_codec = signsgd.get()}), HasSubstr("magnitudes"));
  for (const char* spec : {"dgc", "1bit:momentum=nesterov"}) {
    EXPECT_THAT(Refusal({.pull_codec = MakeCodecOrDie(spec).get()}), HasSubstr("without momentum"));
  }
}

TEST(Combination, PhasesNeedTheRoundsOfAllWorkers) {
  const auto codec = MakeCodecOrDie("powersgd");
  const wire::OptimizerSpec sgd = Optimizer(wire::OptimizerSpec::SGD, 0.9);
  EXPECT_TRUE(
      CheckCombination({.codec = codec.get(), .optimizer = sgd, .backup_model = true}).ok());
  EXPECT_TRUE(CheckCombination({.codec = codec.get(), .optimizer = kSums}).ok());
  EXPECT_THAT(Refusal({.codec = codec.get(), .mode = wire::DIST_SSP, .optimizer = sgd}),
              AllOf(HasSubstr("codec powersgd with dist_ssp"), HasSubstr("expected dist_sync")));
  EXPECT_THAT(Refusal({.pull_codec = codec.get()}),
              HasSubstr("pull compression powersgd: expected a codec without phases"));
  const auto thc = MakeCodecOrDie("thc");
  EXPECT_THAT(Refusal({.codec = thc.get(), .mode = wire::DIST_ASYNC, .optimizer = sgd}),
              HasSubstr("codec thc with dist_async"));
  EXPECT_TRUE(CheckCombination({.codec = thc.get(), .pull_codec = thc.get()}).ok())
      << "a server encodes changes by it alone";
}

TEST(Combination, MomentumIsAppliedOnce) {
  for (const char* spec : {"dgc", "topk:momentum=dgc", "1bit:momentum=nesterov"}) {
    const auto codec = MakeCodecOrDie(spec);
    const auto with = [&](const wire::OptimizerSpec& optimizer) {
      return Combination{.codec = codec.get(), .optimizer = optimizer};
    };
    EXPECT_THAT(Refusal(with(Optimizer(wire::OptimizerSpec::SGD, 0.9))),
                AllOf(HasSubstr(codec->spec().name), HasSubstr("twice")));
    EXPECT_THAT(Refusal(with(Optimizer(wire::OptimizerSpec::ADAM))), HasSubstr("twice"));
    EXPECT_TRUE(CheckCombination(with(Optimizer(wire::OptimizerSpec::SGD))).ok());
    EXPECT_TRUE(CheckCombination(with(Optimizer(wire::OptimizerSpec::TEST))).ok());
  }
  const auto topk = MakeCodecOrDie("topk");
  EXPECT_TRUE(
      CheckCombination({.codec = topk.get(), .optimizer = Optimizer(wire::OptimizerSpec::SGD, 0.9)})
          .ok());
}

TEST(Combination, DecayBehindACodecsMomentumCountsAsBehindTheServers) {
  const wire::OptimizerSpec sgd = Optimizer(wire::OptimizerSpec::SGD);
  for (const char* spec : {"dgc:mu=0.75", "topk:momentum=dgc,mu=0.75", "dgc:mu=0.75,warmup=3"}) {
    const auto codec = MakeCodecOrDie(spec);
    EXPECT_DOUBLE_EQ(DecayFactor(*codec, sgd), 4) << spec;
    EXPECT_DOUBLE_EQ(DecayFactor(*codec, std::nullopt), 4) << spec;
    EXPECT_EQ(DecayFactor(*codec, Optimizer(wire::OptimizerSpec::ADAMW)), 1) << spec;
  }
  EXPECT_EQ(DecayFactor(*MakeCodecOrDie("topk"), sgd), 1);
}

TEST(Combination, WhatHasNoMeanGradientIsNotClipped) {
  const wire::OptimizerSpec sgd = Optimizer(wire::OptimizerSpec::SGD);
  EXPECT_TRUE(CheckClipping("dist_sync", sgd, nullptr).ok());
  EXPECT_TRUE(CheckClipping("dist_device_sync", sgd, MakeCodecOrDie("dgc").get()).ok());
  for (const char* type : {"dist_async", "dist_ssp", "local"}) {
    EXPECT_THAT(
        std::string(CheckClipping(type, sgd, nullptr).message()),
        AllOf(HasSubstr(absl::StrCat("clip_norm with ", type)), HasSubstr("expected dist_sync")));
  }
  EXPECT_THAT(
      std::string(CheckClipping("dist_sync", Optimizer(wire::OptimizerSpec::ONEBIT_ADAM), nullptr)
                      .message()),
      AllOf(HasSubstr("clip_norm with optimizer onebit_adam"), HasSubstr("momenta")));
  EXPECT_THAT(
      std::string(CheckClipping("dist_sync", sgd, MakeCodecOrDie("signsgd").get()).message()),
      HasSubstr("clip_norm with codec signsgd"));
}

}  // namespace
}  // namespace slimps
