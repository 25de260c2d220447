/* SPDX-License-Identifier: Apache-2.0 */
/* A program of version 1.0, which c_api_package_test.py compiles against c_api_1_0.h and runs with
 * today's library. It never changes. */
#include <slimps/c_api.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(condition)                                                               \
  do {                                                                                 \
    if (!(condition)) {                                                                \
      fprintf(stderr, "line %d: %s: %s\n", __LINE__, #condition, slimps_last_error()); \
      exit(1);                                                                         \
    }                                                                                  \
  } while (0)

struct decision_and_what_lies_behind {
  slimps_decision decision;
  uint64_t behind[4];
};

static slimps_status add(void* user_data, slimps_key key, const float* gradient, float* weight,
                         size_t elements) {
  size_t k;
  (void)key;
  ++*(int*)user_data;
  for (k = 0; k < elements; ++k) weight[k] += gradient[k];
  return SLIMPS_OK;
}

static void note(void* user_data, slimps_status status, const char* message) {
  CHECK(status == SLIMPS_OK && strcmp(message, "") == 0);
  ++*(int*)user_data;
}

int main(void) {
  const int64_t shape[] = {2, 1};
  const float initial[] = {2, 4}, gradient[] = {1, 1};
  float out[2] = {0, 0};
  int updates = 0, notes = 0;
  int32_t capable = 0;
  uint32_t workers = 0;
  const char* type = NULL;
  slimps_options* options = NULL;
  slimps_optimizer* sgd = NULL;
  slimps_store* store = NULL;
  slimps_tensor tensors[2] = {SLIMPS_TENSOR(slimps_text_key("w"), shape, 2, initial),
                              SLIMPS_TENSOR(slimps_text_key("v"), NULL, 0, initial)};
  slimps_totals totals;
  struct decision_and_what_lies_behind decided;

  CHECK(SLIMPS_C_API_MINOR == 0 && sizeof(slimps_decision) == 40);
  CHECK(slimps_api_version() >= SLIMPS_C_API_VERSION);
  CHECK(slimps_options_create(&options) == SLIMPS_OK);
  CHECK(slimps_options_set(options, "encode_threads", "2") == SLIMPS_OK);
  CHECK(slimps_create("local", options, &store) == SLIMPS_OK);
  slimps_options_destroy(options);
  CHECK(slimps_type(store, &type) == SLIMPS_OK && strcmp(type, "local") == 0);
  CHECK(slimps_num_workers(store, &workers) == SLIMPS_OK && workers == 1);
  CHECK(slimps_is_capable(store, "optimizer", &capable) == SLIMPS_OK && capable == 1);

  CHECK(slimps_init(store, tensors, 2) == SLIMPS_OK);
  CHECK(slimps_set_updater(store, add, &updates) == SLIMPS_OK);
  CHECK(slimps_push(store, slimps_text_key("w"), gradient, 2, 0) == SLIMPS_OK);
  CHECK(slimps_pull(store, slimps_text_key("w"), out, 2, 0) == SLIMPS_OK);
  CHECK(out[0] == 3 && out[1] == 5 && updates == 1);
  CHECK(slimps_set_updater(store, NULL, NULL) == SLIMPS_OK);
  CHECK(slimps_optimizer_create("sgd", &sgd) == SLIMPS_OK);
  CHECK(slimps_optimizer_set_number(sgd, "learning_rate", 0.5) == SLIMPS_OK);
  CHECK(slimps_set_optimizer(store, sgd) == SLIMPS_OK);
  slimps_optimizer_destroy(sgd);
  CHECK(slimps_pushpull(store, slimps_text_key("w"), gradient, out, 2, 0) == SLIMPS_OK);
  CHECK(out[0] == 2.5f && out[1] == 4.5f);
  CHECK(slimps_pull(store, slimps_text_key("x"), out, 1, 0) == SLIMPS_NOT_FOUND);
  CHECK(strstr(slimps_last_error(), "slimps_pull: key x") != NULL);
  CHECK(slimps_pull_async(store, slimps_text_key("v"), out, 1, 0, note, &notes) == SLIMPS_OK);
  CHECK(slimps_barrier(store) == SLIMPS_OK && slimps_wait(store) == SLIMPS_OK);

  memset(&decided, 7, sizeof(decided));
  decided.decision.struct_size = sizeof(slimps_decision);
  CHECK(slimps_get_decision(store, &decided.decision) == SLIMPS_OK);
  CHECK(decided.decision.is_decided == 0);
  CHECK(decided.decision.pull_threshold_bytes == SLIMPS_NOT_COMPRESSED);
  CHECK(decided.behind[0] == 0x0707070707070707u && decided.behind[3] == decided.behind[0]);
  totals.struct_size = sizeof(totals);
  CHECK(slimps_get_totals(store, &totals) == SLIMPS_OK && totals.compression_gain == 1);
  CHECK(slimps_close(store) == SLIMPS_OK);
  slimps_destroy(store);
  CHECK(out[0] == 2 && notes == 1);
  printf("well\n");
  return 0;
}
