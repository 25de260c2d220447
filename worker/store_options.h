// SPDX-License-Identifier: Apache-2.0
// What a store is created with (kvstore.h). kvstore_options.h sets the fields by name and text.
#ifndef SLIMPS_WORKER_STORE_OPTIONS_H_
#define SLIMPS_WORKER_STORE_OPTIONS_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <stop_token>
#include <string>

#include "absl/time/time.h"
#include "proto/base/clock.h"
#include "proto/net/zmq/same_host.h"

namespace slimps {

class CudaDriver;  // worker/device/cuda/cuda_driver.h

struct KVStoreOptions {
  std::string scheduler_address;  // "tcp://host:port"
  // The file with this worker's secret key, and the scheduler's public key in hexadecimal
  // (docs/operations.md). Both or none. With them every connection to another machine is encrypted,
  // and each side has proven who it is.
  std::string key_file;
  std::string scheduler_key;
  std::string job_id = "slimps";
  uint32_t num_workers = 1;
  uint32_t num_servers = 1;
  int32_t wanted_rank = -1;
  // dist_ssp only: how many rounds a worker may be ahead of the slowest
  // (server/round/sequence_ledger.h). Rank 0's value holds.
  uint32_t staleness = 0;
  // A tensor with more fp32 bytes than this is cut into partitions of this size. Nothing overlaps
  // the round trip of a round's last partition: small partitions shorten it, large ones need fewer
  // messages.
  size_t partition_bytes = 1 << 20;
  std::string compression = "none";  // codec spec: "1bit:scaling=l1"
  // Which tensors are compressed. Automatic: the store profiles pre_steps rounds and then decides
  // by the threshold table. Fixed: tensors of at least this many fp32 bytes (0: every tensor).
  std::optional<uint64_t> fixed_threshold_bytes;  // nullopt: automatic
  int pre_steps = 20;
  std::string threshold_table_file;  // a saved table to start from: no profiling
  // For an automatic threshold: of every so many rounds, two measure a few tensors again, and the
  // threshold follows the link (compress/policy/measured_rounds.h). 0: never; otherwise at least 8.
  // Needs dist_sync.
  uint64_t remeasure_every = 0;
  // What decides which codec a push uses: "threshold" (the fields above), or a policy that adapts,
  // as "lgreco:codec=topk" (compress/policy/controllers). Such a policy chooses codecs itself, so
  // `compression` stays "none" and there is no threshold. Needs dist_sync.
  std::string policy = "threshold";
  // What pulls carry. "none": the weights; "fp16" or "bf16": the weights in half precision; another
  // codec: the change of the weights; "policy": the change, in the codec that the policy has chosen
  // for the tensor's pushes. Needs dist_sync. The threshold is decided as for pushes; under a
  // policy that adapts it is fixed.
  std::string pull_compression = "none";
  std::optional<uint64_t> fixed_pull_threshold_bytes;  // nullopt: automatic
  // The pipeline's mechanisms. Each can be switched off for comparison.
  bool coalesce = true;    // small items for one server in one message
  bool prioritise = true;  // false: first come, first served
  bool checksums = true;   // of payloads, on the wire
  // False: a push of NaN or infinity is refused. True: its partition travels raw, no residual or
  // momentum changes, and the round's sum is not finite either, for every worker. Needs dist_sync;
  // codecs with phases or votes refuse it still.
  bool pass_non_finite = false;
  // How this worker reaches a server on its own machine, if the server offers that way.
  SameHost same_host = SameHost::kShm;
  // Most bytes of copied gradients that wait until they are encoded or, if raw, acknowledged. Push
  // waits for room. 0: one round of all keys, but at least 64 MiB.
  size_t staging_bytes = 0;
  // Where servers may be started again (slimps launch --restart): most bytes of acknowledged pushes
  // that are kept until a snapshot has them.
  size_t max_kept_bytes = size_t{1} << 30;
  float grad_scale = 1.0f;  // codecs see gradient * grad_scale; the server's rescale_grad undoes it
  int encode_threads = 0;   // threads that compress; 0: as many as there are cores
  // The rate of an emulated full-duplex link between this worker and the network; 0: no emulation.
  double emulate_link_bytes_per_second = 0;
  absl::Duration emulate_link_latency = absl::ZeroDuration();  // added to what arrives
  // Where a store with a job serves this worker's own metrics for Prometheus until it is closed.
  // Port 0: any free one; -1: nowhere.
  int32_t metrics_port = -1;
  std::string watch_bind = "127.0.0.1";
  absl::Duration join_timeout = absl::Seconds(600);  // until all nodes of the job have come
  // How long a call waits for others that live, retries included. Zero: as long as the job says
  // (KVStore::timeout).
  absl::Duration timeout = absl::ZeroDuration();
  absl::Duration retry_interval = absl::Seconds(5);
  CudaDriver* cuda_driver = nullptr;    // null: the machine's, opened when a GPU's memory comes
  std::stop_token stop;                 // Create returns Cancelled once a stop is requested
  const Clock* clock = MachineClock();  // outlives the store
};

// Returns kTcp if a link is emulated: the link stands for a network, and no local socket may bypass
// it. Otherwise returns the option.
inline SameHost UsedSameHost(const KVStoreOptions& options) {
  const bool emulated = options.emulate_link_bytes_per_second > 0 ||
                        options.emulate_link_latency > absl::ZeroDuration();
  return emulated ? SameHost::kTcp : options.same_host;
}

}  // namespace slimps

#endif  // SLIMPS_WORKER_STORE_OPTIONS_H_
