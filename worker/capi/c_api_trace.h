/* SPDX-License-Identifier: Apache-2.0 */
/* This worker's part of a job's timeline, for tools/slimps trace. Since 1.8.
 *
 *   const char* path = getenv("SLIMPS_TRACE");   // set by `slimps launch --trace FILE`
 *   if (path != NULL) check(slimps_trace_start(path));
 *   ...                                          // slimps_create, training, slimps_close
 *   if (path != NULL) check(slimps_trace_finish(path, rank));
 *
 * The timeline is one for the whole process: it has what every store of it did. Any thread may call
 * these functions. <slimps/c_api.h> says what holds for every function. */
#ifndef SLIMPS_WORKER_CAPI_C_API_TRACE_H_
#define SLIMPS_WORKER_CAPI_C_API_TRACE_H_

#include <slimps/c_api.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Begins to record. slimps_create then puts the times on the job's clock.
 * FAILED_PRECONDITION: this process records already.
 * UNAVAILABLE: nothing can be written at `path`. */
SLIMPS_API slimps_status slimps_trace_start(const char* path);

/* The rows that a training program fills itself. */
enum {
  SLIMPS_TRACE_FORWARD = 0,
  SLIMPS_TRACE_BACKWARD = 1,
  SLIMPS_TRACE_STEP = 2,
  SLIMPS_TRACE_CALL = 3 /* a call of the store */
};

/* Records what this thread did from `began_ns` to `ended_ns`, which are nanoseconds of
 * CLOCK_MONOTONIC. `name` is what the viewer shows. `round`: 0, or the training step. Does nothing
 * while nothing is recorded. */
SLIMPS_API slimps_status slimps_trace_span(int32_t row, const char* name, uint64_t round,
                                           int64_t began_ns, int64_t ended_ns);

/* Stops recording and writes what worker `rank` did: to "job.worker0.json" for "job.json".
 * FAILED_PRECONDITION: this process does not record.
 * UNAVAILABLE: the file cannot be written. */
SLIMPS_API slimps_status slimps_trace_finish(const char* path, uint32_t rank);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* SLIMPS_WORKER_CAPI_C_API_TRACE_H_ */
