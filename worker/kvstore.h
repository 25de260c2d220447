// KVStore: how a training loop talks to the parameter servers. Method names and store semantics are
// MXNet's.
//
//   auto store = KVStore::Create("dist_sync", options);   // registers, waits for the whole job
//   (*store)->Init({{.key = "w", .shape = {784, 10}, .value = weights}});  // collective
//   (*store)->SetOptimizer(sgd);               // the servers step; without one they keep the sum
//   (*store)->Push("w", gradient, /*priority=*/0);   // returns when `gradient` may be reused
//   (*store)->Pull("w", weights, /*priority=*/0);    // waits for every round that it has pushed
//
// Push waits until grad_buf has room, copies the gradient into it and returns; encoding, sending, acknowledgement and retry
// go on behind it. The first error of any background stage is returned by every later call and by
// Wait. Thread-safe.
#ifndef SLIMPS_WORKER_KVSTORE_H_
#define SLIMPS_WORKER_KVSTORE_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "proto/base/clock.h"
#include "proto/base/key.h"
#include "proto/net/same_host.h"
#include "proto/slimps.pb.h"
#include "worker/hyper.h"
#include "worker/push_counts.h"

namespace slimps {

class Codec;  // compress/codec/codec.h

struct KVStoreOptions {
  std::string scheduler_address;  // "tcp://host:port"
  std::string job_id = "slimps";
  uint32_t num_workers = 1;
  uint32_t num_servers = 1;
  int32_t wanted_rank = -1;
  // Of dist_ssp: how many rounds a worker may be ahead of the slowest (server/sequence_ledger.h). Rank 0's counts.
  uint32_t staleness = 0;
  // Of fp32. Nothing overlaps the way there and back of a round's last partition: smaller ones
  // shorten it, larger ones cost fewer messages.
  size_t partition_bytes = 1 << 20;
  std::string compression = "none";  // codec spec: "1bit:scaling=l1"
  // How it is decided which tensors are compressed: automatic (profile pre_steps rounds, then the
  // threshold table), or tensors of at least this many fp32 bytes (0: every tensor).
  std::optional<uint64_t> fixed_threshold_bytes;  // nullopt: automatic
  int pre_steps = 20;
  std::string threshold_table_file;  // a saved table to start from: no profiling
  // Where the threshold is automatic: of every so many rounds two measure a few tensors again, and the threshold follows
  // the link (compress/policy/measured_rounds.h). 0: never; else at least 8. Needs dist_sync.
  uint64_t remeasure_every = 0;
  // What pulls carry: "none" the weights, "fp16" or "bf16" the weights in half precision, another codec the change of
  // the weights. Needs dist_sync. Its threshold is decided as that of pushes is.
  std::string pull_compression = "none";
  std::optional<uint64_t> fixed_pull_threshold_bytes;  // nullopt: automatic
  // The pipeline's mechanisms, each to be switched off for comparison.
  bool coalesce = true;    // small items for one server in one message
  bool prioritise = true;  // false: first come, first served
  bool checksums = true;   // of payloads, on the wire
  // How a server on this machine is reached, where it offers that.
  SameHost same_host = SameHost::kShm;
  // Most memory of gradients that wait to be encoded or, raw, acknowledged; Push waits for room. 0: as much as one round of
  // all keys, but 64 MiB.
  size_t staging_bytes = 0;
  float grad_scale = 1.0f;  // codecs see gradient * grad_scale; the server's rescale_grad undoes it
  int encode_threads = 0;   // threads that compress; 0: as many as there are cores
  // An emulated full-duplex link between this worker and the network; 0: none.
  double emulate_link_bytes_per_second = 0;
  absl::Duration emulate_link_latency = absl::ZeroDuration();  // added to what arrives
  absl::Duration timeout = absl::Seconds(60);  // of one push or pull, retries included
  absl::Duration retry_interval = absl::Seconds(5);
  std::stop_token stop;                 // Create returns Cancelled once a stop is requested
  const Clock* clock = MachineClock();  // outlives the store
};

// What `options` come to: an emulated link stands for a network, which no local socket may bypass.
inline SameHost UsedSameHost(const KVStoreOptions& options) {
  const bool emulated = options.emulate_link_bytes_per_second > 0 ||
                        options.emulate_link_latency > absl::ZeroDuration();
  return emulated ? SameHost::kTcp : options.same_host;
}

// What a tensor is taken for of whose layer nothing was said, for codecs that treat layers apart (adacomp): frameworks' weights
// are (out, in) in dense layers and (out, in, kernel ...) in convolutions.
inline wire::LayerKind LayerByShape(std::span<const int64_t> shape) {
  if (shape.size() > 2) return wire::CONVOLUTION;
  return shape.size() == 2 ? wire::DENSE : wire::OTHER;
}

struct InitTensor {
  Key key;
  std::vector<int64_t> shape;
  std::span<const float> value;                         // of rank 0; others may leave it empty
  std::optional<wire::LayerKind> layer = std::nullopt;  // nullopt: LayerByShape
  wire::DType dtype = wire::FLOAT32;  // of the wire and the pulled values; the servers keep fp32

  wire::LayerKind declared_layer() const { return layer.value_or(LayerByShape(shape)); }
};

// Sums over this worker since creation (initialisation left out).
struct StoreTotals {
  PushCounts pushed;
  uint64_t bytes_pushed = 0;  // payload bytes that servers acknowledged
  uint64_t bytes_pulled = 0;
  uint64_t changes_pulled = 0;  // partitions that came as a change of the weights
  uint64_t bytes_shared = 0;    // sent and received through shared memory
  absl::Duration copy, encode, send, wait,
      decode;  // send: first byte handed over to acknowledgement
};

// What the servers' step is made from, beside the optimizer: whoever predicts that step has to
// know.
struct PushTreatment {
  float grad_scale = 1;
  // May apply momentum, or make the servers take a vote. Lives as long as the store; null: none.
  const Codec* codec = nullptr;
};

// `weight` is changed in place by the gradients that were summed for one push.
using Updater =
    std::function<void(const Key& key, std::span<const float> gradient, std::span<float> weight)>;

class KVStore {
 public:
  virtual ~KVStore() = default;

  // `type`: "dist_sync" (BSP; "dist_device_sync" is the same), "dist_async", "dist_ssp" (bounded staleness): waits until all
  // nodes are there. "local" and "device": this process alone (local_store.h).
  [[nodiscard]] static absl::StatusOr<std::unique_ptr<KVStore>> Create(
      std::string_view type, const KVStoreOptions& options);

  [[nodiscard]] virtual absl::Status Init(const std::vector<InitTensor>& tensors) = 0;
  // One push per key and round. InvalidArgument: NaN or infinity (names the key, nothing was sent,
  // the round is not consumed), wrong length. NotFound: key never initialised.
  [[nodiscard]] virtual absl::Status Push(const Key& key, std::span<const float> gradient,
                                          int priority) = 0;
  // The sum of several devices' gradients, in their order, as one push. InvalidArgument: none, or of different lengths.
  // Stores that do not compress per device sum first.
  [[nodiscard]] virtual absl::Status PushSum(const Key& key,
                                             std::span<const std::span<const float>> gradients,
                                             int priority);
  // This worker contributes nothing to the key's next round. Where no worker does, an optimizer skips the round: weights
  // and state stay, no update is counted.
  [[nodiscard]] virtual absl::Status PushNothing(const Key& key) = 0;
  [[nodiscard]] virtual absl::Status Pull(const Key& key, std::span<float> out, int priority) = 0;
  [[nodiscard]] virtual absl::Status PushPull(const Key& key, std::span<const float> gradient,
                                              std::span<float> out, int priority) = 0;
  // Calls `done` once `out` holds the weights of this worker's newest pushed round: on a background thread or, where nothing
  // has to be waited for, as in a local store or for an error, before it returns. `done` must not wait for the store.
  virtual void PullAsync(const Key& key, std::span<float> out, int priority,
                         std::function<void(absl::Status)> done) = 0;
  // As PullAsync, into memory that still holds, bit for bit, what this store's last PullOnto of this key left there, even
  // if that failed; the first may find anything. Where pulls are compressed, changes are then added in place; into other
  // memory they go by way of a copy that the store keeps.
  virtual void PullOnto(const Key& key, std::span<float> weights, int priority,
                        std::function<void(absl::Status)> done) {
    PullAsync(key, weights, priority, std::move(done));
  }

  // Row-sparse tensors. A row is what one index of the key's first dimension names; `values` has one row after another.
  //
  // Pushes some rows of the key's next round: unsorted, repeated (they add up, in the order given) or none; it counts as
  // any push does, and the workers of a round may push rows, whole gradients or nothing. With an optimizer, a round in
  // which all pushed rows or nothing steps the rows that anybody pushed and leaves all others, and what the optimizer
  // keeps of them, as they are (lazy update); rows that are not pushed never decay. Without one, the sum replaces the
  // value, as any round's does: rows that nobody pushed become zero. InvalidArgument, naming key, row, expected and got: a
  // row out of range, values of the wrong length, or not finite; nothing was sent, the round is not consumed.
  // FailedPrecondition: gradient compression is on.
  [[nodiscard]] virtual absl::Status PushRowSparse(const Key& key, std::span<const int64_t> rows,
                                                   std::span<const float> values, int priority) {
    (void)key, (void)rows, (void)values, (void)priority;
    return absl::UnimplementedError(type() + " stores take no row-sparse pushes");
  }
  // As Pull, of some rows of any key: `row_ids` unsorted, repeated or none. `rows` and `values` are replaced by the rows
  // asked for, rising and each once, and what they hold; unchanged if it fails. InvalidArgument, naming key and row: out
  // of range.
  [[nodiscard]] virtual absl::Status PullRows(const Key& key, std::span<const int64_t> row_ids,
                                              std::vector<int64_t>* rows,
                                              std::vector<float>* values, int priority) {
    (void)key, (void)row_ids, (void)rows, (void)values, (void)priority;
    return absl::UnimplementedError(type() + " stores pull no rows");
  }

  [[nodiscard]] virtual absl::Status Broadcast(const InitTensor& tensor, std::span<float> out) = 0;

  // From rank 0 (other ranks: checked, no effect). Collective through the next Barrier. InvalidArgument: an optimizer that
  // does not go with the codec or the store's mode.
  [[nodiscard]] virtual absl::Status SetOptimizer(const wire::OptimizerSpec& spec) = 0;
  // Of a key, from its next push on (of any kind, also of rows or nothing): what the optimizer steps by in place of its own
  // learning rate, schedule included, and weight decay. nullopt: its own again. A push keeps what was set when it was made,
  // however late it leaves. On every worker alike, rank 0's counts; dist_async and dist_ssp step each push by its own.
  // NotFound: key never initialised. InvalidArgument, naming key and field: negative, or not finite in fp32.
  [[nodiscard]] virtual absl::Status SetHyper(const Key& key, std::optional<Hyper> hyper) {
    (void)key, (void)hyper;
    return absl::UnimplementedError(type() + " stores take no hyperparameters by key");
  }
  // Local stores only, in the optimizer's place; elsewhere Unimplemented. Runs on the pushing thread, once per push and
  // key. It must not call the store; what it throws leaves the push as it is, with whatever it did to the weight. An empty
  // one: pushes replace values again.
  [[nodiscard]] virtual absl::Status SetUpdater(Updater updater);
  // What the servers' optimizer keeps beside the weights (momentum, Adam's moments and step counts) as a file's content,
  // versioned and checksummed. Collective; every worker gets the same. All pushes so far are in it. DeadlineExceeded: under
  // dist_sync, not every worker that has not left has pushed each key as often. FailedPrecondition: no optimizer was set.
  // Of a local store: its own optimizer's, in the same form.
  [[nodiscard]] virtual absl::StatusOr<std::string> SaveOptimizerStates() {
    return absl::UnimplementedError(type() + " stores keep no optimizer states");
  }
  // Puts it back, into a job of any number of servers whose keys have the same names and sizes, initialised with the
  // weights saved beside it, before the next push. Collective; every worker brings the same content, rank 0's counts.
  // What the schedule of the learning rate has come to is not in it: that counts rounds. Nothing has changed after
  // DataLoss: damaged; InvalidArgument: no such content, or of other keys or sizes; FailedPrecondition: of another
  // optimizer.
  [[nodiscard]] virtual absl::Status LoadOptimizerStates(std::string_view content) {
    (void)content;
    return absl::UnimplementedError(type() + " stores keep no optimizer states");
  }
  // What gradient compression keeps on this worker between pushes (residuals, momentum of its codecs), of all keys, as a
  // file's content, versioned and checksummed: with the weights and the optimizer states, all that a job goes on from.
  // Waits until all pushes so far are acknowledged. Each worker saves, and loads, its own.
  [[nodiscard]] virtual absl::StatusOr<std::string> SaveResiduals() {
    return absl::UnimplementedError(type() + " stores save no residuals");
  }
  // Puts it back, in place of what is there, before the next push; keys that the content does not name begin at zero.
  // partition_bytes may be another. Nothing has changed after DataLoss: damaged; InvalidArgument: no such content, or of
  // another grad_scale, or of keys or sizes that this store does not have.
  [[nodiscard]] virtual absl::Status LoadResiduals(std::string_view content) {
    (void)content;
    return absl::UnimplementedError(type() + " stores load no residuals");
  }
  // Before the first push; on every worker alike. InvalidArgument: unknown codec or option, or a codec that does not go
  // with the store's mode or its optimizer (combination.h). FailedPrecondition: pushes were made, or keys were initialised
  // whose gradients the servers would have to join in another way (signsgd's majority).
  [[nodiscard]] virtual absl::Status SetGradientCompression(std::string_view codec_spec) = 0;
  // As MXNet ({"type": "2bit", "threshold": "0.5"}: every key is compressed, no table) or BytePS ({"compressor_type":
  // "onebit", ...}) write it: compress/codec/dictionary.h.
  [[nodiscard]] virtual absl::Status SetGradientCompression(
      const std::map<std::string, std::string>& dictionary) = 0;
  [[nodiscard]] virtual absl::Status Barrier() = 0;
  // A barrier that also sums `values` over all workers, in rank order (through the scheduler: for a
  // few numbers).
  [[nodiscard]] virtual absl::StatusOr<std::vector<double>> AllReduceSum(
      const std::vector<double>& values) = 0;
  // The same of a call that workers make together. InvalidArgument: another worker comes for another `purpose`, or calls
  // AllReduceSum; names both.
  [[nodiscard]] virtual absl::StatusOr<std::vector<double>> AllReduceSumFor(
      const std::string& purpose, const std::vector<double>& values) {
    (void)purpose;
    return AllReduceSum(values);
  }
  // Waits until everything pushed so far is acknowledged; returns the first error.
  [[nodiscard]] virtual absl::Status Wait() = 0;
  // Rounds from the next on are complete without this worker; its parts are done. Pulls still work.
  [[nodiscard]] virtual absl::Status Leave() = 0;
  // Drains, says goodbye. Called by the destructor too.
  [[nodiscard]] virtual absl::Status Close() = 0;

  // This worker cannot go on: everyone in the job is told why, and the job ends. The store is of no use afterwards.
  virtual void Abort(const absl::Status&) {}

  virtual uint32_t rank() const = 0;
  virtual uint32_t num_workers() const = 0;
  virtual std::string type() const = 0;
  // "optimizer": the servers can step.
  virtual bool is_capable(std::string_view capability) const = 0;
  virtual StoreTotals totals() const = 0;
  virtual PushTreatment push_treatment() const { return {}; }
  // What this worker's pushes of one key carried, for stores that count by key.
  virtual PushCounts push_counts(const Key&) const { return {}; }
  // Whether the next pushes are measured for the threshold table: they go out one by one, and whoever keeps the
  // machine busy meanwhile, or other rounds under way, spoils the figures.
  virtual bool measuring() const { return false; }
  // The decision in force and the averaged table behind it; nullopt while profiling or where
  // nothing was profiled.
  virtual std::optional<wire::CodecMap> codec_map() const = 0;
};

}  // namespace slimps

#endif  // SLIMPS_WORKER_KVSTORE_H_
