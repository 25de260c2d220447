/* SPDX-License-Identifier: Apache-2.0 */
/* What a store has sent, and what was decided about its compression.
 *
 *   slimps_totals totals = {.struct_size = sizeof(totals)};
 *   check(slimps_get_totals(store, &totals));
 *
 * <slimps/c_api.h> includes this, and says what holds for every function. */
#ifndef SLIMPS_WORKER_CAPI_C_API_FIGURES_H_
#define SLIMPS_WORKER_CAPI_C_API_FIGURES_H_

#include <slimps/c_api.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Sums over this worker since create, without initialisation. */
typedef struct slimps_totals {
  size_t struct_size;       /* set by the caller: sizeof(slimps_totals) */
  uint64_t elements_pushed; /* elements of the gradients */
  uint64_t elements_sent;   /* elements that payloads carried */
  uint64_t bytes_pushed;    /* payload bytes that servers acknowledged */
  uint64_t bytes_pulled;
  uint64_t bytes_shared;   /* sent and received through shared memory */
  uint64_t changes_pulled; /* partitions that came as a change of the weights */
  double copy_s;           /* seconds of all threads together; so are the next four */
  double encode_s;
  double send_s; /* first byte to acknowledgement */
  double wait_s; /* callers' waiting */
  double decode_s;
  /* |sent|^2 / |gradient + residual|^2 of compressed pushes; 1 if there were none */
  double compression_gain;
  /* |not sent|^2 / |gradient + residual|^2 of compressed pushes; 0 if there were none */
  double compression_error;
} slimps_totals;

/* Fills `totals` up to its struct_size. */
SLIMPS_API slimps_status slimps_get_totals(const slimps_store* store, slimps_totals* totals);

#define SLIMPS_NOT_COMPRESSED UINT64_MAX

/* The compression thresholds in force; where they are "auto", what was decided, the same on all
 * workers. */
typedef struct slimps_decision {
  size_t struct_size;  /* set by the caller: sizeof(slimps_decision) */
  uint64_t is_decided; /* 0: nothing is decided yet, or nothing is compressed */
  uint64_t from_round; /* the decision holds from this round on */
  /* fp32 bytes from which pushes are compressed; SLIMPS_NOT_COMPRESSED: no push is */
  uint64_t threshold_bytes;
  uint64_t pull_threshold_bytes; /* the same for pulls */
  /* Since 1.1. The codecs' specs. The library owns the texts, which stay until this thread's next
   * slimps_get_decision. */
  const char* codec;
  const char* pull_codec;
  /* Since 1.2. The policy that adapts and why it has decided so, in words; both empty without one.
   * slimps_get_key_codecs then has the codecs. */
  const char* policy;
  const char* reason;
} slimps_decision;

/* Fills `decision` up to its struct_size. */
SLIMPS_API slimps_status slimps_get_decision(const slimps_store* store, slimps_decision* decision);

/* A row of the threshold table: measured means for tensors of one size. Compression pays where
 * t_c > t_cq + t_pq (SlimGC, section 3.3). Since 1.1. */
typedef struct slimps_threshold_row {
  uint64_t is_pull; /* 1: a pull; 0: a push */
  uint64_t bytes;   /* the tensor's fp32 bytes */
  double t_c_ms;    /* milliseconds on the wire, raw */
  double t_cq_ms;   /* milliseconds on the wire, compressed */
  double t_pq_ms;   /* milliseconds of encoding and decoding */
} slimps_threshold_row;

/* Gives the table behind the decision. Writes at most `room` rows, and into `count` how many there
 * are; 0 if the threshold was given, or nothing is decided. Since 1.1. */
SLIMPS_API slimps_status slimps_get_threshold_table(const slimps_store* store,
                                                    slimps_threshold_row* rows, size_t room,
                                                    size_t* count);

/* What a policy that adapts has chosen for the pushes of one key. Since 1.2. */
typedef struct slimps_key_codec {
  slimps_key key;
  /* A codec spec; where each worker chooses among several for each round, these with " > " between
   * them, the most compressed first. */
  const char* codec;
  const char* reason; /* in words */
} slimps_key_codec;

/* Gives the codecs of the decision in force, by the keys' names. Writes at most `room` of them, and
 * into `count` how many there are; 0 without a policy that adapts. The library owns the texts; they
 * stay until this thread's next slimps_get_key_codecs. Since 1.2. */
SLIMPS_API slimps_status slimps_get_key_codecs(const slimps_store* store, slimps_key_codec* codecs,
                                               size_t room, size_t* count);

/* ---- for those who watch the job ------------------------------------------------------------- */

/* Notes where the program's main thread stands, in its source, as "train.py:12". Who waits for this
 * worker is told that. Meant to be called about once per second, on any thread. What is not printed
 * ASCII becomes "?", each byte, and only the first 200 bytes are kept. Since 1.8.
 * INVALID_ARGUMENT: `where` is NULL. */
SLIMPS_API slimps_status slimps_note_position(slimps_store* store, const char* where);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* SLIMPS_WORKER_CAPI_C_API_FIGURES_H_ */
