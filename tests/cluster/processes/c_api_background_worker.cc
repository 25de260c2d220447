// SPDX-License-Identifier: Apache-2.0
// The scenarios of c_api_worker.cc whose calls run in the background: lists and the exchange.
#include <poll.h>
#include <slimps/c_api_calls.h>
#include <slimps/c_api_exchange.h>

#include <cmath>
#include <vector>

#include "tests/cluster/processes/c_api_worker.h"

namespace {

// A second handle of the store, whose calls run in the background.
class Background {
 public:
  explicit Background(const Worker& worker) {
    CHECK_OK(slimps_call_create(&call_));
    CHECK_OK(slimps_call_descriptor(call_, &ended_.fd));
    CHECK_OK(slimps_in_background(worker.store, call_, &store_));
  }
  ~Background() {
    slimps_destroy(store_);
    slimps_call_destroy(call_);
  }
  slimps_store* store() const { return store_; }
  // Waits for a call that returned `status`, as a program with an event loop does.
  slimps_status End(slimps_status status) {
    if (status != SLIMPS_UNDER_WAY) return status;
    ++under_way_;
    CHECK(poll(&ended_, 1, 120000) == 1);
    return slimps_call_finish(call_);
  }
  int under_way() const { return under_way_; }

 private:
  slimps_call* call_ = nullptr;
  slimps_store* store_ = nullptr;
  pollfd ended_ = {-1, POLLIN, 0};
  int under_way_ = 0;  // calls that were
};

// Trains a model in the background by the exchange.
void ExchangeModel(const Worker& worker, bool backup_model) {
  constexpr double kRate = 0.5;
  Background background(worker);
  const float first = worker.rank == 0 ? 1.0f : 99.0f;
  std::vector<float> weights(kElements, first), bias(1, first);
  const slimps_parameter parameters[] = {
      {sizeof(slimps_parameter), "weight", kShape, 2, weights.data(), SLIMPS_LAYER_BY_SHAPE, 0},
      {sizeof(slimps_parameter), "bias", nullptr, 0, bias.data(), SLIMPS_LAYER_OTHER, 0}};
  slimps_optimizer* sgd = nullptr;
  CHECK_OK(slimps_optimizer_create("sgd", &sgd));
  CHECK_OK(slimps_optimizer_set_number(sgd, "learning_rate", kRate));
  CHECK_OK(slimps_optimizer_set_number(sgd, "average", 1));
  slimps_exchange_settings settings = SLIMPS_EXCHANGE_SETTINGS;
  settings.backup_model = backup_model ? 1 : 0;
  settings.timeout_s = 120;
  slimps_exchange* exchange = nullptr;
  CHECK_OK(background.End(
      slimps_exchange_create(background.store(), parameters, 2, sgd, &settings, &exchange)));
  slimps_optimizer_destroy(sgd);
  CHECK(weights[7] == 1 && bias[0] == 1);
  const std::vector<float> gradient(kElements, static_cast<float>(worker.rank));
  const float mean = static_cast<float>(worker.workers - 1) / 2;
  for (int step = 1; step <= 4; ++step) {
    CHECK_OK(background.End(slimps_exchange_begin_step(exchange)));
    // A step with the backup model computes on this worker's own step ahead of its round.
    CHECK(backup_model || weights[7] == 1 - static_cast<float>(kRate) * mean * (step - 1.0f));
    CHECK_OK(slimps_exchange_gradient(exchange, 0, gradient.data(), kElements));
    CHECK(bias[0] == 1);
    CHECK_OK(background.End(slimps_exchange_end_step(exchange)));
  }
  CHECK_OK(background.End(slimps_exchange_drain(exchange)));
  CHECK(weights[7] == 1 - static_cast<float>(kRate) * mean * 4 && bias[0] == 1);
  CHECK(background.under_way() > 0);
  slimps_exchange_times times = {};
  times.struct_size = sizeof(times);
  CHECK_OK(slimps_exchange_get_times(exchange, &times));
  CHECK(times.wait_s > 0 && (times.local_update_s > 0) == backup_model);
  slimps_exchange_destroy(exchange);
}

}  // namespace

// Every call in the background, and lists.
void TrainInBackground(const Worker& worker) {
  constexpr size_t kKeys = 20;
  Background background(worker);
  slimps_store* const store = background.store();
  Init(worker, 0, kKeys);
  SetSgd(worker, 0.5, 0);
  CHECK_OK(background.End(slimps_barrier(store)));
  const std::vector<float> gradient(kElements, static_cast<float>(worker.rank + 1));
  const float* const devices[] = {gradient.data()};
  std::vector<std::vector<float>> out(kKeys, std::vector<float>(kElements, NAN));
  std::vector<slimps_item> items;
  for (size_t i = 0; i < kKeys; ++i) {
    items.push_back({sizeof(slimps_item), slimps_int_key(static_cast<int64_t>(i)), devices, 1,
                     out[i].data(), kElements});
  }
  const float sum = static_cast<float>(worker.workers * (worker.workers + 1)) / 2;
  const auto is_round = [&](int round) {
    for (const auto& values : out) {
      for (const float value : values) {
        if (value != 1.0f - 0.5f * sum * static_cast<float>(round)) return false;
      }
    }
    return true;
  };
  CHECK_OK(background.End(slimps_pushpull_list(store, items.data(), kKeys, 0)));
  CHECK(is_round(1));
  CHECK_OK(background.End(slimps_push_list(store, items.data(), kKeys, 0)));
  CHECK_OK(background.End(slimps_pull_list(store, items.data(), kKeys, 0)));
  CHECK(is_round(2));
  for (const slimps_item& item : items) {
    CHECK_OK(background.End(slimps_push(store, item.key, gradient.data(), kElements, 0)));
    CHECK_OK(background.End(slimps_pull(store, item.key, item.out, kElements, 0)));
  }
  CHECK(is_round(3));
  for (const slimps_item& item : items) {
    CHECK_OK(
        background.End(slimps_pushpull(store, item.key, gradient.data(), item.out, kElements, 0)));
  }
  CHECK(is_round(4));
  // On a plain handle, lists wait.
  CHECK_OK(slimps_pushpull_list(worker.store, items.data(), kKeys, 0));
  CHECK(is_round(5));
  double sums[] = {1};
  CHECK_OK(background.End(slimps_all_reduce_sum(store, sums, 1)));
  CHECK(sums[0] == worker.workers);
  CHECK_OK(background.End(slimps_wait(store)));
  CHECK(background.under_way() > 0);
  items[3].key = slimps_int_key(99);
  CHECK(background.End(slimps_pull_list(store, items.data(), kKeys, 0)) == SLIMPS_NOT_FOUND);
  CHECK(Says("slimps_pull_list: key 99"));
}

// Worker 1 ends the job while all workers' calls are under way.
void AbortInBackground(const Worker& worker) {
  Init(worker, 0, 1);
  Background background(worker);
  std::vector<float> out(kElements);
  CHECK_OK(
      background.End(slimps_push(background.store(), slimps_int_key(0), out.data(), kElements, 0)));
  CHECK_OK(background.End(slimps_barrier(background.store())));
  // Worker 0 has not pushed this round, so the others' pulls wait.
  if (worker.rank != 0)
    CHECK_OK(slimps_push(worker.store, slimps_int_key(0), out.data(), kElements, 0));
  const slimps_status started =
      worker.rank == 0
          ? slimps_barrier(background.store())
          : slimps_pull(background.store(), slimps_int_key(0), out.data(), kElements, 0);
  CHECK(worker.rank != 1 || started == SLIMPS_UNDER_WAY);
  if (worker.rank == 1) CHECK_OK(slimps_abort(background.store(), "the disk of worker 1 is full"));
  CHECK(background.End(started) == (worker.rank == 1 ? SLIMPS_ABORTED : SLIMPS_UNAVAILABLE));
  CHECK(Says("the disk of worker 1 is full"));
}

void ExchangeWithBackup(const Worker& worker) { ExchangeModel(worker, true); }
void ExchangeAlone(const Worker& worker) { ExchangeModel(worker, false); }
