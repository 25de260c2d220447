// SPDX-License-Identifier: Apache-2.0
/* Workers fit a linear model together through the parameter servers, in C99.
 *
 *   bazel build //examples:kvstore_c
 *   tools/slimps launch --workers 2 --servers 2 -- \
 *       bazel-bin/examples/kvstore_c compression=1bit threshold=0
 *
 * Arguments are options of the store. Each worker makes samples of its own. The servers sum the
 * gradients and make the step. At the end worker 0 prints the loss, samples per second, bytes, and
 * the compression ratio of the pushes. */
#define _POSIX_C_SOURCE 200809L /* clock_gettime */
#include <slimps/c_api.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { FEATURES = 512, BATCH = 64, ROUNDS = 60 };

static slimps_store* store = NULL;

/* Ends the whole job if a call failed; otherwise the other workers would wait for this one. */
static void check(slimps_status status) {
  char why[512];
  if (status == SLIMPS_OK) return;
  snprintf(why, sizeof(why), "%s: %s", slimps_status_name(status), slimps_last_error());
  fprintf(stderr, "kvstore_c: %s\n", why);
  if (store != NULL) slimps_abort(store, why);
  slimps_destroy(store);
  exit(1);
}

/* Returns a number from -1 to 1 (xorshift: the same on every machine). */
static float random_number(uint32_t* state) {
  *state ^= *state << 13;
  *state ^= *state >> 17;
  *state ^= *state << 5;
  return (float)(*state >> 8) / 8388608.0f - 1.0f;
}

static double now_s(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* Sets an option from "name=value". */
static void set_option(slimps_options* options, const char* argument) {
  char name[64] = "";
  const char* equals = strchr(argument, '=');
  const size_t length = equals == NULL ? 0 : (size_t)(equals - argument);
  if (equals == NULL || length >= sizeof(name)) {
    fprintf(stderr, "kvstore_c: expected OPTION=VALUE, got \"%s\"\n", argument);
    exit(2);
  }
  memcpy(name, argument, length);
  check(slimps_options_set(options, name, equals + 1));
}

/* Returns a batch's mean squared error. `gradient` gets the gradient, summed over the batch. */
static double gradient_of_batch(const float* weights, uint32_t* random, float* gradient) {
  static float sample[FEATURES];
  double squares = 0;
  memset(gradient, 0, FEATURES * sizeof(float));
  for (int b = 0; b < BATCH; ++b) {
    float error = 0;
    for (int k = 0; k < FEATURES; ++k) {
      const float truth = k % 2 == 0 ? 1.0f : -0.5f;
      sample[k] = random_number(random);
      error += (weights[k] - truth) * sample[k];
    }
    for (int k = 0; k < FEATURES; ++k) gradient[k] += error * sample[k];
    squares += (double)error * error;
  }
  return squares / BATCH;
}

static void set_sgd(uint32_t num_workers) {
  slimps_optimizer* sgd = NULL;
  check(slimps_optimizer_create("sgd", &sgd));
  check(slimps_optimizer_set_number(sgd, "learning_rate", 0.3));
  check(slimps_optimizer_set_number(sgd, "rescale_grad", 1.0 / (BATCH * num_workers)));
  check(slimps_set_optimizer(store, sgd));
  slimps_optimizer_destroy(sgd);
}

static void report(uint32_t rank, uint32_t num_workers, double loss, double seconds) {
  slimps_totals totals;
  totals.struct_size = sizeof(totals);
  check(slimps_get_totals(store, &totals));
  if (rank != 0) return;
  printf("loss %.4f, %.0f samples/s, pushed %llu bytes (ratio %.1f), pulled %llu bytes\n", loss,
         num_workers * (double)BATCH * ROUNDS / seconds, (unsigned long long)totals.bytes_pushed,
         4.0 * (double)totals.elements_pushed / (double)totals.bytes_pushed,
         (unsigned long long)totals.bytes_pulled);
}

int main(int argc, char** argv) {
  static float weights[FEATURES], gradient[FEATURES];
  const int64_t shape[] = {FEATURES};
  const slimps_key key = slimps_text_key("weights");
  const slimps_tensor tensor = SLIMPS_TENSOR(key, shape, 1, weights);
  slimps_options* options = NULL;
  uint32_t rank = 0, num_workers = 0, random;
  double loss = 0, start;

  check(slimps_options_create(&options));
  check(slimps_options_from_environment(options));
  for (int i = 1; i < argc; ++i) set_option(options, argv[i]);
  check(slimps_create("dist_sync", options, &store));
  slimps_options_destroy(options);
  check(slimps_rank(store, &rank));
  check(slimps_num_workers(store, &num_workers));
  check(slimps_init(store, &tensor, 1));
  set_sgd(num_workers);

  random = 2463534242u + rank;
  start = now_s();
  for (int round = 1; round <= ROUNDS; ++round) {
    loss = gradient_of_batch(weights, &random, gradient);
    check(slimps_push(store, key, gradient, FEATURES, 0));
    check(slimps_pull(store, key, weights, FEATURES, 0));
    if (rank == 0 && round % 20 == 0) printf("round %d: loss %.4f\n", round, loss);
  }
  check(slimps_all_reduce_sum(store, &loss, 1));
  report(rank, num_workers, loss / num_workers, now_s() - start);
  check(slimps_close(store));
  slimps_destroy(store);
  return 0;
}
