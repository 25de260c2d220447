// SPDX-License-Identifier: Apache-2.0
/* The declarations of <slimps/c_api.h> as version 1.0 had them. They are frozen: programs that were
 * built with them run with every later library of major version 1. */
#ifndef SLIMPS_WORKER_CAPI_C_API_H_
#define SLIMPS_WORKER_CAPI_C_API_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define SLIMPS_API __attribute__((visibility("default")))
#else
#define SLIMPS_API
#endif

#define SLIMPS_C_API_MAJOR 1
#define SLIMPS_C_API_MINOR 0
#define SLIMPS_C_API_VERSION (SLIMPS_C_API_MAJOR * 1000 + SLIMPS_C_API_MINOR)

SLIMPS_API int32_t slimps_api_version(void);

typedef int32_t slimps_status;
enum {
  SLIMPS_OK = 0,
  SLIMPS_CANCELLED = 1,
  SLIMPS_UNKNOWN = 2,
  SLIMPS_INVALID_ARGUMENT = 3,
  SLIMPS_DEADLINE_EXCEEDED = 4,
  SLIMPS_NOT_FOUND = 5,
  SLIMPS_ALREADY_EXISTS = 6,
  SLIMPS_PERMISSION_DENIED = 7,
  SLIMPS_RESOURCE_EXHAUSTED = 8,
  SLIMPS_FAILED_PRECONDITION = 9,
  SLIMPS_ABORTED = 10,
  SLIMPS_OUT_OF_RANGE = 11,
  SLIMPS_UNIMPLEMENTED = 12,
  SLIMPS_INTERNAL = 13,
  SLIMPS_UNAVAILABLE = 14,
  SLIMPS_DATA_LOSS = 15,
  SLIMPS_UNAUTHENTICATED = 16
};
SLIMPS_API const char* slimps_status_name(slimps_status status);
SLIMPS_API const char* slimps_last_error(void);
SLIMPS_API void slimps_free(void* memory);

enum { SLIMPS_KEY_INT = 1, SLIMPS_KEY_TEXT = 2 };

typedef struct slimps_key {
  int32_t kind;
  int32_t reserved;
  int64_t number;
  const char* text;
} slimps_key;

static inline slimps_key slimps_int_key(int64_t number) {
  slimps_key key = {SLIMPS_KEY_INT, 0, 0, NULL};
  key.number = number;
  return key;
}

static inline slimps_key slimps_text_key(const char* text) {
  slimps_key key = {SLIMPS_KEY_TEXT, 0, 0, NULL};
  key.text = text;
  return key;
}

enum { SLIMPS_FLOAT32 = 0, SLIMPS_FLOAT16 = 1, SLIMPS_BFLOAT16 = 2 };

enum {
  SLIMPS_LAYER_BY_SHAPE = 0,
  SLIMPS_LAYER_CONVOLUTION = 1,
  SLIMPS_LAYER_DENSE = 2,
  SLIMPS_LAYER_RECURRENT = 3,
  SLIMPS_LAYER_EMBEDDING = 4,
  SLIMPS_LAYER_NORMALISATION = 5
};

typedef struct slimps_tensor {
  size_t struct_size;
  slimps_key key;
  const int64_t* shape;
  size_t dimensions;
  const float* values;
  int32_t dtype;
  int32_t layer;
} slimps_tensor;

#define SLIMPS_TENSOR(key, shape, dimensions, values)                              \
  {                                                                                \
    sizeof(slimps_tensor), (key), (shape), (dimensions), (values), SLIMPS_FLOAT32, \
        SLIMPS_LAYER_BY_SHAPE                                                      \
  }

typedef struct slimps_options slimps_options;
SLIMPS_API slimps_status slimps_options_create(slimps_options** options);
SLIMPS_API slimps_status slimps_options_set(slimps_options* options, const char* name,
                                            const char* value);
SLIMPS_API slimps_status slimps_options_from_environment(slimps_options* options);
SLIMPS_API void slimps_options_destroy(slimps_options* options);

typedef struct slimps_store slimps_store;
SLIMPS_API slimps_status slimps_create(const char* type, const slimps_options* options,
                                       slimps_store** store);
SLIMPS_API slimps_status slimps_close(slimps_store* store);
SLIMPS_API void slimps_destroy(slimps_store* store);
SLIMPS_API slimps_status slimps_abort(slimps_store* store, const char* why);
SLIMPS_API slimps_status slimps_rank(const slimps_store* store, uint32_t* rank);
SLIMPS_API slimps_status slimps_num_workers(const slimps_store* store, uint32_t* num_workers);
SLIMPS_API slimps_status slimps_type(const slimps_store* store, const char** type);
SLIMPS_API slimps_status slimps_is_capable(const slimps_store* store, const char* capability,
                                           int32_t* capable);
SLIMPS_API slimps_status slimps_init(slimps_store* store, const slimps_tensor* tensors,
                                     size_t count);
SLIMPS_API slimps_status slimps_broadcast(slimps_store* store, const slimps_tensor* tensor,
                                          float* out, size_t elements);
SLIMPS_API slimps_status slimps_push(slimps_store* store, slimps_key key, const float* gradient,
                                     size_t elements, int32_t priority);
SLIMPS_API slimps_status slimps_push_sum(slimps_store* store, slimps_key key,
                                         const float* const* gradients, size_t devices,
                                         size_t elements, int32_t priority);
SLIMPS_API slimps_status slimps_push_nothing(slimps_store* store, slimps_key key);
SLIMPS_API slimps_status slimps_pull(slimps_store* store, slimps_key key, float* out,
                                     size_t elements, int32_t priority);

typedef void (*slimps_done)(void* user_data, slimps_status status, const char* message);
SLIMPS_API slimps_status slimps_pull_async(slimps_store* store, slimps_key key, float* out,
                                           size_t elements, int32_t priority, slimps_done done,
                                           void* user_data);
SLIMPS_API slimps_status slimps_pushpull(slimps_store* store, slimps_key key, const float* gradient,
                                         float* out, size_t elements, int32_t priority);
SLIMPS_API slimps_status slimps_push_row_sparse(slimps_store* store, slimps_key key,
                                                const int64_t* rows, size_t num_rows,
                                                const float* values, size_t elements,
                                                int32_t priority);
SLIMPS_API slimps_status slimps_pull_rows(slimps_store* store, slimps_key key,
                                          const int64_t* row_ids, size_t num_ids, int64_t* rows,
                                          float* values, size_t elements, size_t* num_rows,
                                          int32_t priority);

typedef struct slimps_optimizer slimps_optimizer;
SLIMPS_API slimps_status slimps_optimizer_create(const char* kind, slimps_optimizer** optimizer);
SLIMPS_API slimps_status slimps_optimizer_set_number(slimps_optimizer* optimizer, const char* name,
                                                     double value);
SLIMPS_API slimps_status slimps_optimizer_set(slimps_optimizer* optimizer, const char* name,
                                              const char* value);
SLIMPS_API void slimps_optimizer_destroy(slimps_optimizer* optimizer);
SLIMPS_API slimps_status slimps_set_optimizer(slimps_store* store,
                                              const slimps_optimizer* optimizer);
SLIMPS_API slimps_status slimps_set_hyper(slimps_store* store, slimps_key key, double learning_rate,
                                          double weight_decay);
SLIMPS_API slimps_status slimps_reset_hyper(slimps_store* store, slimps_key key);

typedef slimps_status (*slimps_updater)(void* user_data, slimps_key key, const float* gradient,
                                        float* weight, size_t elements);
SLIMPS_API slimps_status slimps_set_updater(slimps_store* store, slimps_updater updater,
                                            void* user_data);
SLIMPS_API slimps_status slimps_set_gradient_compression(slimps_store* store, const char* codec);
SLIMPS_API slimps_status slimps_set_gradient_compression_pairs(slimps_store* store,
                                                               const char* const* names,
                                                               const char* const* values,
                                                               size_t count);
SLIMPS_API slimps_status slimps_save_optimizer_states(slimps_store* store, void** content,
                                                      size_t* bytes);
SLIMPS_API slimps_status slimps_load_optimizer_states(slimps_store* store, const void* content,
                                                      size_t bytes);
SLIMPS_API slimps_status slimps_save_residuals(slimps_store* store, void** content, size_t* bytes);
SLIMPS_API slimps_status slimps_load_residuals(slimps_store* store, const void* content,
                                               size_t bytes);
SLIMPS_API slimps_status slimps_barrier(slimps_store* store);
SLIMPS_API slimps_status slimps_all_reduce_sum(slimps_store* store, double* values, size_t count);
SLIMPS_API slimps_status slimps_wait(slimps_store* store);
SLIMPS_API slimps_status slimps_leave(slimps_store* store);

typedef struct slimps_totals {
  size_t struct_size;
  uint64_t elements_pushed;
  uint64_t elements_sent;
  uint64_t bytes_pushed;
  uint64_t bytes_pulled;
  uint64_t bytes_shared;
  uint64_t changes_pulled;
  double copy_s;
  double encode_s;
  double send_s;
  double wait_s;
  double decode_s;

  double compression_gain;

  double compression_error;
} slimps_totals;
SLIMPS_API slimps_status slimps_get_totals(const slimps_store* store, slimps_totals* totals);

#define SLIMPS_NOT_COMPRESSED UINT64_MAX

typedef struct slimps_decision {
  size_t struct_size;
  uint64_t is_decided;
  uint64_t from_round;

  uint64_t threshold_bytes;
  uint64_t pull_threshold_bytes;
} slimps_decision;
SLIMPS_API slimps_status slimps_get_decision(const slimps_store* store, slimps_decision* decision);

#ifdef __cplusplus
}
#endif

#endif
