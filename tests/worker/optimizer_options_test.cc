// SPDX-License-Identifier: Apache-2.0
#include "worker/optimizer_options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "proto/optimizer_check.h"

namespace slimps {
namespace {

using ::testing::HasSubstr;
using Spec = wire::OptimizerSpec;

TEST(OptimizerOptions, EveryKindIsWholeAsItIsMade) {
  for (const auto& [name, kind] :
       {std::pair("sgd", Spec::SGD), std::pair("adam", Spec::ADAM), std::pair("adamw", Spec::ADAMW),
        std::pair("onebit_adam", Spec::ONEBIT_ADAM), std::pair("test", Spec::TEST),
        std::pair("none", Spec::NONE)}) {
    const absl::StatusOr<Spec> made = MakeOptimizer(name);
    ASSERT_TRUE(made.ok()) << made.status();
    EXPECT_EQ(made->kind(), kind);
    EXPECT_EQ(made->rescale_grad(), 1);
    EXPECT_TRUE(ValidateOptimizer(*made).ok()) << name;
  }
  EXPECT_EQ(MakeOptimizer("sgd")->learning_rate(), 0.01);
  EXPECT_EQ(MakeOptimizer("adam")->learning_rate(), 0.001);
  EXPECT_EQ(MakeOptimizer("adamw")->beta2(), 0.999);
  EXPECT_THAT(std::string(MakeOptimizer("lamb").status().message()),
              HasSubstr("expected sgd, adam, adamw, onebit_adam, test or none, got \"lamb\""));
}

TEST(OptimizerOptions, EachNameReachesItsFieldAsNumberAndAsText) {
  Spec by_number, by_text;
  for (const std::string& name : OptimizerOptionNames()) {
    if (name == "schedule") continue;
    const bool is_sgds = name == "momentum" || name == "nesterov";
    for (Spec* spec : {&by_number, &by_text}) {
      spec->set_kind(is_sgds ? Spec::SGD : Spec::ONEBIT_ADAM);
    }
    ASSERT_TRUE(SetOptimizerNumber(name, 1, &by_number).ok()) << name;
    ASSERT_TRUE(SetOptimizerOption(name, "1", &by_text).ok()) << name;
  }
  ASSERT_TRUE(SetOptimizerOption("schedule", "cosine", &by_text).ok());
  Spec expected;
  expected.set_kind(by_text.kind());
  expected.set_learning_rate(1);
  expected.set_momentum(1);
  expected.set_nesterov(true);
  expected.set_weight_decay(1);
  expected.set_beta1(1);
  expected.set_beta2(1);
  expected.set_epsilon(1);
  expected.set_rescale_grad(1);
  expected.set_clip_gradient(1);
  expected.set_average(true);
  expected.set_freeze_after(1);
  expected.mutable_schedule()->set_warmup_rounds(1);
  expected.mutable_schedule()->set_every(1);
  expected.mutable_schedule()->set_factor(1);
  expected.mutable_schedule()->set_total_rounds(1);
  expected.mutable_schedule()->set_final_lr(1);
  expected.mutable_schedule()->set_begin_round(1);
  expected.mutable_schedule()->set_power(1);
  EXPECT_EQ(by_number.SerializeAsString(), expected.SerializeAsString());
  expected.mutable_schedule()->set_kind(wire::LearningRateSchedule::COSINE);
  EXPECT_EQ(by_text.SerializeAsString(), expected.SerializeAsString());
}

TEST(OptimizerOptions, NumbersKeepTheirValue) {
  Spec spec = *MakeOptimizer("sgd");
  ASSERT_TRUE(SetOptimizerNumber("learning_rate", 0.1, &spec).ok());
  EXPECT_EQ(spec.learning_rate(), 0.1);
  ASSERT_TRUE(SetOptimizerOption("weight_decay", "1e-4", &spec).ok());
  EXPECT_EQ(spec.weight_decay(), 1e-4);
  ASSERT_TRUE(SetOptimizerNumber("total_rounds", 9007199254740992.0, &spec).ok());
  EXPECT_EQ(spec.schedule().total_rounds(), uint64_t{1} << 53);
}

TEST(OptimizerOptions, AnOptionThatTheOptimizerDoesNotUseIsRefused) {
  for (const auto& [kind, name, users] :
       {std::tuple("adam", "momentum", "it is of sgd"),
        std::tuple("none", "nesterov", "it is of sgd"),
        std::tuple("sgd", "beta1", "it is of adam, adamw and onebit_adam"),
        std::tuple("test", "weight_decay", "it is of sgd, adam, adamw and onebit_adam"),
        std::tuple("test", "epsilon", "it is of adam, adamw and onebit_adam"),
        std::tuple("adamw", "freeze_after", "it is of onebit_adam")}) {
    Spec spec = *MakeOptimizer(kind);
    EXPECT_EQ(SetOptimizerNumber(name, 1, &spec),
              absl::InvalidArgumentError(
                  absl::StrCat("optimizer option ", name, "=1 has no effect: ", users)));
    EXPECT_TRUE(SetOptimizerOption(name, "0", &spec).ok()) << "it asks for nothing";
  }
}

TEST(OptimizerOptions, WhatMakesNoSenseIsNamedAndChangesNothing) {
  struct Case {
    const char* name;
    double value;
    const char* expected;
  };
  const Spec before = *MakeOptimizer("sgd");
  for (const Case& bad : std::initializer_list<Case>{
           {"learning_rate", NAN, "expected a number, got nan"},
           {"weight_decay", INFINITY, "expected a number, got inf"},
           {"rescale_grad", 0, "expected a number other than 0, got 0"},
           {"schedule_power", 0, "expected a number above 0, got 0"},
           {"schedule_power", -1, "expected a number above 0, got -1"},
           {"schedule_power", INFINITY, "expected a number above 0, got inf"},
           {"nesterov", 2, "expected 0 or 1, got 2"},
           {"average", 0.5, "expected 0 or 1, got 0.5"},
           {"warmup_rounds", -1, "expected a whole number of rounds, got -1"},
           {"schedule_every", 1.5, "expected a whole number of rounds, got 1.5"},
           {"total_rounds", NAN, "expected a whole number of rounds, got nan"},
           {"schedule", 1, "expected text, as cosine, got 1"},
       }) {
    Spec spec = before;
    const absl::Status refused = SetOptimizerNumber(bad.name, bad.value, &spec);
    EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument) << bad.name;
    EXPECT_THAT(std::string(refused.message()),
                HasSubstr(std::string("optimizer option ") + bad.name + ": " + bad.expected));
    EXPECT_EQ(spec.SerializeAsString(), before.SerializeAsString());
  }
  Spec spec = before;
  EXPECT_THAT(std::string(SetOptimizerOption("momentum", "much", &spec).message()),
              HasSubstr("optimizer option momentum: expected a number, got \"much\""));
  EXPECT_THAT(std::string(SetOptimizerOption("schedule", "poly", &spec).message()),
              HasSubstr("expected constant, step, cosine or linear, got \"poly\""));
  for (const absl::Status& unknown :
       {SetOptimizerNumber("lr", 1, &spec), SetOptimizerOption("lr", "1", &spec)}) {
    EXPECT_THAT(std::string(unknown.message()),
                HasSubstr("no optimizer option \"lr\"; there are learning_rate, momentum, "));
  }
  EXPECT_EQ(spec.SerializeAsString(), before.SerializeAsString());
}

}  // namespace
}  // namespace slimps
