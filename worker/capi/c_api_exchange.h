/* SPDX-License-Identifier: Apache-2.0 */
/* The exchange of a model's gradients for weights, one round per training step, with or without
 * SlimGC's backup model. Since version 1.1.
 *
 *   slimps_exchange_settings settings = SLIMPS_EXCHANGE_SETTINGS;
 *   slimps_exchange* exchange;
 *
 *   settings.backup_model = 1;
 *   check(slimps_exchange_create(store, parameters, count, sgd, &settings, &exchange));
 *   for (;;) {
 *     check(slimps_exchange_begin_step(exchange));   (the parameters hold this step's weights)
 *     ... forward and backward, and for each gradient as it is ready:
 *     check(slimps_exchange_gradient(exchange, index, gradient, elements));
 *     check(slimps_exchange_end_step(exchange));
 *   }
 *   check(slimps_exchange_drain(exchange));          (the parameters hold the newest weights)
 *   slimps_exchange_destroy(exchange);
 *
 * An exchange that was created with a background handle (c_api_calls.h) waits in the background,
 * too, by the same slimps_call; its other functions then return FAILED_PRECONDITION while that is
 * under way. One thread at a time may use an exchange. c_api.h says what else holds for every
 * function. */
#ifndef SLIMPS_WORKER_CAPI_C_API_EXCHANGE_H_
#define SLIMPS_WORKER_CAPI_C_API_EXCHANGE_H_

#include <slimps/c_api.h>
#include <slimps/c_api_calls.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A model's parameter. */
typedef struct slimps_parameter {
  size_t struct_size;        /* sizeof(slimps_parameter); the same in all parameters of an array */
  const char* name;          /* the key, as "conv1.weight" */
  const int64_t* shape;      /* extents, each at least 1 */
  size_t dimensions;         /* 0: one element */
  float* values;             /* the model's own memory; it stays until the store is destroyed */
  int32_t layer;             /* SLIMPS_LAYER_... */
  int32_t spare;             /* 1: `values` is a second memory on the host, which nobody reads
                                during a step (slimps_exchange_set_memory). Since 1.10 */
  const slimps_place* place; /* of `values`, which work of its stream reads; NULL: as of any array.
                                Since 1.7 */
} slimps_parameter;

typedef struct slimps_exchange_settings {
  size_t struct_size;      /* sizeof(slimps_exchange_settings) */
  int32_t backup_model;    /* 1: the next step begins with this worker's own step, while the round
                              is under way; 0: a step waits for its round */
  int32_t skip_non_finite; /* 1: a gradient with NaN or infinity contributes nothing; 0: it ends the
                              step with an error */
  double local_lr;         /* learning rate of the backup model's step; 0: the optimizer's, and half
                              of it for SGD without momentum beside other workers */
  double timeout_s;        /* for one wait for weights; 0: a little longer than slimps_timeout */
  double clip_norm;        /* slimps_exchange_set_clip_norm; 0: none. Since 1.10 */
  int32_t overlap_forward; /* 1: a step's end does not wait for weights, and
                              slimps_exchange_await_weights does. Since 1.10 */
  int32_t reserved;        /* 0 */
} slimps_exchange_settings;

#define SLIMPS_EXCHANGE_SETTINGS \
  { sizeof(slimps_exchange_settings), 0, 0, 0, 60, 0, 0, 0 }

typedef struct slimps_exchange slimps_exchange;

/* Initialises the parameters, sets the servers' optimizer, gives every worker rank 0's values, and
 * starts the exchange. Collective. In the background, `exchange` is written before the call ends.
 * The memory of the parameters' values stays until the store is destroyed, also after an error.
 * INVALID_ARGUMENT: settings that do not go together. */
SLIMPS_API slimps_status slimps_exchange_create(slimps_store* store,
                                                const slimps_parameter* parameters, size_t count,
                                                const slimps_optimizer* optimizer,
                                                const slimps_exchange_settings* settings,
                                                slimps_exchange** exchange);

/* Begins a step. Then the parameters hold the step's weights; those on a GPU, for the work that
 * their stream is given from then on. */
SLIMPS_API slimps_status slimps_exchange_begin_step(slimps_exchange* exchange);

/* Pushes the gradient of parameter `index`; waits if there is no room for it. The array must stay
 * as it is until the step has ended, or slimps_exchange_is_read says that it was read. Errors of
 * the push are the step's.
 * OUT_OF_RANGE: no such parameter. */
SLIMPS_API slimps_status slimps_exchange_gradient(slimps_exchange* exchange, size_t index,
                                                  const float* gradient, size_t elements);

/* Same, of an array that lies where `place` says (slimps_item has the terms): it is read after the
 * work that its stream has been given, and this does not wait for that. NULL: on the host. One of
 * halves on a GPU travels to the host as it is, and becomes fp32 there. Since 1.4. */
SLIMPS_API slimps_status slimps_exchange_gradient_at(slimps_exchange* exchange, size_t index,
                                                     const float* gradient, size_t elements,
                                                     const slimps_place* place);

/* Gives 1 if this step no longer reads the gradient of parameter `index`, which is on a GPU or on
 * loan: its array need not stay. 0 says nothing: it is read, or the exchange does not know. Since
 * 1.7.
 * OUT_OF_RANGE: no such parameter. */
SLIMPS_API slimps_status slimps_exchange_is_read(const slimps_exchange* exchange, size_t index,
                                                 int32_t* is_read);

/* Pushes a gradient of parameter `index` that is zero but for some rows, as slimps_push_row_sparse
 * takes them: a row is what one index of the first extent names, and `values` holds one row after
 * another, `elements` in all. The servers step these rows alone, unless a worker pushes a whole
 * gradient in the same round. Both arrays must stay as they are until the step has ended. Errors of
 * the push are the step's.
 * OUT_OF_RANGE: no such parameter.
 * UNIMPLEMENTED: the exchange has the backup model. Nothing was pushed. */
SLIMPS_API slimps_status slimps_exchange_rows(slimps_exchange* exchange, size_t index,
                                              const int64_t* rows, size_t num_rows,
                                              const float* values, size_t elements);

/* Ends the step and returns its first error. A parameter without a gradient contributes nothing. */
SLIMPS_API slimps_status slimps_exchange_end_step(slimps_exchange* exchange);

/* With overlap_forward, waits until parameter `index` holds the step's weights, and returns the
 * first error of the step before. Otherwise they are there. Since 1.10.
 * OUT_OF_RANGE: no such parameter. */
SLIMPS_API slimps_status slimps_exchange_await_weights(slimps_exchange* exchange, size_t index);

/* Writes the weights of parameter indices[i] to values[i] from now on, for `count` parameters with
 * spare memory. A model of two memories by turns spends no time at a step's end on copying weights:
 * they are written to one during backward, while the model reads the other. Then the model computes
 * on the one, and the exchange gets the other. To be called after slimps_exchange_begin_step (with
 * overlap_forward, slimps_exchange_await_weights) and before the parameter's gradient. The memory
 * stays until this sets another, or the exchange is destroyed. With the backup model the former
 * memory also stays, as it is, until the next slimps_exchange_end_step. Since 1.10.
 * OUT_OF_RANGE: no such parameter.
 * INVALID_ARGUMENT: a parameter without spare memory.
 * FAILED_PRECONDITION: the parameter's gradient of this step has gone out. */
SLIMPS_API slimps_status slimps_exchange_set_memory(slimps_exchange* exchange,
                                                    const size_t* indices, float* const* values,
                                                    size_t count);

/* Sets one parameter's learning rate, weight decay and momentum, as slimps_set_hyper_with_momentum
 * takes them, from its next gradient on, at the servers and in the local step. Every worker makes
 * the same call.
 * OUT_OF_RANGE: no such parameter. */
SLIMPS_API slimps_status slimps_exchange_set_hyper(slimps_exchange* exchange, size_t index,
                                                   double learning_rate, double weight_decay,
                                                   double momentum);

/* Bounds the norm of the workers' mean gradient, of all parameters together, from the next step on,
 * as torch's clip_grad_norm_ does: the servers multiply it by clip_norm / (norm + 1e-6), at most 1,
 * and skip a step whose norm is not finite. 0: no bound. Every worker makes the same call, before
 * the first gradient of a step. Since 1.10.
 * INVALID_ARGUMENT: negative or not finite, or a store or an optimizer that cannot clip. */
SLIMPS_API slimps_status slimps_exchange_set_clip_norm(slimps_exchange* exchange, double clip_norm);

/* What became of clipped steps; with the backup model or overlap_forward up to the step before the
 * newest. Since 1.10. */
typedef struct slimps_clipping {
  size_t struct_size;     /* set by the caller: sizeof(slimps_clipping) */
  double norm;            /* of the newest mean gradient, before clipping; may be infinite or NaN */
  double scale;           /* what it was multiplied by; 0: the step was skipped */
  uint64_t skipped_steps; /* whose norm was not finite */
} slimps_clipping;

/* Fills `clipping` up to its struct_size. Since 1.10. */
SLIMPS_API slimps_status slimps_exchange_get_clipping(const slimps_exchange* exchange,
                                                      slimps_clipping* clipping);

/* Waits for the weights after the newest finished step, which the parameters then hold until the
 * next slimps_exchange_begin_step. It writes them only with the backup model. */
SLIMPS_API slimps_status slimps_exchange_drain(slimps_exchange* exchange);

/* Seconds since slimps_exchange_create. */
typedef struct slimps_exchange_times {
  size_t struct_size;    /* set by the caller: sizeof(slimps_exchange_times) */
  double wait_s;         /* the training thread waited for weights */
  double local_update_s; /* the backup model's local steps */
  double overlap_s;      /* communication that went on while the training thread did not wait */
} slimps_exchange_times;

/* Fills `times` up to its struct_size. */
SLIMPS_API slimps_status slimps_exchange_get_times(const slimps_exchange* exchange,
                                                   slimps_exchange_times* times);

/* Frees the exchange. It counts as a handle of its store: the store closes with the last of them.
 * NULL does nothing. */
SLIMPS_API void slimps_exchange_destroy(slimps_exchange* exchange);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* SLIMPS_WORKER_CAPI_C_API_EXCHANGE_H_ */
