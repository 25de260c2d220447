/* The C API of slimps: the KVStore for other languages and frameworks. C99; C++ may include it as it is. MXNet's names and
 * meanings.
 *
 * A whole program, a store of this process alone ("dist_sync" needs a job, see slimps_options_from_environment):
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
 * Status: functions that can fail return one; what they write through pointers counts only after SLIMPS_OK. None throws or
 * ends the process. Beside what is said of each, all may return INVALID_ARGUMENT (a null pointer, a value out of its range,
 * text that is not UTF-8; the message names the argument, what was expected and what came) and RESOURCE_EXHAUSTED (no
 * memory); those of a store also the first error of its work in the background, from then on.
 * Threads: any thread may use a store, several at once. An options or optimizer object is for one thread at a time. No call
 * may run beside or after the destroy of what it is given.
 * Ownership: what is passed in is read or copied before the call returns, with the exceptions that are said. Objects
 * belong to the caller, from create to destroy.
 * Text: UTF-8, ended by NUL. Arrays: packed, in the machine's byte order; a null pointer goes with 0 elements.
 * Time: calls that wait do so for at most option timeout_s, then DEADLINE_EXCEEDED names what was missing.
 * Stability: within one SLIMPS_C_API_MAJOR names, numbers, layouts and meanings stay; see docs/c-api.md. */
#ifndef SLIMPS_WORKER_C_API_H_
#define SLIMPS_WORKER_C_API_H_

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

/* The major number is the shared library's (libslimps.so.1) and changes when programs must be changed; the minor one grows
 * with what is added. */
#define SLIMPS_C_API_MAJOR 1
#define SLIMPS_C_API_MINOR 0
#define SLIMPS_C_API_VERSION (SLIMPS_C_API_MAJOR * 1000 + SLIMPS_C_API_MINOR)

/* The library's SLIMPS_C_API_VERSION: at least the header's that a program was built with. */
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
  SLIMPS_FAILED_PRECONDITION = 9, /* not now: closed, or too late */
  SLIMPS_ABORTED = 10,            /* this worker has ended the job */
  SLIMPS_OUT_OF_RANGE = 11,
  SLIMPS_UNIMPLEMENTED = 12, /* not by this type of store */
  SLIMPS_INTERNAL = 13,
  SLIMPS_UNAVAILABLE = 14, /* another node is gone, or has ended the job */
  SLIMPS_DATA_LOSS = 15,
  SLIMPS_UNAUTHENTICATED = 16
};

/* "INVALID_ARGUMENT"; "UNKNOWN" for a number that is none. The text is the library's. */
SLIMPS_API const char* slimps_status_name(slimps_status status);

/* What this thread's last call that failed had to say, one line that begins with the function's name; "" before any.
 * The text is the library's, and stays until this thread's next call that fails. */
SLIMPS_API const char* slimps_last_error(void);

/* Frees memory that the library has allocated for the caller; NULL does nothing. */
SLIMPS_API void slimps_free(void* memory);

/* ---- keys and tensors ------------------------------------------------------------------------ */

enum { SLIMPS_KEY_INT = 1, SLIMPS_KEY_TEXT = 2 };

/* A tensor's name, an int or a text; all keys of one store are of one kind. */
typedef struct slimps_key {
  int32_t kind;     /* SLIMPS_KEY_... */
  int32_t reserved; /* 0 */
  int64_t number;   /* of SLIMPS_KEY_INT */
  const char* text; /* of SLIMPS_KEY_TEXT; at most 1022 bytes */
} slimps_key;

/* The key 5, say. */
static inline slimps_key slimps_int_key(int64_t number) {
  slimps_key key = {SLIMPS_KEY_INT, 0, 0, NULL};
  key.number = number;
  return key;
}

/* The key "conv1.weight", say; `text` must live as long as the key is used. */
static inline slimps_key slimps_text_key(const char* text) {
  slimps_key key = {SLIMPS_KEY_TEXT, 0, 0, NULL};
  key.text = text;
  return key;
}

/* What pulls of a tensor carry; the servers keep float32, and arrays here are always float. */
enum { SLIMPS_FLOAT32 = 0, SLIMPS_FLOAT16 = 1, SLIMPS_BFLOAT16 = 2 };

/* What layer a tensor belongs to; codecs as adacomp treat them apart. SLIMPS_LAYER_BY_SHAPE, what SLIMPS_TENSOR says: (out, in)
 * is dense, (out, in, kernel ...) a convolution, anything else is neither. */
enum {
  SLIMPS_LAYER_BY_SHAPE = 0,
  SLIMPS_LAYER_CONVOLUTION = 1,
  SLIMPS_LAYER_DENSE = 2,
  SLIMPS_LAYER_RECURRENT = 3,
  SLIMPS_LAYER_EMBEDDING = 4,
  SLIMPS_LAYER_NORMALISATION = 5
};

/* A tensor to be initialised. SLIMPS_TENSOR(key, shape, dimensions, values) fills it in as most have it. */
typedef struct slimps_tensor {
  size_t struct_size; /* sizeof(slimps_tensor); of several tensors in an array each has the same */
  slimps_key key;
  const int64_t* shape; /* extents, each at least 0; the first counts rows */
  size_t dimensions;    /* 0: one element */
  const float* values;  /* rank 0's count; a distributed store takes NULL from the others */
  int32_t dtype;        /* SLIMPS_FLOAT32, ... */
  int32_t layer;        /* SLIMPS_LAYER_... */
} slimps_tensor;

#define SLIMPS_TENSOR(key, shape, dimensions, values)                              \
  {                                                                                \
    sizeof(slimps_tensor), (key), (shape), (dimensions), (values), SLIMPS_FLOAT32, \
        SLIMPS_LAYER_BY_SHAPE                                                      \
  }

/* ---- options --------------------------------------------------------------------------------- */

typedef struct slimps_options slimps_options;

/* Makes options, each as its default has it. */
SLIMPS_API slimps_status slimps_options_create(slimps_options** options);

/* Sets one by its name, as ("compression", "1bit") or ("threshold", "4096"): the names of slimps_worker's flags and of
 * Python's create, listed in docs/c-api.md. INVALID_ARGUMENT: no such option (the message lists them), or not such a value. */
SLIMPS_API slimps_status slimps_options_set(slimps_options* options, const char* name,
                                            const char* value);

/* Takes this worker's place in the job from DMLC_PS_ROOT_URI, DMLC_PS_ROOT_PORT, DMLC_NUM_WORKER, DMLC_NUM_SERVER and
 * DMLC_WORKER_ID (or torchrun's RANK and WORLD_SIZE), as `slimps launch` sets them. FAILED_PRECONDITION: one is missing. */
SLIMPS_API slimps_status slimps_options_from_environment(slimps_options* options);

/* Frees them; NULL does nothing. */
SLIMPS_API void slimps_options_destroy(slimps_options* options);

/* ---- the store ------------------------------------------------------------------------------- */

typedef struct slimps_store slimps_store;

/* Joins the job and waits until all its nodes are there. `type`: "dist_sync", "dist_device_sync", "dist_async", "dist_ssp",
 * or, in this process alone, "local" or "device". `options` are copied; NULL: all defaults. */
SLIMPS_API slimps_status slimps_create(const char* type, const slimps_options* options,
                                       slimps_store** store);

/* Waits until what was pushed has arrived and says goodbye; a second time it does nothing. */
SLIMPS_API slimps_status slimps_close(slimps_store* store);

/* Closes the store where that was not done, waits for callbacks, and frees it; NULL does nothing. */
SLIMPS_API void slimps_destroy(slimps_store* store);

/* This worker cannot go on: the job ends. From now on its calls fail with ABORTED, the others' with UNAVAILABLE, and `why`. */
SLIMPS_API slimps_status slimps_abort(slimps_store* store, const char* why);

/* This worker's number, from 0. */
SLIMPS_API slimps_status slimps_rank(const slimps_store* store, uint32_t* rank);

/* How many workers the job has. */
SLIMPS_API slimps_status slimps_num_workers(const slimps_store* store, uint32_t* num_workers);

/* The type as it was asked for. The text is the store's. */
SLIMPS_API slimps_status slimps_type(const slimps_store* store, const char** type);

/* Whether (1 or 0) the store can do something: "optimizer", that it can step by one. */
SLIMPS_API slimps_status slimps_is_capable(const slimps_store* store, const char* capability,
                                           int32_t* capable);

/* ---- push and pull --------------------------------------------------------------------------- */

/* Makes `count` keys. Collective: all workers call it alike; returns when they can be pulled. ALREADY_EXISTS: a second time. */
SLIMPS_API slimps_status slimps_init(slimps_store* store, const slimps_tensor* tensors,
                                     size_t count);

/* Initialises one key and pulls it into `out`, of `elements`: rank 0's values everywhere. Collective. */
SLIMPS_API slimps_status slimps_broadcast(slimps_store* store, const slimps_tensor* tensor,
                                          float* out, size_t elements);

/* Gives this worker's gradient to the key's next round and returns when the array may be reused. Without an optimizer the
 * sum over workers replaces the value. A higher `priority` goes first. INVALID_ARGUMENT: NaN, infinity or another number of
 * elements; nothing was sent, the round is still to be pushed. */
SLIMPS_API slimps_status slimps_push(slimps_store* store, slimps_key key, const float* gradient,
                                     size_t elements, int32_t priority);

/* As slimps_push, of the sum of `devices` arrays of `elements` each. */
SLIMPS_API slimps_status slimps_push_sum(slimps_store* store, slimps_key key,
                                         const float* const* gradients, size_t devices,
                                         size_t elements, int32_t priority);

/* This worker has nothing for the key's next round, which need not wait for it. */
SLIMPS_API slimps_status slimps_push_nothing(slimps_store* store, slimps_key key);

/* Waits for all workers' pushes of the rounds that this worker has pushed, and writes the value into `out`. */
SLIMPS_API slimps_status slimps_pull(slimps_store* store, slimps_key key, float* out,
                                     size_t elements, int32_t priority);

/* What slimps_pull_async calls. `message` lives as long as the call; "" with SLIMPS_OK. It must neither throw nor call the
 * store: other pulls wait for it. */
typedef void (*slimps_done)(void* user_data, slimps_status status, const char* message);

/* As slimps_pull, without waiting. `done` is called once, on a thread of the store, perhaps before this returns; until then
 * `out` is the store's. If this call fails, `done` is not called. Destroying the store ends pulls under way, with an error. */
SLIMPS_API slimps_status slimps_pull_async(slimps_store* store, slimps_key key, float* out,
                                           size_t elements, int32_t priority, slimps_done done,
                                           void* user_data);

/* slimps_push and slimps_pull in one, of `elements` each; `gradient` and `out` may be the same array. */
SLIMPS_API slimps_status slimps_pushpull(slimps_store* store, slimps_key key, const float* gradient,
                                         float* out, size_t elements, int32_t priority);

/* Pushes some rows of the key's next round, as one push: `rows` unsorted, repeated (they add up) or none; `values` has one
 * row after another, `elements` in all. FAILED_PRECONDITION: gradient compression is on. */
SLIMPS_API slimps_status slimps_push_row_sparse(slimps_store* store, slimps_key key,
                                                const int64_t* rows, size_t num_rows,
                                                const float* values, size_t elements,
                                                int32_t priority);

/* Pulls the rows that `row_ids` name, unsorted, repeated or none, into the caller's memory: their numbers, rising and each
 * once, into `rows`, which has room for `num_ids`; their values, one row after another, into `values`, which has room for
 * `elements` (num_ids times a row's are always enough); how many there are into `num_rows`. Nothing is written if it fails.
 * INVALID_ARGUMENT: a row out of range, too little room. */
SLIMPS_API slimps_status slimps_pull_rows(slimps_store* store, slimps_key key,
                                          const int64_t* row_ids, size_t num_ids, int64_t* rows,
                                          float* values, size_t elements, size_t* num_rows,
                                          int32_t priority);

/* ---- what becomes of gradients --------------------------------------------------------------- */

typedef struct slimps_optimizer slimps_optimizer;

/* An optimizer with its usual numbers. `kind`: "sgd", "adam", "adamw", "test" (weight += rescale_grad * gradient) or "none". */
SLIMPS_API slimps_status slimps_optimizer_create(const char* kind, slimps_optimizer** optimizer);

/* Sets a number, as ("learning_rate", 0.1); names and meanings in docs/c-api.md. */
SLIMPS_API slimps_status slimps_optimizer_set_number(slimps_optimizer* optimizer, const char* name,
                                                     double value);

/* The same by text, as ("schedule", "cosine") or ("learning_rate", "0.1"). */
SLIMPS_API slimps_status slimps_optimizer_set(slimps_optimizer* optimizer, const char* name,
                                              const char* value);

/* Frees it; NULL does nothing. */
SLIMPS_API void slimps_optimizer_destroy(slimps_optimizer* optimizer);

/* The servers step by it, once per round, with the sum over workers. Collective: every worker calls it alike, before or
 * after init; rank 0's counts, from the next round on; another kind than before begins with no momentum. Copied. */
SLIMPS_API slimps_status slimps_set_optimizer(slimps_store* store,
                                              const slimps_optimizer* optimizer);

/* Of one key, from its next push on: what the optimizer steps by in place of its learning rate, schedule included, and weight
 * decay. On every worker alike, rank 0's counts; stores without rounds step each push by its own. */
SLIMPS_API slimps_status slimps_set_hyper(slimps_store* store, slimps_key key, double learning_rate,
                                          double weight_decay);

/* The optimizer's own again. */
SLIMPS_API slimps_status slimps_reset_hyper(slimps_store* store, slimps_key key);

/* Changes `weight` in place by the gradients that were summed for one push. Anything but SLIMPS_OK is what the push returns.
 * `key` and the arrays live as long as the call. It must neither throw nor call the store. */
typedef slimps_status (*slimps_updater)(void* user_data, slimps_key key, const float* gradient,
                                        float* weight, size_t elements);

/* Local stores: in an optimizer's place, on the pushing thread, once per push and key. NULL: pushes replace the value again.
 * UNIMPLEMENTED: a distributed store. */
SLIMPS_API slimps_status slimps_set_updater(slimps_store* store, slimps_updater updater,
                                            void* user_data);

/* Compresses pushes by a codec, as "1bit" or "topk:ratio=0.01"; "none". Every worker alike, before the first push. */
SLIMPS_API slimps_status slimps_set_gradient_compression(slimps_store* store, const char* codec);

/* The same as MXNet ({"type": "2bit", "threshold": "0.5"}: every key) or BytePS ({"compressor_type": ...}) write it. */
SLIMPS_API slimps_status slimps_set_gradient_compression_pairs(slimps_store* store,
                                                               const char* const* names,
                                                               const char* const* values,
                                                               size_t count);

/* What the optimizer keeps beside the weights, as a file's content. Collective. The caller frees `content` by slimps_free.
 * FAILED_PRECONDITION: there is no optimizer. */
SLIMPS_API slimps_status slimps_save_optimizer_states(slimps_store* store, void** content,
                                                      size_t* bytes);

/* Puts it back before the next push, in a job of any number of servers. Collective; rank 0's counts. DATA_LOSS: damaged. */
SLIMPS_API slimps_status slimps_load_optimizer_states(slimps_store* store, const void* content,
                                                      size_t bytes);

/* What gradient compression keeps on this worker between pushes, as a file's content: with the weights and the optimizer
 * states, all that a job goes on from. Each worker saves and loads its own. The caller frees `content` by slimps_free. */
SLIMPS_API slimps_status slimps_save_residuals(slimps_store* store, void** content, size_t* bytes);

/* Puts those of the same rank back, into a job with the same keys, before the next push. DATA_LOSS: damaged. */
SLIMPS_API slimps_status slimps_load_residuals(slimps_store* store, const void* content,
                                               size_t bytes);

/* ---- the job --------------------------------------------------------------------------------- */

/* Waits until all workers have come here. */
SLIMPS_API slimps_status slimps_barrier(slimps_store* store);

/* A barrier that also sums a few numbers over all workers, each in its place. */
SLIMPS_API slimps_status slimps_all_reduce_sum(slimps_store* store, double* values, size_t count);

/* Waits until the servers have everything that was pushed. */
SLIMPS_API slimps_status slimps_wait(slimps_store* store);

/* Rounds from the next on are complete without this worker, whose data is used up; it can still pull. */
SLIMPS_API slimps_status slimps_leave(slimps_store* store);

/* Sums of this worker since create, without initialisation. */
typedef struct slimps_totals {
  size_t struct_size;       /* set by the caller: sizeof(slimps_totals) */
  uint64_t elements_pushed; /* of the gradients */
  uint64_t elements_sent;   /* that payloads carried */
  uint64_t bytes_pushed;    /* of payloads, acknowledged */
  uint64_t bytes_pulled;
  uint64_t bytes_shared;   /* of both, through shared memory */
  uint64_t changes_pulled; /* partitions that came as a change of the weights */
  double copy_s;           /* seconds of all threads together */
  double encode_s;
  double send_s; /* first byte to acknowledgement */
  double wait_s; /* of callers */
  double decode_s;
  double
      compression_gain; /* |sent|^2 / |gradient + residual|^2 of compressed pushes; 1 without any */
  double compression_error; /* |not sent|^2 / |gradient + residual|^2; 0 without any */
} slimps_totals;

/* Fills `totals` up to its struct_size. */
SLIMPS_API slimps_status slimps_get_totals(const slimps_store* store, slimps_totals* totals);

#define SLIMPS_NOT_COMPRESSED UINT64_MAX

/* What threshold "auto" has come to, the same on all workers. */
typedef struct slimps_decision {
  size_t struct_size;  /* set by the caller: sizeof(slimps_decision) */
  uint64_t is_decided; /* 0: nothing is decided yet, or nothing is measured */
  uint64_t from_round; /* the decision holds from here on */
  uint64_t
      threshold_bytes; /* fp32 bytes from which pushes are compressed; SLIMPS_NOT_COMPRESSED: none is */
  uint64_t pull_threshold_bytes; /* the same of pulls */
} slimps_decision;

/* Fills `decision` up to its struct_size. */
SLIMPS_API slimps_status slimps_get_decision(const slimps_store* store, slimps_decision* decision);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* SLIMPS_WORKER_C_API_H_ */
