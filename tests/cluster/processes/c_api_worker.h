// SPDX-License-Identifier: Apache-2.0
// What the scenarios of c_api_worker.cc share. A failed check ends the process with status 1.
#ifndef SLIMPS_TESTS_CLUSTER_PROCESSES_C_API_WORKER_H_
#define SLIMPS_TESTS_CLUSTER_PROCESSES_C_API_WORKER_H_

#include <slimps/c_api.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#define CHECK(condition)                                                           \
  do {                                                                             \
    if (!(condition)) {                                                            \
      std::printf("line %d: %s: %s\n", __LINE__, #condition, slimps_last_error()); \
      std::exit(1);                                                                \
    }                                                                              \
  } while (false)
#define CHECK_OK(call) CHECK((call) == SLIMPS_OK)

inline constexpr size_t kRows = 300, kColumns = 4, kElements = kRows * kColumns;
inline const int64_t kShape[] = {kRows, kColumns};

struct Worker {
  slimps_store* store = nullptr;
  uint32_t rank = 0;
  uint32_t workers = 0;
};

inline bool Says(const char* words) { return std::strstr(slimps_last_error(), words) != nullptr; }

// Initialises `count` keys. Rank 0's values count.
inline void Init(const Worker& worker, int64_t first, size_t count) {
  const std::vector<float> values(kElements, worker.rank == 0 ? 1.0f : 99.0f);
  std::vector<slimps_tensor> tensors;
  for (size_t i = 0; i < count; ++i) {
    tensors.push_back(SLIMPS_TENSOR(slimps_int_key(first + static_cast<int64_t>(i)), kShape, 2,
                                    worker.rank == 0 ? values.data() : nullptr));
  }
  CHECK_OK(slimps_init(worker.store, tensors.data(), tensors.size()));
}

inline void SetSgd(const Worker& worker, double rate, double momentum) {
  slimps_optimizer* sgd = nullptr;
  CHECK_OK(slimps_optimizer_create("sgd", &sgd));
  CHECK_OK(slimps_optimizer_set_number(sgd, "learning_rate", rate));
  CHECK_OK(slimps_optimizer_set_number(sgd, "momentum", momentum));
  CHECK_OK(slimps_set_optimizer(worker.store, sgd));
  slimps_optimizer_destroy(sgd);
}

// In c_api_background_worker.cc.
void TrainInBackground(const Worker& worker);
void AbortInBackground(const Worker& worker);
void ExchangeAlone(const Worker& worker);
void ExchangeWithBackup(const Worker& worker);

#endif  // SLIMPS_TESTS_CLUSTER_PROCESSES_C_API_WORKER_H_
