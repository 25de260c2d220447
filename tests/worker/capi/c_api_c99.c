// SPDX-License-Identifier: Apache-2.0
/* The C API in C99, end to end on a local store. Covers the macros and inline functions too. */
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

static slimps_status halve(void* user_data, slimps_key key, const float* gradient, float* weight,
                           size_t elements) {
  size_t k;
  ++*(int*)user_data;
  CHECK(key.kind == SLIMPS_KEY_INT && key.number == 5);
  for (k = 0; k < elements; ++k) weight[k] = weight[k] / 2 + gradient[k];
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
  slimps_options* options = NULL;
  slimps_store* store = NULL;
  slimps_tensor tensors[2] = {SLIMPS_TENSOR(slimps_int_key(5), shape, 2, initial),
                              SLIMPS_TENSOR(slimps_int_key(6), NULL, 0, initial)};
  slimps_totals totals;

  CHECK(slimps_api_version() >= SLIMPS_C_API_VERSION);
  CHECK(slimps_options_create(&options) == SLIMPS_OK);
  CHECK(slimps_options_set(options, "encode_threads", "2") == SLIMPS_OK);
  CHECK(slimps_options_set(options, "encode_threads", "none") == SLIMPS_INVALID_ARGUMENT);
  CHECK(slimps_create("local", options, &store) == SLIMPS_OK);
  slimps_options_destroy(options);

  CHECK(slimps_init(store, tensors, 2) == SLIMPS_OK);
  CHECK(slimps_set_updater(store, halve, &updates) == SLIMPS_OK);
  CHECK(slimps_push(store, slimps_int_key(5), gradient, 2, 0) == SLIMPS_OK);
  CHECK(slimps_pull(store, slimps_int_key(5), out, 2, 0) == SLIMPS_OK);
  CHECK(out[0] == 2 && out[1] == 3 && updates == 1);
  CHECK(slimps_pull(store, slimps_text_key("five"), out, 2, 0) == SLIMPS_NOT_FOUND);
  CHECK(strstr(slimps_last_error(), "key five") != NULL);
  CHECK(slimps_pull_async(store, slimps_int_key(6), out, 1, 0, note, &notes) == SLIMPS_OK);

  totals.struct_size = sizeof(totals);
  CHECK(slimps_get_totals(store, &totals) == SLIMPS_OK);
  CHECK(totals.compression_gain == 1);
  CHECK(slimps_close(store) == SLIMPS_OK);
  slimps_destroy(store);
  CHECK(out[0] == 2 && notes == 1);
  printf("well\n");
  return 0;
}
