// SPDX-License-Identifier: Apache-2.0
/* The C API of slimps: the KVStore for other languages and frameworks, with MXNet's names and
 * meanings. C99; C++ may include it as it is.
 *
 * A whole program with a store of this process alone ("dist_sync" needs a job, see
 * slimps_options_from_environment):
 *
 *   #include <slimps/c_api.h>
 *   #include <stdio.h>
 *   #include <stdlib.h>
 *
 *   static void check(slimps_status status) {
 *     if (status == SLIMPS_OK) return;
 *     fprintf(stderr, "%s: %s\n", slimps_status_name(status), slimps_last_error());
 *     exit(1);
 *   }
 *
 *   int main(void) {
 *     const int64_t shape[] = {3};
 *     float weights[3] = {1, 2, 3};
 *     const float gradient[3] = {1, 1, 1};
 *     slimps_store* store;
 *     slimps_optimizer* sgd;
 *     slimps_tensor tensor = SLIMPS_TENSOR(slimps_text_key("w"), shape, 1, weights);
 *
 *     check(slimps_create("local", NULL, &store));
 *     check(slimps_init(store, &tensor, 1));
 *     check(slimps_optimizer_create("sgd", &sgd));
 *     check(slimps_optimizer_set_number(sgd, "learning_rate", 0.5));
 *     check(slimps_set_optimizer(store, sgd));
 *     slimps_optimizer_destroy(sgd);
 *     check(slimps_push(store, tensor.key, gradient, 3, 0));
 *     check(slimps_pull(store, tensor.key, weights, 3, 0));
 *     printf("%g %g %g\n", weights[0], weights[1], weights[2]);
 *     slimps_destroy(store);
 *     return 0;
 *   }
 *
 * It prints "0.5 1.5 2.5".
 *
 * Status: a function that can fail returns one. What it writes through pointers is valid only after
 * SLIMPS_OK. No function throws or ends the process. Beside the errors listed with each function,
 * every function may return
 *   INVALID_ARGUMENT: a null pointer, a value out of range, or text that is not UTF-8. The message
 *     names the argument, what was expected and what came.
 *   RESOURCE_EXHAUSTED: no memory.
 *   The first error of the store's background work, from then on (functions of a store).
 * Threads: any thread may use a store, several at once. One thread at a time may use an options or
 * optimizer object. No call may run beside or after the destroy of what it is given.
 * Ownership: a function reads or copies what is passed in before it returns, except where it says
 * otherwise. The caller owns objects, from create to destroy.
 * Text: UTF-8, ended by NUL.
 * Arrays: packed, in the machine's byte order. A null pointer is allowed with 0 elements only.
 * Arrays of float may lie on a GPU, whose memory is found by its address (since 1.7). It belongs to
 * the legacy default stream: what that stream has been given comes before. Some calls take the
 * place instead (slimps_place in c_api_calls.h): lists always do, and look up no address unless a
 * place says so (since 1.9), so that NULL is the host there. A call returns when it has read the
 * array, or when what it has written is there; training steps say themselves how long they need an
 * array. Errors are those of slimps_item.
 * Time: a call that waits does so for at most slimps_timeout. Then it returns DEADLINE_EXCEEDED
 * and the message names what was missing. A wait for a GPU's stream has no limit.
 * Stability: within one SLIMPS_C_API_MAJOR names, numbers, layouts and meanings stay; see
 * docs/c-api.md.
 *
 * This header includes <slimps/c_api_gradients.h> (optimizers, compression, policies, states) and
 * <slimps/c_api_figures.h> (totals, decisions, where the program stands). <slimps/c_api_calls.h>
 * adds calls in the background and lists of keys, <slimps/c_api_exchange.h> a model's training
 * steps with the backup model, <slimps/c_api_trace.h> a timeline. */
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

/* The major number is that of the shared library (libslimps.so.1). It changes when programs must be
 * changed. The minor number grows when something is added. */
#define SLIMPS_C_API_MAJOR 1
#define SLIMPS_C_API_MINOR 10
#define SLIMPS_C_API_VERSION (SLIMPS_C_API_MAJOR * 1000 + SLIMPS_C_API_MINOR)

/* Returns the library's SLIMPS_C_API_VERSION, which is at least that of the header that the program
 * was built with. */
SLIMPS_API int32_t slimps_api_version(void);

/* ---- errors ---------------------------------------------------------------------------------- */

/* Numbers and meanings are those of Abseil and gRPC. */
typedef int32_t slimps_status;
enum {
  SLIMPS_OK = 0,
  SLIMPS_CANCELLED = 1,
  SLIMPS_UNKNOWN = 2,
  SLIMPS_INVALID_ARGUMENT = 3,
  SLIMPS_DEADLINE_EXCEEDED = 4,
  SLIMPS_NOT_FOUND = 5, /* a key that was never initialised */
  SLIMPS_ALREADY_EXISTS = 6,
  SLIMPS_PERMISSION_DENIED = 7,
  SLIMPS_RESOURCE_EXHAUSTED = 8,
  SLIMPS_FAILED_PRECONDITION = 9, /* not now: the store is closed, or it is too late */
  SLIMPS_ABORTED = 10,            /* this worker has ended the job */
  SLIMPS_OUT_OF_RANGE = 11,
  SLIMPS_UNIMPLEMENTED = 12, /* this type of store does not have it */
  SLIMPS_INTERNAL = 13,
  SLIMPS_UNAVAILABLE = 14, /* another node is gone or has ended the job */
  SLIMPS_DATA_LOSS = 15,
  SLIMPS_UNAUTHENTICATED = 16
};

/* Returns the name, such as "INVALID_ARGUMENT"; "UNKNOWN" for a number that is no status. The
 * library owns the text. */
SLIMPS_API const char* slimps_status_name(slimps_status status);

/* Returns the message of this thread's last failed call, one line that begins with the function's
 * name; "" if none has failed. The library owns the text, which stays until this thread's next
 * failed call. */
SLIMPS_API const char* slimps_last_error(void);

/* Sends the library's log, which is glog's, to stderr. For programs that do not set glog up; where
 * glog is set up already it does nothing. The program itself must not set glog up at the same
 * time. Since 1.1. */
SLIMPS_API slimps_status slimps_log_to_stderr(void);

/* Frees memory that the library allocated for the caller. NULL does nothing. */
SLIMPS_API void slimps_free(void* memory);

/* ---- keys and tensors ------------------------------------------------------------------------ */

enum { SLIMPS_KEY_INT = 1, SLIMPS_KEY_TEXT = 2 };

/* A tensor's name, an int or a text. All keys of one store are of one kind. */
typedef struct slimps_key {
  int32_t kind;     /* SLIMPS_KEY_... */
  int32_t reserved; /* 0 */
  int64_t number;   /* if SLIMPS_KEY_INT */
  const char* text; /* if SLIMPS_KEY_TEXT; at most 1022 bytes */
} slimps_key;

/* Returns an int key, for example 5. */
static inline slimps_key slimps_int_key(int64_t number) {
  slimps_key key = {SLIMPS_KEY_INT, 0, 0, NULL};
  key.number = number;
  return key;
}

/* Returns a text key, for example "conv1.weight". `text` must live as long as the key is used. */
static inline slimps_key slimps_text_key(const char* text) {
  slimps_key key = {SLIMPS_KEY_TEXT, 0, 0, NULL};
  key.text = text;
  return key;
}

/* What pulls of a tensor carry. The servers keep float32. Arrays of this API are always float. */
enum { SLIMPS_FLOAT32 = 0, SLIMPS_FLOAT16 = 1, SLIMPS_BFLOAT16 = 2 };

/* The layer that a tensor belongs to; some codecs (adacomp) treat layers differently.
 * SLIMPS_LAYER_BY_SHAPE, the value in SLIMPS_TENSOR, goes by the shape: (out, in) is dense,
 * (out, in, kernel ...) is a convolution, anything else is neither. */
enum {
  SLIMPS_LAYER_BY_SHAPE = 0,
  SLIMPS_LAYER_CONVOLUTION = 1,
  SLIMPS_LAYER_DENSE = 2,
  SLIMPS_LAYER_RECURRENT = 3,
  SLIMPS_LAYER_EMBEDDING = 4,
  SLIMPS_LAYER_NORMALISATION = 5,
  SLIMPS_LAYER_OTHER = 6 /* since 1.1 */
};

/* A tensor to initialise. SLIMPS_TENSOR(key, shape, dimensions, values) fills in the usual rest. */
typedef struct slimps_tensor {
  size_t struct_size; /* sizeof(slimps_tensor); the same in all tensors of an array */
  slimps_key key;
  const int64_t* shape; /* extents, each at least 1; the first counts rows */
  size_t dimensions;    /* 0: one element */
  const float* values;  /* rank 0's are used; in a distributed store others may give NULL */
  int32_t dtype;        /* SLIMPS_FLOAT32, ... */
  int32_t layer;        /* SLIMPS_LAYER_... */
  const struct slimps_place* place; /* of `values` (c_api_calls.h); NULL: as of any array. Since
                                       1.8 */
} slimps_tensor;

#define SLIMPS_TENSOR(key, shape, dimensions, values)                              \
  {                                                                                \
    sizeof(slimps_tensor), (key), (shape), (dimensions), (values), SLIMPS_FLOAT32, \
        SLIMPS_LAYER_BY_SHAPE, NULL                                                \
  }

/* ---- options --------------------------------------------------------------------------------- */

typedef struct slimps_options slimps_options;

/* Creates options, each with its default. */
SLIMPS_API slimps_status slimps_options_create(slimps_options** options);

/* Sets one option by its name, as in ("compression", "1bit") or ("threshold", "4096").
 * docs/c-api.md lists the names, which are those of slimps_worker's flags and of Python's create.
 * INVALID_ARGUMENT: no such option (the message lists them), or a value that it cannot take. */
SLIMPS_API slimps_status slimps_options_set(slimps_options* options, const char* name,
                                            const char* value);

/* Gives an option's value as text; "" for one that is not set. The options own the text, which
 * stays until their next slimps_options_get. Since 1.1.
 * INVALID_ARGUMENT: no such option (the message lists them). */
SLIMPS_API slimps_status slimps_options_get(slimps_options* options, const char* name,
                                            const char** value);

/* Reads this worker's place in the job from DMLC_PS_ROOT_URI, DMLC_PS_ROOT_PORT, DMLC_NUM_WORKER,
 * DMLC_NUM_SERVER and DMLC_WORKER_ID (or torchrun's RANK and WORLD_SIZE), as `slimps launch` sets
 * them, and its keys from SLIMPS_KEY_FILE and SLIMPS_SCHEDULER_KEY. SLIMPS_METRICS_PORT and
 * SLIMPS_WATCH_BIND, where they are set, become options metrics_port and watch_bind.
 * FAILED_PRECONDITION: a variable is missing, or DMLC_ROLE is not worker. */
SLIMPS_API slimps_status slimps_options_from_environment(slimps_options* options);

/* Frees the options. NULL does nothing. */
SLIMPS_API void slimps_options_destroy(slimps_options* options);

/* ---- the store ------------------------------------------------------------------------------- */

typedef struct slimps_store slimps_store;

/* Joins the job and waits until all its nodes are there. `type`: "dist_sync", "dist_device_sync",
 * "dist_async", "dist_ssp"; or, in this process alone, "local" or "device". Copies `options`; NULL:
 * all defaults.
 * UNAVAILABLE: metrics_port is in use, or watch_bind is no address of this machine. */
SLIMPS_API slimps_status slimps_create(const char* type, const slimps_options* options,
                                       slimps_store** store);

/* Waits until the servers have everything that was pushed, then leaves the job. A second call does
 * nothing. */
SLIMPS_API slimps_status slimps_close(slimps_store* store);

/* Closes the store if it is open, waits for callbacks, and frees it. A store with other handles
 * (c_api_calls.h) stays. NULL does nothing. */
SLIMPS_API void slimps_destroy(slimps_store* store);

/* Ends the job because this worker cannot go on. From now on this worker's calls fail with ABORTED,
 * the other workers' with UNAVAILABLE, all with `why`. */
SLIMPS_API slimps_status slimps_abort(slimps_store* store, const char* why);

/* Gives this worker's number, from 0. */
SLIMPS_API slimps_status slimps_rank(const slimps_store* store, uint32_t* rank);

/* Gives the number of workers in the job. */
SLIMPS_API slimps_status slimps_num_workers(const slimps_store* store, uint32_t* num_workers);

/* Gives the seconds that a call waits for others that live: option timeout_s, or what the job says
 * if that is 0.
 * Since 1.10. */
SLIMPS_API slimps_status slimps_timeout(const slimps_store* store, double* seconds);

/* Gives how many rounds a former process of this worker's rank took part in. 0: there was none. Not
 * 0: this process was started again while the job runs. Its init keeps the servers' weights, and
 * training goes on with the step after so many.
 * Since 1.6. */
SLIMPS_API slimps_status slimps_former_rounds(const slimps_store* store, uint64_t* rounds);

/* Gives the type that slimps_create was asked for. The store owns the text. */
SLIMPS_API slimps_status slimps_type(const slimps_store* store, const char** type);

/* Gives 1 if the store has the capability, otherwise 0. "optimizer": the store can step weights by
 * an optimizer. */
SLIMPS_API slimps_status slimps_is_capable(const slimps_store* store, const char* capability,
                                           int32_t* capable);

/* ---- push and pull --------------------------------------------------------------------------- */

/* Initialises `count` keys. Collective: all workers call it alike. Returns when the keys can be
 * pulled.
 * ALREADY_EXISTS: a key was initialised before. */
SLIMPS_API slimps_status slimps_init(slimps_store* store, const slimps_tensor* tensors,
                                     size_t count);

/* Initialises one key and pulls it into `out`, which has `elements`: every worker gets rank 0's
 * values. Collective. */
SLIMPS_API slimps_status slimps_broadcast(slimps_store* store, const slimps_tensor* tensor,
                                          float* out, size_t elements);

/* Adds this worker's gradient to the key's next round and returns when the array may be reused.
 * Without an optimizer the sum over workers replaces the value. A higher `priority` goes first.
 * INVALID_ARGUMENT: another number of elements, or NaN or infinity (option non_finite). Nothing was
 * sent, and the round is still to be pushed. */
SLIMPS_API slimps_status slimps_push(slimps_store* store, slimps_key key, const float* gradient,
                                     size_t elements, int32_t priority);

/* Same as slimps_push with the sum of `devices` arrays, each of `elements`. */
SLIMPS_API slimps_status slimps_push_sum(slimps_store* store, slimps_key key,
                                         const float* const* gradients, size_t devices,
                                         size_t elements, int32_t priority);

/* Contributes nothing to the key's next round, so that the round need not wait for this worker. */
SLIMPS_API slimps_status slimps_push_nothing(slimps_store* store, slimps_key key);

/* Waits for all workers' pushes of the rounds that this worker has pushed, and writes the value
 * into `out`. */
SLIMPS_API slimps_status slimps_pull(slimps_store* store, slimps_key key, float* out,
                                     size_t elements, int32_t priority);

/* What slimps_pull_async calls. `message` is valid during the call; "" with SLIMPS_OK. The function
 * must neither throw nor call the store: other pulls wait for it. */
typedef void (*slimps_done)(void* user_data, slimps_status status, const char* message);

/* Same as slimps_pull, without waiting. The store calls `done` once, on one of its threads, perhaps
 * before this returns. Until then the store owns `out`. If this call fails, `done` is not called.
 * Destroying the store ends pulls under way with an error. */
SLIMPS_API slimps_status slimps_pull_async(slimps_store* store, slimps_key key, float* out,
                                           size_t elements, int32_t priority, slimps_done done,
                                           void* user_data);

/* slimps_push and slimps_pull in one, each of `elements`. `gradient` and `out` may be the same
 * array. */
SLIMPS_API slimps_status slimps_pushpull(slimps_store* store, slimps_key key, const float* gradient,
                                         float* out, size_t elements, int32_t priority);

/* Pushes some rows of the key's next round, as one push. `rows` may be unsorted, repeated (equal
 * rows add up) or empty. `values` holds one row after another, `elements` in all.
 * FAILED_PRECONDITION: gradient compression is on. */
SLIMPS_API slimps_status slimps_push_row_sparse(slimps_store* store, slimps_key key,
                                                const int64_t* rows, size_t num_rows,
                                                const float* values, size_t elements,
                                                int32_t priority);

/* Pulls the rows that `row_ids` names; they may be unsorted, repeated or none. Writes nothing on an
 * error. Otherwise writes
 *   rows      the row numbers, ascending and each once; room for `num_ids`
 *   values    the rows' values, one row after another; room for `elements` (num_ids times a row's
 *             elements are always enough)
 *   num_rows  how many rows there are
 * INVALID_ARGUMENT: a row out of range, or too little room. */
SLIMPS_API slimps_status slimps_pull_rows(slimps_store* store, slimps_key key,
                                          const int64_t* row_ids, size_t num_ids, int64_t* rows,
                                          float* values, size_t elements, size_t* num_rows,
                                          int32_t priority);

/* ---- the job --------------------------------------------------------------------------------- */

/* Waits until all workers have called it. */
SLIMPS_API slimps_status slimps_barrier(slimps_store* store);

/* A barrier that also replaces each of a few numbers by its sum over all workers. */
SLIMPS_API slimps_status slimps_all_reduce_sum(slimps_store* store, double* values, size_t count);

/* Bytes that slimps_broadcast_bytes makes equal. Since 1.10. */
typedef struct slimps_bytes {
  size_t struct_size; /* set by the caller: sizeof(slimps_bytes) */
  void* data;         /* on the host; NULL if there are none */
  size_t bytes;
  int32_t written; /* set to 1 if `data` was written, else to 0 */
} slimps_bytes;

/* Makes the bytes of all workers equal to those of rank 0. Only what differs on some worker
 * travels, as it lies in memory, and no server keeps it. Collective, with equal counts and sizes.
 * In a job of one process it does nothing. Since 1.10.
 * INVALID_ARGUMENT: rank 0's bytes have another size. ABORTED: so it is on another worker. */
SLIMPS_API slimps_status slimps_broadcast_bytes(slimps_store* store, slimps_bytes* buffers,
                                                size_t count);

/* Waits until the servers have everything that was pushed. */
SLIMPS_API slimps_status slimps_wait(slimps_store* store);

/* Waits as slimps_wait, then leaves: later rounds are complete without this worker, whose data is
 * used up. It can still pull. */
SLIMPS_API slimps_status slimps_leave(slimps_store* store);

#ifdef __cplusplus
} /* extern "C" */
#endif

#include <slimps/c_api_figures.h>
#include <slimps/c_api_gradients.h>

#endif /* SLIMPS_WORKER_CAPI_C_API_H_ */
