// SPDX-License-Identifier: Apache-2.0
// c_api_exchange.h on local stores, beside the C++ exchange. Distributed stores:
// tests/cluster/processes/c_api_test.py.
#include <atomic>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "tests/worker/capi/c_api_fixture.h"
#include "tests/worker/capi/held_store.h"
#include "tests/worker/device/cuda/fake_cuda_driver.h"
#include "worker/device/cuda/cuda_device.h"
#include "worker/device/devices.h"
#include "worker/exchange/weight_exchange.h"

namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr double kMomentum = 0.5, kRate = 0.25;

// A model of "a" with two elements and "b" with one.
struct Model {
  Values a = {1, 2}, b = {3};
  const std::vector<int64_t> shape_a = {2, 1};
};

Optimizer Sgd() {
  Optimizer sgd = MakeOptimizer("sgd");
  EXPECT_C_OK(slimps_optimizer_set_number(sgd.get(), "learning_rate", kRate));
  EXPECT_C_OK(slimps_optimizer_set_number(sgd.get(), "momentum", kMomentum));
  return sgd;
}

class CApiExchange : public ::testing::Test {
 protected:
  slimps_status Start(slimps_store* store, const slimps_exchange_settings& settings) {
    slimps_exchange* made = nullptr;
    const slimps_status status =
        slimps_exchange_create(store, parameters_, 2, sgd_.get(), &settings, &made);
    exchange_.reset(made);
    return status;
  }
  slimps_status Step(const Values& a, float b) {
    slimps_status status = slimps_exchange_begin_step(exchange_.get());
    if (status != SLIMPS_OK) return status;
    EXPECT_C_OK(slimps_exchange_gradient(exchange_.get(), 1, &b, 1));
    EXPECT_C_OK(slimps_exchange_gradient(exchange_.get(), 0, a.data(), 2));
    return slimps_exchange_end_step(exchange_.get());
  }

  Model model_;
  slimps_parameter parameters_[2] = {
      {sizeof(slimps_parameter), "a", model_.shape_a.data(), 2, model_.a.data(), SLIMPS_LAYER_OTHER,
       0},
      {sizeof(slimps_parameter), "b", nullptr, 0, model_.b.data(), SLIMPS_LAYER_BY_SHAPE, 0}};
  const Optimizer sgd_ = Sgd();
  Store store_ = Make();
  Exchange exchange_;  // declared last: it goes before its store
};

struct Case {
  int32_t backup_model;
  double local_lr;
};

class CApiExchangeOf : public CApiExchange, public ::testing::WithParamInterface<Case> {};

TEST_P(CApiExchangeOf, IsTheExchangeOfCpp) {
  slimps_exchange_settings settings = SLIMPS_EXCHANGE_SETTINGS;
  settings.backup_model = GetParam().backup_model;
  settings.local_lr = GetParam().local_lr;
  ASSERT_C_OK(Start(store_.get(), settings));

  Model model;
  const std::vector<slimps::Parameter> parameters = {
      {.name = "a", .shape = model.shape_a, .values = model.a},
      {.name = "b", .shape = {}, .values = model.b}};
  slimps::ExchangeOptions options;
  if (settings.backup_model == 1) {
    options.backup = slimps::MirroringBackup();
    if (settings.local_lr != 0) options.backup = slimps::MirroringBackup(settings.local_lr);
  }
  auto store = slimps::KVStore::Create("local", {});
  ASSERT_TRUE(store.ok());
  auto exchange = slimps::StartExchange(store->get(), parameters, sgd_->spec, options);
  ASSERT_TRUE(exchange.ok()) << exchange.status();

  const auto same = [&](const char* when) {
    EXPECT_EQ(model_.a, model.a) << when;
    EXPECT_EQ(model_.b, model.b) << when;
  };
  for (int step = 0; step < 6; ++step) {
    const Values a = {static_cast<float>(step) - 2.5f, 0.125f}, b = {1.5f};
    ASSERT_TRUE((*exchange)->BeginStep().ok());
    (*exchange)->OnGradient(1, b);
    (*exchange)->OnGradient(0, a);
    ASSERT_TRUE((*exchange)->EndStep().ok());
    ASSERT_C_OK(Step(a, b[0]));
    same("after a step");
    if (step == 3) {
      ASSERT_TRUE((*exchange)
                      ->SetHyper(0, {.learning_rate = 0.5, .weight_decay = 0.1, .momentum = 0.25})
                      .ok());
      ASSERT_C_OK(slimps_exchange_set_hyper(exchange_.get(), 0, 0.5, 0.1, 0.25));
    }
  }
  ASSERT_TRUE((*exchange)->Drain().ok());
  ASSERT_C_OK(slimps_exchange_drain(exchange_.get()));
  same("at the end");
  EXPECT_NE(model.a, Model().a);
  slimps_exchange_times times = {};
  times.struct_size = sizeof(times);
  EXPECT_C_OK(slimps_exchange_get_times(exchange_.get(), &times));
  EXPECT_EQ(times.local_update_s > 0, settings.backup_model == 1);
}

INSTANTIATE_TEST_SUITE_P(Settings, CApiExchangeOf,
                         ::testing::Values(Case{0, 0}, Case{1, 0}, Case{1, 0.125}));

TEST_F(CApiExchange, WeightsGoToTheMemoryThatWasSet) {
  parameters_[0].spare = 1;
  ASSERT_C_OK(Start(store_.get(), SLIMPS_EXCHANGE_SETTINGS));
  Values other(2);
  const size_t indices[] = {0, 1, 2};
  float* const memory[] = {other.data(), other.data(), nullptr};
  ASSERT_C_OK(slimps_exchange_set_memory(exchange_.get(), indices, memory, 1));
  ASSERT_C_OK(Step({4, 8}, 0));
  EXPECT_EQ(model_.a, Model().a);
  EXPECT_EQ(other, (Values{1 - 4 * kRate, 2 - 8 * kRate}));
  EXPECT_C_REFUSES(slimps_exchange_set_memory(exchange_.get(), indices, memory, 2),
                   "parameter b: memory of 1 elements; expected a parameter with spare memory");
  EXPECT_C_FAILS(slimps_exchange_set_memory(exchange_.get(), indices + 2, memory, 1),
                 SLIMPS_OUT_OF_RANGE, "index: expected one below 2, got 2");
  EXPECT_C_REFUSES(slimps_exchange_set_memory(exchange_.get(), indices, memory + 2, 1),
                   "values: expected a pointer");
}

TEST_F(CApiExchange, AParameterWithoutAGradientContributesNothing) {
  ASSERT_C_OK(Start(store_.get(), SLIMPS_EXCHANGE_SETTINGS));
  const float one = 1;
  ASSERT_C_OK(slimps_exchange_begin_step(exchange_.get()));
  ASSERT_C_OK(slimps_exchange_gradient(exchange_.get(), 1, &one, 1));
  ASSERT_C_OK(slimps_exchange_end_step(exchange_.get()));
  EXPECT_EQ(model_.a, Model().a);
  EXPECT_EQ(model_.b, Values{3 - kRate});
}

TEST_F(CApiExchange, AGradientOnLoanStepsAndItsNanEndsTheStepByName) {
  ASSERT_C_OK(Start(store_.get(), SLIMPS_EXCHANGE_SETTINGS));
  const slimps_place lent = {SLIMPS_LENT, 0, nullptr};
  Values gradient = {4, 8};
  ASSERT_C_OK(slimps_exchange_begin_step(exchange_.get()));
  ASSERT_C_OK(slimps_exchange_gradient_at(exchange_.get(), 0, gradient.data(), 2, &lent));
  ASSERT_C_OK(slimps_exchange_end_step(exchange_.get()));
  EXPECT_EQ(model_.a, (Values{1 - 4 * kRate, 2 - 8 * kRate}));
  gradient[1] = NAN;
  ASSERT_C_OK(slimps_exchange_begin_step(exchange_.get()));
  ASSERT_C_OK(slimps_exchange_gradient_at(exchange_.get(), 0, gradient.data(), 2, &lent));
  EXPECT_C_REFUSES(slimps_exchange_end_step(exchange_.get()), "key a: element 1 is nan");
}

TEST_F(CApiExchange, RowsAreSteppedAlone) {
  ASSERT_C_OK(Start(store_.get(), SLIMPS_EXCHANGE_SETTINGS));
  const int64_t rows[] = {1, 1};
  const Values values = {2, 4};
  ASSERT_C_OK(slimps_exchange_begin_step(exchange_.get()));
  ASSERT_C_OK(slimps_exchange_rows(exchange_.get(), 0, rows, 2, values.data(), 2));
  ASSERT_C_OK(slimps_exchange_rows(exchange_.get(), 1, nullptr, 0, nullptr, 0));
  ASSERT_C_OK(slimps_exchange_end_step(exchange_.get()));
  EXPECT_EQ(model_.a, (Values{1, 2 - 6 * kRate}));
  EXPECT_EQ(model_.b, Model().b);
}

TEST_F(CApiExchange, TheBackupModelTakesNoRows) {
  slimps_exchange_settings settings = SLIMPS_EXCHANGE_SETTINGS;
  settings.backup_model = 1;
  ASSERT_C_OK(Start(store_.get(), settings));
  const int64_t row = 0;
  const float value = 1;
  ASSERT_C_OK(slimps_exchange_begin_step(exchange_.get()));
  EXPECT_C_FAILS(slimps_exchange_rows(exchange_.get(), 0, &row, 1, &value, 1), SLIMPS_UNIMPLEMENTED,
                 "key a: expected a whole gradient, since the backup model");
  ASSERT_C_OK(slimps_exchange_end_step(exchange_.get()));
}

TEST_F(CApiExchange, NonFiniteGradientsEndTheStepOrAreSkipped) {
  slimps_exchange_settings settings = SLIMPS_EXCHANGE_SETTINGS;
  ASSERT_C_OK(Start(store_.get(), settings));
  EXPECT_C_REFUSES(Step({NAN, 1}, 1), "slimps_exchange_end_step: ");
  store_ = Make();
  settings.skip_non_finite = 1;
  ASSERT_C_OK(Start(store_.get(), settings));
  const Values before = model_.a;
  ASSERT_C_OK(Step({NAN, 1}, 1));
  EXPECT_EQ(model_.a, before);
  const int64_t none = 7;
  ASSERT_C_OK(slimps_exchange_begin_step(exchange_.get()));
  EXPECT_C_OK(slimps_exchange_rows(exchange_.get(), 0, &none, 1, before.data(), 1));
  EXPECT_C_REFUSES(slimps_exchange_end_step(exchange_.get()), "expected rows 0 to below 2, got");
}

TEST_F(CApiExchange, SettingsThatMakeNoSenseAreRefused) {
  const auto refused = [&](auto change, const char* words) {
    slimps_exchange_settings settings = SLIMPS_EXCHANGE_SETTINGS;
    change(settings);
    EXPECT_C_REFUSES(Start(store_.get(), settings), words);
    EXPECT_EQ(exchange_, nullptr);
  };
  refused([](auto& s) { s.struct_size = 8; },
          "settings.struct_size: expected the struct's sizeof, at least 32, got 8");
  refused([](auto& s) { s.backup_model = 2; }, "settings.backup_model: expected 0 to 1, got 2");
  refused([](auto& s) { s.skip_non_finite = -1; }, "skip_non_finite: expected 0 to 1, got -1");
  refused([](auto& s) { s.local_lr = 0.1; }, "settings.local_lr: expected 0 or, for the backup");
  refused([](auto& s) { s.timeout_s = -1; }, "timeout_s: expected a number of seconds or 0");
  refused([](auto& s) { s.timeout_s = NAN; }, "timeout_s: expected a number of seconds or 0");
  refused([](auto& s) { s.backup_model = 1, s.local_lr = -1; }, "settings.local_lr: expected 0 or");
  EXPECT_C_OK(Start(store_.get(), SLIMPS_EXCHANGE_SETTINGS)) << "the refused have made no key";
}

TEST_F(CApiExchange, ParametersThatMakeNoSenseAreRefused) {
  const auto refused = [&](auto change, const char* words) {
    const slimps_parameter good = parameters_[1];
    change(parameters_[1]);
    EXPECT_C_REFUSES(Start(store_.get(), SLIMPS_EXCHANGE_SETTINGS), words);
    parameters_[1] = good;
  };
  const int64_t none[] = {0};
  refused([](auto& p) { p.struct_size = 0; }, "parameters[1].struct_size: expected that of");
  refused([](auto& p) { p.name = nullptr; }, "parameters[1].name: expected text, got NULL");
  refused([&](auto& p) { p.shape = none, p.dimensions = 1; }, "parameters[1].shape: expected");
  refused([](auto& p) { p.values = nullptr; }, "parameters[1].values: expected 1 elements");
  refused([](auto& p) { p.layer = 7; }, "parameters[1].layer: expected 0 to 6, got 7");
  refused([](auto& p) { p.spare = 2; }, "parameters[1].spare: expected 0 to 1, got 2");
  const slimps_place lent = {SLIMPS_LENT, 0, nullptr}, negative = {SLIMPS_CUDA, -2, nullptr};
  refused([&](auto& p) { p.place = &lent; }, "parameters[1].place.kind: expected 0 to 1, got 2");
  refused([&](auto& p) { p.place = &negative; },
          "parameters[1].place.device: expected a GPU's number or -1, got -2");
  refused([](auto& p) { p.name = "a"; }, "a");
}

TEST_F(CApiExchange, CallsThatMakeNoSenseAreRefused) {
  const slimps_exchange_settings settings = SLIMPS_EXCHANGE_SETTINGS;
  slimps_exchange* made = nullptr;
  const float one = 1;
  int32_t is_read = 7;
  slimps_exchange_times times = {};
  EXPECT_C_REFUSES(slimps_exchange_create(nullptr, parameters_, 2, sgd_.get(), &settings, &made),
                   "store: expected a pointer");
  EXPECT_C_REFUSES(slimps_exchange_create(store_.get(), parameters_, 2, nullptr, &settings, &made),
                   "optimizer: expected a pointer");
  EXPECT_C_REFUSES(slimps_exchange_create(store_.get(), parameters_, 2, sgd_.get(), nullptr, &made),
                   "settings: expected a pointer");
  EXPECT_C_REFUSES(
      slimps_exchange_create(store_.get(), parameters_, 2, sgd_.get(), &settings, nullptr),
      "exchange: expected a pointer");
  EXPECT_C_REFUSES(slimps_exchange_create(store_.get(), nullptr, 2, sgd_.get(), &settings, &made),
                   "parameters: expected 2 elements, got NULL");
  EXPECT_C_REFUSES(slimps_exchange_begin_step(made), "exchange: expected a pointer");
  EXPECT_C_REFUSES(slimps_exchange_gradient(made, 0, &one, 1), "exchange: expected a pointer");
  EXPECT_C_REFUSES(slimps_exchange_rows(made, 0, nullptr, 0, &one, 1),
                   "exchange: expected a pointer");
  EXPECT_C_REFUSES(slimps_exchange_is_read(made, 0, &is_read), "exchange: expected a pointer");
  EXPECT_C_REFUSES(slimps_exchange_end_step(made), "exchange: expected a pointer");
  EXPECT_C_REFUSES(slimps_exchange_set_hyper(made, 0, 1, 0, SLIMPS_OWN_MOMENTUM),
                   "exchange: expected a pointer");
  EXPECT_C_REFUSES(slimps_exchange_drain(made), "exchange: expected a pointer");
  EXPECT_C_REFUSES(slimps_exchange_get_times(made, &times), "exchange: expected a pointer");
  slimps_exchange_destroy(made);
  ASSERT_C_OK(Start(store_.get(), settings));
  slimps_exchange* const exchange = exchange_.get();
  ASSERT_C_OK(slimps_exchange_begin_step(exchange));
  EXPECT_C_FAILS(slimps_exchange_gradient(exchange, 2, &one, 1), SLIMPS_OUT_OF_RANGE,
                 "index: expected one below 2, got 2");
  EXPECT_C_REFUSES(slimps_exchange_gradient(exchange, 1, nullptr, 1), "gradient: expected 1");
  EXPECT_C_FAILS(slimps_exchange_is_read(exchange, 2, &is_read), SLIMPS_OUT_OF_RANGE, "below 2");
  EXPECT_C_REFUSES(slimps_exchange_is_read(exchange, 1, nullptr), "is_read: expected a pointer");
  EXPECT_C_OK(slimps_exchange_is_read(exchange, 1, &is_read));
  EXPECT_EQ(is_read, 0) << "there is none";
  EXPECT_C_FAILS(slimps_exchange_rows(exchange, 2, nullptr, 0, &one, 1), SLIMPS_OUT_OF_RANGE,
                 "index: expected one below 2, got 2");
  EXPECT_C_REFUSES(slimps_exchange_rows(exchange, 1, nullptr, 1, &one, 1), "rows: expected 1");
  EXPECT_C_REFUSES(slimps_exchange_rows(exchange, 1, nullptr, 0, nullptr, 1), "values: expected 1");
  EXPECT_C_OK(slimps_exchange_gradient(exchange, 0, &one, 1)) << "errors are the step's";
  EXPECT_C_REFUSES(slimps_exchange_end_step(exchange), "key a");
  EXPECT_C_FAILS(slimps_exchange_set_hyper(exchange, 2, 1, 0, SLIMPS_OWN_MOMENTUM),
                 SLIMPS_OUT_OF_RANGE, "below 2");
  EXPECT_C_REFUSES(slimps_exchange_set_hyper(exchange, 0, -1, 0, SLIMPS_OWN_MOMENTUM),
                   "learning_rate");
  EXPECT_C_REFUSES(slimps_exchange_get_times(exchange, nullptr), "times: expected a pointer");
  EXPECT_C_REFUSES(slimps_exchange_get_times(exchange, &times), "times.struct_size: expected");
}

TEST_F(CApiExchange, WithoutServersNothingIsClipped) {
  slimps_exchange_settings settings = SLIMPS_EXCHANGE_SETTINGS;
  settings.clip_norm = 1;
  EXPECT_C_REFUSES(Start(store_.get(), settings), "clip_norm with local: expected dist_sync");
  settings.clip_norm = 0;
  ASSERT_C_OK(Start(store_.get(), settings));
  EXPECT_C_REFUSES(slimps_exchange_set_clip_norm(exchange_.get(), 1), "clip_norm in a local store");
  EXPECT_C_REFUSES(slimps_exchange_set_clip_norm(exchange_.get(), -1),
                   "clip_norm: expected a number over 0, or 0 for none, got -1");
  slimps_clipping clipping = {};
  EXPECT_C_REFUSES(slimps_exchange_get_clipping(exchange_.get(), &clipping),
                   "clipping.struct_size: expected");
  clipping.struct_size = sizeof(clipping);
  ASSERT_C_OK(slimps_exchange_get_clipping(exchange_.get(), &clipping));
  EXPECT_EQ(clipping.norm, 0);
  EXPECT_EQ(clipping.scale, 1);
  EXPECT_EQ(clipping.skipped_steps, 0u);
}

TEST_F(CApiExchange, MayGoAfterItsStore) {
  ASSERT_C_OK(Start(store_.get(), SLIMPS_EXCHANGE_SETTINGS));
  store_.reset();
  exchange_.reset();
}

// ---- in the background --------------------------------------------------------------------------

class CApiExchangeInBackground : public CApiExchange {
 protected:
  void SetUp() override {
    store_ = slimps::MakeHeld(notes_, &held_);
    background_ = InBackground(store_, call_);
    ASSERT_C_OK(Make(SLIMPS_EXCHANGE_SETTINGS, &raw_));
    ASSERT_NE(raw_, nullptr);
    exchange_.reset(raw_);
    ASSERT_C_OK(Finished(slimps_exchange_begin_step(raw_)));
    notes_->Clear();
  }
  // Makes an exchange, which waits for its first weights and ends with a barrier.
  slimps_status Make(const slimps_exchange_settings& settings, slimps_exchange** made) {
    EXPECT_EQ(
        slimps_exchange_create(background_.get(), parameters_, 2, sgd_.get(), &settings, made),
        SLIMPS_UNDER_WAY);
    for (const char* key : {"a", "b"}) held_->Answer(key, absl::OkStatus());
    held_->ReleaseBarriers();
    return slimps_call_finish(call_.get());
  }
  slimps_status Finished(slimps_status status) {
    return status == SLIMPS_UNDER_WAY ? slimps_call_finish(call_.get()) : status;
  }

  const std::shared_ptr<slimps::Notes> notes_ = std::make_shared<slimps::Notes>();
  slimps::HeldStore* held_ = nullptr;
  const Call call_ = MakeCall();
  Store background_;
  slimps_exchange* raw_ = nullptr;
};

TEST_F(CApiExchangeInBackground, WaitsByItsCall) {
  ASSERT_EQ(slimps_exchange_end_step(raw_), SLIMPS_UNDER_WAY) << "it waits for the weights";
  slimps_exchange_times times = {};
  times.struct_size = sizeof(times);
  const char* const busy = "the call is under way";
  EXPECT_C_FAILS(slimps_exchange_gradient(raw_, 0, model_.a.data(), 2), SLIMPS_FAILED_PRECONDITION,
                 busy);
  EXPECT_C_FAILS(slimps_exchange_set_hyper(raw_, 0, 1, 0, SLIMPS_OWN_MOMENTUM),
                 SLIMPS_FAILED_PRECONDITION, busy);
  EXPECT_C_FAILS(slimps_exchange_get_times(raw_, &times), SLIMPS_FAILED_PRECONDITION, busy);
  EXPECT_C_FAILS(slimps_exchange_begin_step(raw_), SLIMPS_FAILED_PRECONDITION, busy);
  held_->Answer("a", absl::OkStatus());
  held_->Answer("b", absl::OkStatus());
  EXPECT_C_OK(slimps_call_finish(call_.get()));
  EXPECT_C_OK(slimps_exchange_get_times(raw_, &times));
  ASSERT_C_OK(Finished(slimps_exchange_begin_step(raw_)));
  ASSERT_EQ(slimps_exchange_end_step(raw_), SLIMPS_UNDER_WAY);
  exchange_.reset();  // the step under way goes on
  held_->Release(absl::AbortedError("enough"));
  EXPECT_C_FAILS(slimps_call_finish(call_.get()), SLIMPS_ABORTED, "enough");
}

TEST_F(CApiExchangeInBackground, PushesUseAThreadOnlyIfTheyMayHaveToWait) {
  const int64_t row = 0;
  const float* const gradient = model_.a.data();
  held_->SetRoom(sizeof(float));
  EXPECT_C_OK(slimps_exchange_gradient(raw_, 1, gradient, 1));
  EXPECT_C_OK(slimps_exchange_rows(raw_, 1, &row, 1, gradient, 1));
  EXPECT_THAT(notes_->all(), ElementsAre("push b", "pull b", "push b", "pull b"));
  EXPECT_THAT(notes_->on_threads(), IsEmpty());
  EXPECT_C_OK(Finished(slimps_exchange_gradient(raw_, 0, gradient, 2)));
  EXPECT_C_OK(Finished(slimps_exchange_rows(raw_, 0, &row, 1, gradient, 2)));
  EXPECT_THAT(notes_->on_threads(), ElementsAre("push a", "pull a", "push a", "pull a"));
  EXPECT_C_FAILS(slimps_exchange_gradient(raw_, 2, gradient, 2), SLIMPS_OUT_OF_RANGE, "below 2");
  held_->Release(absl::OkStatus());
}

TEST_F(CApiExchangeInBackground, NoCallerWaitsForACopyFromAGpu) {
  slimps::FakeCudaDriver driver({});
  slimps::Devices devices(slimps::MakeHostDevice(), slimps::GpusOf(&driver));
  held_->SetDevices(&devices);
  slimps_exchange_settings settings = SLIMPS_EXCHANGE_SETTINGS;
  settings.skip_non_finite = 1;
  slimps_exchange* made = nullptr;
  ASSERT_C_OK(Make(settings, &made));
  const Exchange skipping(made);
  ASSERT_C_OK(Finished(slimps_exchange_begin_step(made)));
  notes_->Clear();
  const slimps_place place = {SLIMPS_CUDA, 0, driver.MakeStream(0)};
  const std::span<float> gradient = driver.Allocate(0, 2);
  std::atomic<bool> goes_on{false};
  driver.Launch(place.stream, {}, gradient, [&] {
    while (!goes_on) absl::SleepFor(absl::Milliseconds(1));
    gradient[0] = gradient[1] = 1;
  });
  EXPECT_C_OK(slimps_exchange_gradient_at(raw_, 0, gradient.data(), 2, &place)) << "it is lent";
  const size_t pushed = notes_->all().size();
  EXPECT_C_OK(slimps_exchange_gradient_at(made, 0, gradient.data(), 2, &place)) << "it is copied";
  EXPECT_EQ(notes_->all().size(), pushed);
  goes_on = true;
  while (notes_->all().size() == pushed) absl::SleepFor(absl::Milliseconds(1));
  EXPECT_EQ(notes_->all()[pushed], "push a");
  held_->Release(absl::OkStatus());
}

}  // namespace
