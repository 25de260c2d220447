// SPDX-License-Identifier: Apache-2.0
#include "tests/worker/capi/c_api_fixture.h"

namespace {

TEST_F(CApi, AKeyHasHyperparametersOfItsOwn) {
  const Optimizer sgd = MakeOptimizer("sgd");
  EXPECT_C_OK(slimps_optimizer_set_number(sgd.get(), "learning_rate", 1));
  EXPECT_C_OK(slimps_set_optimizer(raw_, sgd.get()));
  EXPECT_C_OK(slimps_set_hyper(raw_, kW, 0.5, 0));
  EXPECT_C_OK(slimps_push(raw_, kW, gradient_.data(), 2, 0));
  EXPECT_EQ(Pulled(), Values({-4, -8}));
  EXPECT_C_OK(slimps_reset_hyper(raw_, kW));
  EXPECT_C_OK(slimps_push(raw_, kW, gradient_.data(), 2, 0));
  EXPECT_EQ(Pulled(), Values({-14, -28}));
  EXPECT_C_REFUSES(slimps_set_hyper(raw_, kW, -1, 0), "learning_rate");
  EXPECT_C_FAILS(slimps_set_hyper(raw_, slimps_text_key("x"), 1, 0), SLIMPS_NOT_FOUND, "x");
}

TEST_F(CApi, AKeyHasAMomentumOfItsOwn) {
  const Optimizer sgd = MakeOptimizer("sgd");
  EXPECT_C_OK(slimps_optimizer_set_number(sgd.get(), "learning_rate", 1));
  EXPECT_C_OK(slimps_optimizer_set_number(sgd.get(), "momentum", 0.5));
  EXPECT_C_OK(slimps_set_optimizer(raw_, sgd.get()));
  const auto step = [&](double momentum) {
    EXPECT_C_OK(slimps_set_hyper_with_momentum(raw_, kW, 1, 0, momentum));
    EXPECT_C_OK(slimps_push(raw_, kW, gradient_.data(), 2, 0));
    return Pulled()[0];
  };
  EXPECT_EQ(step(0), 1 - 10);
  EXPECT_EQ(step(0.25), -9 - 12.5f);
  EXPECT_EQ(step(SLIMPS_OWN_MOMENTUM), -21.5f - 16.25f);
  EXPECT_C_REFUSES(slimps_set_hyper_with_momentum(raw_, kW, 1, 0, 1), "momentum");
  EXPECT_C_REFUSES(slimps_set_hyper_with_momentum(nullptr, kW, 1, 0, 0), "store: expected");
}

TEST_F(CApi, APositionIsText) {
  EXPECT_C_OK(slimps_note_position(raw_, "train.py:12"));
  EXPECT_C_REFUSES(slimps_note_position(raw_, nullptr), "where: expected");
  EXPECT_C_REFUSES(slimps_note_position(nullptr, "train.py:12"), "store: expected");
}

TEST_F(CApi, NothingIsDecidedWhereNothingIsMeasured) {
  slimps_decision decision = {};
  decision.struct_size = sizeof(decision);
  decision.is_decided = decision.from_round = 7;
  EXPECT_C_OK(slimps_get_decision(raw_, &decision));
  EXPECT_EQ(decision.is_decided, 0u);
  EXPECT_EQ(decision.from_round, 0u);
  EXPECT_EQ(decision.threshold_bytes, SLIMPS_NOT_COMPRESSED);
  EXPECT_EQ(decision.pull_threshold_bytes, SLIMPS_NOT_COMPRESSED);
  EXPECT_STREQ(decision.codec, "");
  EXPECT_STREQ(decision.pull_codec, "");
  size_t count = 7;
  EXPECT_C_OK(slimps_get_threshold_table(raw_, nullptr, 0, &count));
  EXPECT_EQ(count, 0u);
  EXPECT_C_REFUSES(slimps_get_threshold_table(raw_, nullptr, 1, &count), "rows: expected 1");
  EXPECT_C_REFUSES(slimps_get_threshold_table(raw_, nullptr, 0, nullptr), "count: expected a");
  EXPECT_C_REFUSES(slimps_get_threshold_table(nullptr, nullptr, 0, &count), "store: expected");
}

TEST_F(CApi, APolicyThatAdaptsNeedsAJob) {
  EXPECT_C_OK(slimps_set_policy(raw_, "threshold"));
  EXPECT_C_FAILS(slimps_set_policy(raw_, "lgreco"), SLIMPS_UNIMPLEMENTED, "policy lgreco");
  EXPECT_C_REFUSES(slimps_set_policy(raw_, nullptr), "policy: expected");
  EXPECT_C_REFUSES(slimps_set_policy(nullptr, "lgreco"), "store: expected");
  slimps_decision decision = {};
  decision.struct_size = sizeof(decision);
  EXPECT_C_OK(slimps_get_decision(raw_, &decision));
  EXPECT_STREQ(decision.policy, "");
  EXPECT_STREQ(decision.reason, "");
  size_t count = 7;
  EXPECT_C_OK(slimps_get_key_codecs(raw_, nullptr, 0, &count));
  EXPECT_EQ(count, 0u);
  EXPECT_C_REFUSES(slimps_get_key_codecs(raw_, nullptr, 1, &count), "codecs: expected 1");
  EXPECT_C_REFUSES(slimps_get_key_codecs(raw_, nullptr, 0, nullptr), "count: expected a");
}

TEST_F(CApi, AProgramOfTheFirstVersionGetsAsMuchOfADecisionAsItKnows) {
  struct {
    uint64_t known[5];
    uint64_t behind = 9;
  } program = {{40}, 9};
  EXPECT_C_OK(slimps_get_decision(raw_, reinterpret_cast<slimps_decision*>(&program)));
  EXPECT_EQ(program.known[0], 40u);
  EXPECT_EQ(program.known[3], SLIMPS_NOT_COMPRESSED);
  EXPECT_EQ(program.behind, 9u);
}

TEST_F(CApi, LocalStoresKeepNoResidualsToSave) {
  void* content = nullptr;
  size_t bytes = 0;
  EXPECT_C_FAILS(slimps_save_residuals(raw_, &content, &bytes), SLIMPS_UNIMPLEMENTED, "local");
  EXPECT_C_FAILS(slimps_load_residuals(raw_, "x", 1), SLIMPS_UNIMPLEMENTED, "local");
  EXPECT_C_REFUSES(slimps_save_residuals(raw_, nullptr, &bytes), "content: expected a pointer");
  EXPECT_C_REFUSES(slimps_load_residuals(raw_, nullptr, 1), "content: expected 1 elements");
}

TEST_F(CApi, LocalStoresSaveNoCheckpoints) {
  void* own = nullptr;
  size_t bytes = 0;
  uint64_t rounds = 0;
  EXPECT_C_FAILS(slimps_save(raw_, "x", nullptr, 0), SLIMPS_UNIMPLEMENTED, "local");
  EXPECT_C_OK(slimps_await_saved(raw_));
  EXPECT_C_FAILS(slimps_load(raw_, "x", &own, &bytes, &rounds), SLIMPS_UNIMPLEMENTED, "local");
  EXPECT_C_REFUSES(slimps_save(raw_, nullptr, nullptr, 0), "folder: expected");
  EXPECT_C_REFUSES(slimps_save(raw_, "x", nullptr, 1), "own_state: expected 1 elements");
  EXPECT_C_REFUSES(slimps_load(raw_, nullptr, &own, &bytes, &rounds), "folder: expected");
  EXPECT_C_REFUSES(slimps_load(raw_, "x", nullptr, &bytes, &rounds), "content: expected a pointer");
  EXPECT_C_REFUSES(slimps_load(raw_, "x", &own, &bytes, nullptr), "rounds: expected a pointer");
}

}  // namespace
