/* SPDX-License-Identifier: Apache-2.0 */
/* What becomes of gradients: optimizers, updaters, gradient compression, policies, and what a job
 * saves of these and resumes from.
 *
 *   check(slimps_optimizer_create("sgd", &sgd));
 *   check(slimps_optimizer_set_number(sgd, "learning_rate", 0.5));
 *   check(slimps_set_optimizer(store, sgd));
 *   slimps_optimizer_destroy(sgd);
 *   check(slimps_set_policy(store, "lgreco:codec=topk"));
 *
 * <slimps/c_api.h> includes this, and says what holds for every function. */
#ifndef SLIMPS_WORKER_CAPI_C_API_GRADIENTS_H_
#define SLIMPS_WORKER_CAPI_C_API_GRADIENTS_H_

#include <slimps/c_api.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct slimps_optimizer slimps_optimizer;

/* Creates an optimizer with its usual numbers. `kind`: "sgd", "adam", "adamw", "onebit_adam",
 * "none" or "test" (weight += rescale_grad * gradient). */
SLIMPS_API slimps_status slimps_optimizer_create(const char* kind, slimps_optimizer** optimizer);

/* Sets a number, as in ("learning_rate", 0.1). docs/c-api.md lists names and meanings. */
SLIMPS_API slimps_status slimps_optimizer_set_number(slimps_optimizer* optimizer, const char* name,
                                                     double value);

/* Sets an option by text, as in ("schedule", "cosine") or ("learning_rate", "0.1"). */
SLIMPS_API slimps_status slimps_optimizer_set(slimps_optimizer* optimizer, const char* name,
                                              const char* value);

/* Frees the optimizer. NULL does nothing. */
SLIMPS_API void slimps_optimizer_destroy(slimps_optimizer* optimizer);

/* Makes the servers (or a local store) step by the optimizer once per round, with the sum over
 * workers. Collective: every worker calls it alike, before or after init. Rank 0's optimizer holds,
 * from the next round on. It is copied. An optimizer of another kind than before begins with no
 * momentum. */
SLIMPS_API slimps_status slimps_set_optimizer(slimps_store* store,
                                              const slimps_optimizer* optimizer);

/* Sets what the optimizer uses for one key, from its next push on, in place of its own learning
 * rate, schedule included, and weight decay. Every worker sets the same; rank 0's numbers hold.
 * Stores without rounds step each push by its own. */
SLIMPS_API slimps_status slimps_set_hyper(slimps_store* store, slimps_key key, double learning_rate,
                                          double weight_decay);

#define SLIMPS_OWN_MOMENTUM (-1.0)

/* Same, and sets the momentum: SGD's, or beta1 of Adam and AdamW, from 0 and below 1; an optimizer
 * that was set without momentum ignores it. SLIMPS_OWN_MOMENTUM: the optimizer's. Since 1.1. */
SLIMPS_API slimps_status slimps_set_hyper_with_momentum(slimps_store* store, slimps_key key,
                                                        double learning_rate, double weight_decay,
                                                        double momentum);

/* Goes back to the optimizer's own numbers for one key. */
SLIMPS_API slimps_status slimps_reset_hyper(slimps_store* store, slimps_key key);

/* Changes `weight` in place by the gradients that were summed for one push. The push returns
 * whatever this returns other than SLIMPS_OK. `key` and the arrays are valid during the call. The
 * function must neither throw nor call the store. */
typedef slimps_status (*slimps_updater)(void* user_data, slimps_key key, const float* gradient,
                                        float* weight, size_t elements);

/* Sets a function that runs in an optimizer's place, on the pushing thread, once per push and key.
 * NULL: pushes replace the value again.
 * UNIMPLEMENTED: the store is not a local one. */
SLIMPS_API slimps_status slimps_set_updater(slimps_store* store, slimps_updater updater,
                                            void* user_data);

/* Compresses pushes by a codec, as in "1bit" or "topk:ratio=0.01"; "none" switches it off. Every
 * worker calls it alike, before the first push. */
SLIMPS_API slimps_status slimps_set_gradient_compression(slimps_store* store, const char* codec);

/* Same, written as in MXNet ({"type": "2bit", "threshold": "0.5"}: every key is compressed) or
 * BytePS ({"compressor_type": ...}). */
SLIMPS_API slimps_status slimps_set_gradient_compression_pairs(slimps_store* store,
                                                               const char* const* names,
                                                               const char* const* values,
                                                               size_t count);

/* Sets what decides which codec a push uses: "threshold" (the codec and the threshold of the
 * options), or a policy that adapts, as "lgreco:codec=topk". The option "policy" does the same.
 * Every worker calls it alike, before the first push. Since 1.2.
 * INVALID_ARGUMENT: no such policy or option, or one that does not go with the store's others.
 * UNIMPLEMENTED: a policy that adapts in a local store. */
SLIMPS_API slimps_status slimps_set_policy(slimps_store* store, const char* policy);

/* Gives what the optimizer keeps beside the weights, as a file's content. Collective. The caller
 * frees `content` by slimps_free.
 * FAILED_PRECONDITION: there is no optimizer. */
SLIMPS_API slimps_status slimps_save_optimizer_states(slimps_store* store, void** content,
                                                      size_t* bytes);

/* Restores what slimps_save_optimizer_states gave, before the next push. The job may have another
 * number of servers. Collective; rank 0's content holds.
 * DATA_LOSS: the content is damaged. */
SLIMPS_API slimps_status slimps_load_optimizer_states(slimps_store* store, const void* content,
                                                      size_t bytes);

/* What the servers' optimizer keeps of one key. Since 1.10.
 *   tensors   SGD's momentum; Adam's first and second moment; "onebit_adam" with a frozen variance
 *             has also what its answers left out. Each has `elements`, as the key
 *   count     how many tensors the optimizer has
 *   updates   how often they were updated (Adam's t)
 *   round     after which they are as they are; without rounds, some push */
typedef struct slimps_optimizer_state {
  size_t struct_size; /* sizeof(slimps_optimizer_state) */
  slimps_key key;
  float* tensors[3]; /* NULL: not wanted, or not there */
  size_t elements;
  uint64_t count;
  uint64_t updates;
  uint64_t round;
} slimps_optimizer_state;

/* Fills in tensors, count, updates and round of each state. Any worker calls it without the others;
 * it waits for the rounds that this worker has pushed, and no later round is complete meanwhile.
 * Stores without rounds give what the servers have by then. Tensors are on the host. Since 1.10.
 * FAILED_PRECONDITION: there is no optimizer; or this worker has left, and rounds went on.
 * UNIMPLEMENTED: a local store. */
SLIMPS_API slimps_status slimps_pull_optimizer_states(slimps_store* store,
                                                      slimps_optimizer_state* states, size_t count);

/* Replaces what the servers' optimizer keeps of these keys by rank 0's `tensors` and `updates`,
 * before the next push. Collective, with equal keys; of other ranks only keys are read. Each state
 * has `count` tensors, as many as the optimizer. Since 1.10.
 * FAILED_PRECONDITION: the optimizer has another number of tensors.
 * ABORTED: another worker could not do its part. UNIMPLEMENTED: a local store. */
SLIMPS_API slimps_status slimps_put_optimizer_states(slimps_store* store,
                                                     const slimps_optimizer_state* states,
                                                     size_t count);

/* Gives what gradient compression keeps on this worker between pushes, as a file's content. A job
 * resumes from this, the weights and the optimizer states. Each worker saves and loads its own. The
 * caller frees `content` by slimps_free. */
SLIMPS_API slimps_status slimps_save_residuals(slimps_store* store, void** content, size_t* bytes);

/* Restores what slimps_save_residuals gave to the worker of the same rank, before the next push.
 * The job must have the same keys.
 * DATA_LOSS: the content is damaged. */
SLIMPS_API slimps_status slimps_load_residuals(slimps_store* store, const void* content,
                                               size_t bytes);

/* Saves the whole job in `folder`, which every node sees: weights (weights.safetensors), optimizer,
 * each worker's residuals, thresholds and decisions, and each worker's own state, `bytes` bytes.
 * Collective, between two rounds. Returns when everything is copied; it is written while training
 * goes on. Since 1.6.
 * FAILED_PRECONDITION: there is a checkpoint already, or a node does not see the folder.
 * ABORTED: another worker could not do its part. */
SLIMPS_API slimps_status slimps_save(slimps_store* store, const char* folder, const void* own_state,
                                     size_t bytes);

/* Waits until the newest slimps_save is written. Since 1.6.
 * UNAVAILABLE: this worker's disk refused it. ABORTED: another node could not do its part. */
SLIMPS_API slimps_status slimps_await_saved(slimps_store* store);

/* Makes the job what it was when `folder` was saved: keys that were pushed n times go on with round
 * n + 1. Collective, before the first push, on the same keys. The number of servers may differ.
 * Gives this worker's own state, which the caller frees by slimps_free, and the rounds of the key
 * that it had pushed most often. Since 1.6. These errors change nothing; another, as when a server
 * is lost meanwhile, fails the store.
 * NOT_FOUND: there is no checkpoint. DATA_LOSS: a file is damaged.
 * INVALID_ARGUMENT: one of other keys, shapes, compression, kind of optimizer or number of workers.
 * FAILED_PRECONDITION: a push was made, or workers found different checkpoints. */
SLIMPS_API slimps_status slimps_load(slimps_store* store, const char* folder, void** own_state,
                                     size_t* bytes, uint64_t* rounds);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* SLIMPS_WORKER_CAPI_C_API_GRADIENTS_H_ */
