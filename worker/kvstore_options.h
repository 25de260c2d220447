// SPDX-License-Identifier: Apache-2.0
// KVStoreOptions by name and text, for interfaces whose users write options as text. One table
// holds names, ranges and checks. Names and meanings are those of slimps_worker's flags and of
// Python's slimps.kv.create.
//
//   KVStoreOptions options;
//   // Reads DMLC_*, as `slimps launch` sets them.
//   SLIMPS_RETURN_IF_ERROR(SetJobFromEnvironment(std::getenv, &options));
//   SLIMPS_RETURN_IF_ERROR(SetOption("compression", "1bit", &options));
//   SLIMPS_RETURN_IF_ERROR(SetOption("threshold", "4096", &options));
//
//   compression         codec spec, as "1bit" or "topk:ratio=0.01"; "none"
//   threshold           gradients of at least so many fp32 bytes are compressed (0: all);
//                       "auto": measured
//   policy              what decides: "threshold", or one that adapts, as "lgreco:codec=topk"
//   pull_compression    what pulls carry: "none", "fp16", "bf16", a codec of the change, "policy"
//   pull_threshold      the same for pulls
//   pre_steps           rounds that "auto" measures
//   remeasure_every     rounds between measurements later on, from 8; 0: none
//   threshold_table     file with a saved table: nothing is measured
//   partition_bytes     tensors of more fp32 bytes are cut
//   encode_threads      threads that compress; 0: as many as there are cores
//   staleness           rounds that a worker may be ahead, for dist_ssp
//   grad_scale          codecs see gradient * grad_scale; rescale_grad of the optimizer undoes it
//   non_finite          a push of NaN or infinity: "stop" refuses it, "pass" sends it as it is
//   same_host           how a server on this machine is reached: "shm", "ipc" or "tcp"
//   emulate_link        rate of an emulated link, as "100mbit" or "12.5MB"
//   emulate_latency_ms  its delay
//   join_timeout_s      seconds until all nodes of the job have come
//   timeout_s           seconds that a call waits for others that live; 0: as the job says
//   metrics_port        port of this worker's own metrics; 0: any free one; -1: none
//   watch_bind          address of metrics_port
//   scheduler           "host:port"
//   num_workers, num_servers, job_id, rank (the rank asked for; -1: any)
//
// Pure; thread-safe.
#ifndef SLIMPS_WORKER_KVSTORE_OPTIONS_H_
#define SLIMPS_WORKER_KVSTORE_OPTIONS_H_

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/kvstore.h"

namespace slimps {

// Sets one option. An error leaves `options` unchanged.
// InvalidArgument: no such option (lists the options), or a value that the option cannot take (says
// what was expected).
[[nodiscard]] absl::Status SetOption(std::string_view name, std::string_view value,
                                     KVStoreOptions* options);

// Returns an option's value as a text that SetOption takes; "" for one that is not set.
// InvalidArgument: no such option (lists the options).
[[nodiscard]] absl::StatusOr<std::string> GetOption(std::string_view name,
                                                    const KVStoreOptions& options);

// InvalidArgument: the rank asked for is not one of the job's.
[[nodiscard]] absl::Status CheckRank(const KVStoreOptions& options);

// Returns the names in the table's order.
[[nodiscard]] std::vector<std::string> OptionNames();

// Returns the value of a variable, null if it is not set, as std::getenv does.
using Environment = std::function<const char*(const char* variable)>;

// Sets this worker's place in the job from the variables that a launcher sets:
//   DMLC_PS_ROOT_URI, DMLC_PS_ROOT_PORT   scheduler
//   DMLC_NUM_WORKER, DMLC_NUM_SERVER      num_workers (or torchrun's WORLD_SIZE), num_servers
//   DMLC_WORKER_ID                        rank (or torchrun's RANK); any if neither is set
//   SLIMPS_KEY_FILE, SLIMPS_SCHEDULER_KEY key_file, scheduler_key; none if not set
//   SLIMPS_METRICS_PORT                   metrics_port; stays if not set
//   SLIMPS_WATCH_BIND                     watch_bind; stays if not set
// An error leaves `options` unchanged.
// FailedPrecondition: a variable is missing, or DMLC_ROLE is not worker.
// InvalidArgument: a value that makes no sense.
[[nodiscard]] absl::Status SetJobFromEnvironment(const Environment& environment,
                                                 KVStoreOptions* options);

// Returns bytes per second, over 0, from "100mbit", "1gbit", "800kbit" (bits per second), "12.5MB",
// "1GB", "64kB" or "12B" (bytes per second). Units are decimal; case does not matter.
// InvalidArgument: anything else.
[[nodiscard]] absl::StatusOr<double> ParseRate(std::string_view text);

}  // namespace slimps

#endif  // SLIMPS_WORKER_KVSTORE_OPTIONS_H_
