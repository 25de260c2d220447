/* SPDX-License-Identifier: Apache-2.0 */
/* Calls in the background, and calls that take a list of keys. They are for languages whose threads
 * should not wait inside a C function: the caller polls a file descriptor instead, so that signal
 * handlers and other threads run meanwhile. Since version 1.1.
 *
 *   slimps_call* call;
 *   slimps_store* background;
 *   slimps_status status;
 *   struct pollfd ended = {-1, POLLIN, 0};
 *
 *   check(slimps_call_create(&call));
 *   check(slimps_call_descriptor(call, &ended.fd));
 *   check(slimps_in_background(store, call, &background));
 *   status = slimps_barrier(background);          (starts)
 *   if (status == SLIMPS_UNDER_WAY) {
 *     poll(&ended, 1, -1);
 *     status = slimps_call_finish(call);          (the barrier's own status)
 *   }
 *   check(status);
 *
 * c_api.h says what holds for every function: statuses, threads, ownership, text, arrays. */
#ifndef SLIMPS_WORKER_CAPI_C_API_CALLS_H_
#define SLIMPS_WORKER_CAPI_C_API_CALLS_H_

#include <slimps/c_api.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- calls in the background ----------------------------------------------------------------- */

/* Returned by functions of a background handle only. It is no error: the call goes on. */
enum { SLIMPS_UNDER_WAY = -1 };

/* At most one call under way. One thread at a time may use it, beside the store that works for
 * it. */
typedef struct slimps_call slimps_call;

/* Creates a call; nothing is under way.
 * RESOURCE_EXHAUSTED: no memory, or no file descriptor. */
SLIMPS_API slimps_status slimps_call_create(slimps_call** call);

/* Gives a file descriptor that is readable from the end of a call that was under way until
 * slimps_call_finish. The call owns it: poll it, and neither read nor close it. */
SLIMPS_API slimps_status slimps_call_descriptor(const slimps_call* call, int* descriptor);

/* Waits until the call under way has ended and returns its status; slimps_last_error then has its
 * message. Afterwards nothing is under way.
 * FAILED_PRECONDITION: nothing is under way. */
SLIMPS_API slimps_status slimps_call_finish(slimps_call* call);

/* Asks a slimps_create_in_background that is under way to give up; it then ends with CANCELLED.
 * Other calls go on: slimps_abort ends those. */
SLIMPS_API slimps_status slimps_call_cancel(slimps_call* call);

/* Frees the call. A slimps_create_in_background that is under way is cancelled; its `store` is not
 * written after this has returned. Any other goes on, and its memory must stay until the store is
 * destroyed. NULL does nothing. */
SLIMPS_API void slimps_call_destroy(slimps_call* call);

/* Same as slimps_create, in the background. `store` is written before the call ends.
 * FAILED_PRECONDITION: `call` is under way. */
SLIMPS_API slimps_status slimps_create_in_background(const char* type,
                                                     const slimps_options* options,
                                                     slimps_call* call, slimps_store** store);

/* Gives another handle of the store, to be destroyed on its own. The store closes with its last
 * handle, after it has waited for the calls under way.
 *
 * A function of this handle that has to wait returns SLIMPS_UNDER_WAY, and `call` tells its end.
 * Until then everything that was passed to it must stay as it is, also what it writes. A function
 * that can do its work at once does it and returns its status as ever. Updaters run on the calling
 * thread. Functions of this handle that push, pull or may have to wait also return
 *   FAILED_PRECONDITION: `call` is under way. Nothing was started.
 * The others go on as ever, as slimps_abort, which ends the call under way. */
SLIMPS_API slimps_status slimps_in_background(slimps_store* store, slimps_call* call,
                                              slimps_store** background);

/* ---- lists of keys --------------------------------------------------------------------------- */

/* Where an array lies. Since 1.3; SLIMPS_LENT since 1.4, device -1 since 1.9, halves since 1.10. */
enum {
  SLIMPS_HOST = 0,
  SLIMPS_CUDA = 1,
  SLIMPS_LENT = 2,
  SLIMPS_CUDA_FLOAT16 = 3,
  SLIMPS_CUDA_BFLOAT16 = 4
};
typedef struct slimps_place {
  int32_t kind;   /* SLIMPS_HOST; SLIMPS_CUDA: memory of a GPU; SLIMPS_LENT: gradients on the host
                     that need not be copied; SLIMPS_CUDA_FLOAT16, SLIMPS_CUDA_BFLOAT16: a gradient
                     of slimps_exchange_gradient_at on a GPU, of such halves, to which the pointer
                     is cast */
  int32_t device; /* the GPU's number in this process; -1: that of the GPU whose memory the array
                     is, found by its address; 0 on the host */
  void* stream;   /* a stream of this GPU (cudaStream_t, CUstream; NULL: the legacy default stream;
                     not CU_STREAM_PER_THREAD): its work makes the values or uses them */
} slimps_place;

/* Copies an array from and to the host or a GPU, as the places say (NULL: the host). It comes after
 * the work that their streams have been given, waits for the copy, which nothing interrupts, and
 * needs no store. The arrays must not overlap. Since 1.5.
 * FAILED_PRECONDITION, INVALID_ARGUMENT: as of slimps_item; or a place is SLIMPS_LENT.
 * RESOURCE_EXHAUSTED: no memory on the host for what passes through it. */
SLIMPS_API slimps_status slimps_copy(const float* from, const slimps_place* from_place, float* to,
                                     const slimps_place* to_place, size_t elements);

/* One key of a list, with its arrays, each of `elements`.
 *
 * An array of a GPU is read after the work that its stream has been given, and one on loan while it
 * is compressed. The call waits for neither: the array must stay as it is until a pull of its key,
 * or slimps_wait, has ended without an error; after an error, until the store is destroyed. A value
 * that is not finite is then found later; it fails the store. What is
 * pulled into an array of a GPU is seen by the work that its stream is given after the call. The
 * CUDA driver (libcuda.so.1) is opened by the first call that names a GPU. Stores of this process
 * alone wait for the streams.
 * FAILED_PRECONDITION: there is no driver or no such GPU, or the stream is being captured into a
 * CUDA graph.
 * INVALID_ARGUMENT: the array is not that GPU's memory, or the stream is another GPU's. */
typedef struct slimps_item {
  size_t struct_size; /* sizeof(slimps_item); the same in all items of an array */
  slimps_key key;
  const float* const* gradients; /* to push: one array per device, which are summed */
  size_t devices;                /* number of arrays in `gradients` */
  float* out;                    /* to pull into */
  size_t elements;
  const slimps_place* places;    /* of `gradients`; NULL: on the host. Since 1.3 */
  const slimps_place* out_place; /* NULL: on the host. Since 1.3 */
} slimps_item;

/* slimps_push_sum for each item, in order. After an item that is refused, the items behind it are
 * not pushed. */
SLIMPS_API slimps_status slimps_push_list(slimps_store* store, const slimps_item* items,
                                          size_t count, int32_t priority);

/* Pulls all items at once. Returns the error of the first item that has one, when all pulls have
 * ended. No two `out` may overlap. */
SLIMPS_API slimps_status slimps_pull_list(slimps_store* store, const slimps_item* items,
                                          size_t count, int32_t priority);

/* Pushes each item and pulls it as soon as it is pushed. If an item's `out` overlaps another item's
 * arrays, all pushes come first; if one of the arrays is on a GPU or on loan, they must not
 * overlap. After an item whose push is refused, the items behind it are
 * neither pushed nor pulled. */
SLIMPS_API slimps_status slimps_pushpull_list(slimps_store* store, const slimps_item* items,
                                              size_t count, int32_t priority);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* SLIMPS_WORKER_CAPI_C_API_CALLS_H_ */
