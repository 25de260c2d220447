// SPDX-License-Identifier: Apache-2.0
// One worker of a real job through libslimps.so, for Python tests. Runs scenario argv[1] on a store
// of type argv[2]. Prints "well" at the end. A failed check ends it with status 1.
#include "tests/cluster/processes/c_api_worker.h"

#include <semaphore.h>

#include <cerrno>
#include <cmath>
#include <condition_variable>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <vector>

namespace {

// Counts the answers of asynchronous pulls.
class Pulls {
 public:
  static void Done(void* user_data, slimps_status status, const char* message) {
    auto* pulls = static_cast<Pulls*>(user_data);
    std::lock_guard<std::mutex> lock(pulls->mutex_);
    ++pulls->count_[status];
    pulls->message_ = message;
    pulls->changed_.notify_all();
  }
  // Waits for `count` answers of any status. Returns how many have `status`.
  size_t Await(size_t count, slimps_status status) {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [&] {
      size_t all = 0;
      for (const auto& [code, of_code] : count_) all += of_code;
      return all >= count;
    });
    return count_[status];
  }
  std::string message() {
    std::lock_guard<std::mutex> lock(mutex_);
    return message_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<slimps_status, size_t> count_;
  std::string message_;
};

// Pulls many keys at once while rounds go on. Sums and steps are exact.
void TrainAsync(const Worker& worker) {
  constexpr size_t kKeys = 20;
  constexpr int kRounds = 5;
  Init(worker, 0, kKeys);
  SetSgd(worker, 0.5, 0);
  std::vector<std::vector<float>> out(kKeys, std::vector<float>(kElements, NAN));
  const std::vector<float> gradient(kElements, static_cast<float>(worker.rank + 1));
  Pulls pulls;
  for (int round = 1; round <= kRounds; ++round) {
    for (size_t i = 0; i < kKeys; ++i) {
      const slimps_key key = slimps_int_key(static_cast<int64_t>(i));
      CHECK_OK(slimps_push(worker.store, key, gradient.data(), kElements, -static_cast<int>(i)));
      CHECK_OK(
          slimps_pull_async(worker.store, key, out[i].data(), kElements, 0, Pulls::Done, &pulls));
    }
    CHECK(pulls.Await(kKeys * round, SLIMPS_OK) == kKeys * round);
    const float sum = static_cast<float>(worker.workers * (worker.workers + 1)) / 2;
    for (const auto& values : out) {
      for (const float value : values)
        CHECK(value == 1.0f - 0.5f * sum * static_cast<float>(round));
    }
  }
  double sums[] = {1, static_cast<double>(worker.rank)};
  CHECK_OK(slimps_all_reduce_sum(worker.store, sums, 2));
  CHECK(sums[0] == worker.workers && sums[1] == worker.workers * (worker.workers - 1) / 2.0);
  slimps_totals totals;
  totals.struct_size = sizeof(totals);
  CHECK_OK(slimps_wait(worker.store));
  CHECK_OK(slimps_get_totals(worker.store, &totals));
  CHECK(totals.elements_pushed == kKeys * kRounds * kElements);
  CHECK(totals.bytes_pushed == 4 * totals.elements_pushed);
  CHECK(totals.bytes_pulled == totals.bytes_pushed);
  CHECK(totals.send_s > 0);
}

void UnknownKey(const Worker& worker) {
  Init(worker, 0, 1);
  std::vector<float> out(kElements);
  Pulls pulls;
  CHECK(slimps_pull_async(worker.store, slimps_int_key(7), out.data(), kElements, 0, Pulls::Done,
                          &pulls) == SLIMPS_NOT_FOUND);
  CHECK(Says("slimps_pull_async: ") && Says("key 7"));
  CHECK(slimps_push(worker.store, slimps_int_key(7), out.data(), kElements, 0) == SLIMPS_NOT_FOUND);
  CHECK(slimps_pull(worker.store, slimps_int_key(0), out.data(), 3, 0) == SLIMPS_INVALID_ARGUMENT);
  CHECK(slimps_set_updater(
            worker.store,
            [](void*, slimps_key, const float*, float*, size_t) { return SLIMPS_OK + 0; },
            nullptr) == SLIMPS_UNIMPLEMENTED);
  // None of these calls has damaged the store.
  CHECK_OK(slimps_pull(worker.store, slimps_int_key(0), out.data(), kElements, 0));
  CHECK(out[0] == 1.0f);
}

// Worker 1 aborts while the other workers wait for its push.
void Abort(const Worker& worker) {
  Init(worker, 0, 1);
  std::vector<float> out(kElements);
  if (worker.rank == 1) {
    CHECK_OK(slimps_barrier(worker.store));
    CHECK_OK(slimps_abort(worker.store, "the disk of worker 1 is full"));
    CHECK(slimps_wait(worker.store) == SLIMPS_ABORTED);
    return;
  }
  Pulls pulls;
  CHECK_OK(slimps_push(worker.store, slimps_int_key(0), out.data(), kElements, 0));
  CHECK_OK(slimps_pull_async(worker.store, slimps_int_key(0), out.data(), kElements, 0, Pulls::Done,
                             &pulls));
  CHECK_OK(slimps_barrier(worker.store));
  CHECK(pulls.Await(1, SLIMPS_UNAVAILABLE) == 1);
  CHECK(pulls.message().find("the disk of worker 1 is full") != std::string::npos);
  CHECK(slimps_pull(worker.store, slimps_int_key(0), out.data(), kElements, 0) ==
        SLIMPS_UNAVAILABLE);
  CHECK(Says("the disk of worker 1 is full"));
}

void Rows(const Worker& worker) {
  const slimps_key key = slimps_int_key(0);
  Init(worker, 0, 1);
  SetSgd(worker, 1, 0);
  const int64_t pushed[] = {7, 2, 7};
  const std::vector<float> values(3 * kColumns, 1.0f);
  CHECK_OK(slimps_push_row_sparse(worker.store, key, pushed, 3, values.data(), values.size(), 0));
  const int64_t ids[] = {7, 3, 2, 7};
  int64_t rows[4] = {-1, -1, -1, -1};
  std::vector<float> out(3 * kColumns, NAN);
  size_t count = 0;
  CHECK(slimps_pull_rows(worker.store, key, ids, 4, rows, out.data(), 2 * kColumns, &count, 0) ==
        SLIMPS_INVALID_ARGUMENT);
  CHECK(Says("pull of rows of key 0: 3 rows need room for 12 elements, got 8"));
  CHECK(count == 0 && rows[0] == -1 && std::isnan(out[0]));
  CHECK_OK(slimps_pull_rows(worker.store, key, ids, 4, rows, out.data(), out.size(), &count, 0));
  const auto workers = static_cast<float>(worker.workers);
  CHECK(count == 3 && rows[0] == 2 && rows[1] == 3 && rows[2] == 7);
  CHECK(out[0] == 1 - workers && out[kColumns] == 1 && out[2 * kColumns] == 1 - 2 * workers);
  const int64_t outside[] = {kRows};
  CHECK(slimps_pull_rows(worker.store, key, outside, 1, rows, out.data(), out.size(), &count, 0) ==
        SLIMPS_INVALID_ARGUMENT);
  CHECK_OK(slimps_pull_rows(worker.store, key, nullptr, 0, nullptr, nullptr, 0, &count, 0));
  CHECK(count == 0);
}

void States(const Worker& worker) {
  const slimps_key key = slimps_int_key(0);
  Init(worker, 0, 1);
  SetSgd(worker, 0.5, 0.5);
  const std::vector<float> gradient(kElements, 1.0f / static_cast<float>(worker.workers));
  std::vector<float> out(kElements);
  CHECK_OK(slimps_pushpull(worker.store, key, gradient.data(), out.data(), kElements, 0));
  CHECK(out[0] == 0.5f);  // momentum 1
  void* content = nullptr;
  size_t bytes = 0;
  CHECK_OK(slimps_save_optimizer_states(worker.store, &content, &bytes));
  CHECK(bytes > kElements * sizeof(float));
  CHECK_OK(slimps_pushpull(worker.store, key, gradient.data(), out.data(), kElements, 0));
  CHECK(out[0] == -0.25f);  // momentum 1.5
  CHECK_OK(slimps_load_optimizer_states(worker.store, content, bytes));
  CHECK_OK(slimps_pushpull(worker.store, key, gradient.data(), out.data(), kElements, 0));
  CHECK(out[0] == -1.0f);  // momentum 1.5 again
  static_cast<char*>(content)[bytes / 2] ^= 1;
  CHECK(slimps_load_optimizer_states(worker.store, content, bytes) == SLIMPS_DATA_LOSS);
  slimps_free(content);
}

std::string SavedResiduals(const Worker& worker) {
  void* content = nullptr;
  size_t bytes = 0;
  CHECK_OK(slimps_save_residuals(worker.store, &content, &bytes));
  std::string saved(static_cast<const char*>(content), bytes);
  slimps_free(content);
  return saved;
}

// Saves and loads residuals, with 1bit for every size.
void Residuals(const Worker& worker) {
  const slimps_key key = slimps_int_key(0);
  Init(worker, 0, 1);
  std::vector<float> gradient(kElements), out(kElements);
  for (size_t k = 0; k < kElements; ++k) gradient[k] = static_cast<float>(k % 7) - 2.5f;
  CHECK_OK(slimps_pushpull(worker.store, key, gradient.data(), out.data(), kElements, 0));
  const std::string first = SavedResiduals(worker);
  CHECK(first.size() > kElements * sizeof(float));
  CHECK_OK(slimps_pushpull(worker.store, key, gradient.data(), out.data(), kElements, 0));
  const std::vector<float> second_sum = out;
  CHECK(SavedResiduals(worker) != first);
  CHECK_OK(slimps_load_residuals(worker.store, first.data(), first.size()));
  CHECK(SavedResiduals(worker) == first);
  CHECK_OK(slimps_pushpull(worker.store, key, gradient.data(), out.data(), kElements, 0));
  CHECK(out == second_sum);  // without an optimizer, the sum of the second pushes
  CHECK(slimps_load_residuals(worker.store, first.data(), first.size() / 2) == SLIMPS_DATA_LOSS);
  slimps_decision decision = {};
  decision.struct_size = sizeof(decision);
  CHECK_OK(slimps_get_decision(worker.store, &decision));
  CHECK(decision.is_decided == 1 && decision.threshold_bytes == 0);  // it was given
  CHECK(decision.pull_threshold_bytes == SLIMPS_NOT_COMPRESSED);
}

// Trains with a threshold that the first rounds measure.
void Decision(const Worker& worker) {
  const slimps_key key = slimps_int_key(0);
  Init(worker, 0, 1);
  const std::vector<float> gradient(kElements, 1.0f);
  std::vector<float> out(kElements);
  slimps_decision decision = {};
  decision.struct_size = sizeof(decision);
  double decided = 0;
  int rounds = 0;
  for (; decided < worker.workers; ++rounds) {
    CHECK(rounds < 1000);
    CHECK_OK(slimps_pushpull(worker.store, key, gradient.data(), out.data(), kElements, 0));
    CHECK_OK(slimps_get_decision(worker.store, &decision));
    CHECK(decision.is_decided == 1 || decision.threshold_bytes == SLIMPS_NOT_COMPRESSED);
    decided = decision.is_decided;
    CHECK_OK(slimps_all_reduce_sum(worker.store, &decided, 1));
  }
  CHECK(rounds > 4);  // pre_steps
  CHECK(decision.from_round > 4);
  double same[] = {static_cast<double>(decision.from_round)};
  CHECK_OK(slimps_all_reduce_sum(worker.store, same, 1));
  CHECK(same[0] == static_cast<double>(decision.from_round * worker.workers));
  CHECK(decision.pull_threshold_bytes == SLIMPS_NOT_COMPRESSED);
  CHECK(std::strcmp(decision.codec, "1bit") == 0 && std::strcmp(decision.pull_codec, "none") == 0);
  size_t count = 0;
  CHECK_OK(slimps_get_threshold_table(worker.store, nullptr, 0, &count));
  CHECK(count > 0);
  std::vector<slimps_threshold_row> rows(count);
  CHECK_OK(slimps_get_threshold_table(worker.store, rows.data(), rows.size(), &count));
  CHECK(count == rows.size());
  for (const slimps_threshold_row& row : rows) {
    CHECK(row.is_pull == 0 && row.bytes > 0);
    CHECK(row.t_c_ms > 0 && row.t_cq_ms > 0 && row.t_pq_ms > 0);
  }
}

// If one worker's optimizer is refused, all workers' calls end with an error.
void WrongOptimizer(const Worker& worker) {
  Init(worker, 0, 1);
  slimps_optimizer* sgd = nullptr;
  CHECK_OK(slimps_optimizer_create("sgd", &sgd));
  CHECK_OK(slimps_optimizer_set_number(sgd, "momentum", 0.9));
  if (worker.rank == 1) CHECK_OK(slimps_set_gradient_compression(worker.store, "dgc"));
  const slimps_status set = slimps_set_optimizer(worker.store, sgd);
  slimps_optimizer_destroy(sgd);
  CHECK(set == (worker.rank == 1 ? SLIMPS_INVALID_ARGUMENT : SLIMPS_FAILED_PRECONDITION));
  CHECK(worker.rank == 1 || Says("refused at 1 other workers"));
}

// Worker 0 leaves after its first round. The other workers go on alone.
void Leave(const Worker& worker) {
  const slimps_key key = slimps_int_key(0);
  Init(worker, 0, 1);
  const std::vector<float> ones(kElements, 1.0f);
  std::vector<float> out(kElements);
  CHECK_OK(slimps_pushpull(worker.store, key, ones.data(), out.data(), kElements, 0));
  CHECK(out[0] == static_cast<float>(worker.workers));
  if (worker.rank == 0) {
    CHECK_OK(slimps_leave(worker.store));
    return;
  }
  CHECK_OK(slimps_pushpull(worker.store, key, ones.data(), out.data(), kElements, 0));
  CHECK(out[0] == static_cast<float>(worker.workers - 1));
}

// Worker 1 comes to each barrier but the first when it gets SIGUSR1. Nobody leaves before the last
// one, so the scheduler sees the second one end.
void LateBarrier(const Worker& worker) {
  static sem_t signals;
  CHECK(sem_init(&signals, 0, 0) == 0);
  CHECK(std::signal(SIGUSR1, [](int) { (void)sem_post(&signals); }) != SIG_ERR);
  CHECK_OK(slimps_barrier(worker.store));
  for (int barrier = 0; barrier < 2; ++barrier) {
    while (worker.rank == 1 && sem_wait(&signals) != 0) CHECK(errno == EINTR);
    CHECK_OK(slimps_barrier(worker.store));
  }
}

// Initialises keys of 32 MiB each until the one server has no memory left.
void ServerWithoutMemory(const Worker& worker) {
  const std::vector<float> values(size_t{8} << 20);
  const int64_t shape[] = {static_cast<int64_t>(values.size())};
  slimps_status status = SLIMPS_OK;
  for (int64_t key = 0; status == SLIMPS_OK; ++key) {
    CHECK(key < 64);  // 2 GiB
    const slimps_tensor tensor = SLIMPS_TENSOR(slimps_int_key(key), shape, 1, values.data());
    status = slimps_init(worker.store, &tensor, 1);
  }
  std::printf("%s\n", slimps_last_error());
  if (status != SLIMPS_RESOURCE_EXHAUSTED) {  // the server has ended
    CHECK(Says("server 0"));
    return;
  }
  CHECK(Says("out of memory"));
  std::vector<float> pulled(values.size(), 1.0f);
  CHECK_OK(slimps_pull(worker.store, slimps_int_key(0), pulled.data(), pulled.size(), 0));
  CHECK(pulled == values);
}

using Scenario = void (*)(const Worker&);
const std::map<std::string, Scenario> kScenarios = {
    {"train_async", TrainAsync},
    {"unknown_key", UnknownKey},
    {"abort", Abort},
    {"rows", Rows},
    {"states", States},
    {"wrong_optimizer", WrongOptimizer},
    {"leave", Leave},
    {"late_barrier", LateBarrier},
    {"residuals", Residuals},
    {"decision", Decision},
    {"train_in_background", TrainInBackground},
    {"abort_in_background", AbortInBackground},
    {"exchange", ExchangeAlone},
    {"exchange_with_backup", ExchangeWithBackup},
    {"server_without_memory", ServerWithoutMemory},
};

}  // namespace

int main(int argc, char** argv) {
  CHECK(argc == 3 && kScenarios.contains(argv[1]));
  const std::string scenario = argv[1], type = argv[2];
  slimps_options* options = nullptr;
  CHECK_OK(slimps_options_create(&options));
  CHECK_OK(slimps_options_from_environment(options));
  const bool large = scenario == "server_without_memory";
  CHECK_OK(slimps_options_set(options, "timeout_s", large ? "5" : "120"));
  CHECK_OK(slimps_options_set(options, "partition_bytes", large ? "1048576" : "1024"));
  if (scenario == "residuals" || scenario == "decision") {
    CHECK_OK(slimps_options_set(options, "compression", "1bit"));
    CHECK_OK(slimps_options_set(options, "pre_steps", "4"));
  }
  if (scenario == "residuals") CHECK_OK(slimps_options_set(options, "threshold", "0"));
  Worker worker;
  CHECK_OK(slimps_create(type.c_str(), options, &worker.store));
  slimps_options_destroy(options);
  CHECK_OK(slimps_rank(worker.store, &worker.rank));
  CHECK_OK(slimps_num_workers(worker.store, &worker.workers));
  kScenarios.at(scenario)(worker);
  const bool may_fail = scenario.starts_with("abort") || large;
  if (!may_fail) CHECK_OK(slimps_close(worker.store));
  slimps_destroy(worker.store);
  std::printf("well\n");
  return 0;
}
