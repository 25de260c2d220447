// SPDX-License-Identifier: Apache-2.0
// KVStore: how a training loop talks to the parameter servers. Method names and store semantics are
// MXNet's.
//
//   auto store = KVStore::Create("dist_sync", options);   // registers, waits for the whole job
//   (*store)->Init({{.key = "w", .shape = {784, 10}, .value = weights}});  // collective
//   (*store)->SetOptimizer(sgd);               // the servers step; without one they keep the sum
//   (*store)->Push("w", gradient, /*priority=*/0);   // returns when `gradient` may be reused
//   (*store)->Pull("w", weights, /*priority=*/0);    // waits for every round pushed so far
//
// Push waits until grad_buf has room, copies the gradient into it and returns. Encoding, sending,
// acknowledgement and retry run in the background. If a background stage fails, every later call
// and Wait return its first error. Thread-safe.
#ifndef SLIMPS_WORKER_KVSTORE_H_
#define SLIMPS_WORKER_KVSTORE_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "compress/kernels/hyper.h"
#include "proto/base/key.h"
#include "proto/slimps.pb.h"
#include "worker/device/place.h"
#include "worker/store_answers.h"
#include "worker/store_options.h"
#include "worker/tensor/init_tensor.h"
#include "worker/tensor/push_counts.h"

namespace slimps {

class Activity;  // worker/activity.h
class Devices;   // worker/device/devices.h

// Changes `weight` in place by the gradients that were summed for one push.
using Updater =
    std::function<void(const Key& key, std::span<const float> gradient, std::span<float> weight)>;

// Which keys' gradients are compressed: those from the options' threshold on, or all.
enum class CompressedKeys { kByThreshold, kAll };

class KVStore {
 public:
  virtual ~KVStore() = default;

  // Creates a store. `type`:
  //   "dist_sync" (BSP; "dist_device_sync" is the same), "dist_async", "dist_ssp" (bounded
  //   staleness): joins the job and waits until all nodes are there.
  //   "local", "device": this process alone (worker/local/local_store.h).
  [[nodiscard]] static absl::StatusOr<std::unique_ptr<KVStore>> Create(
      std::string_view type, const KVStoreOptions& options);

  // Initialises keys with rank 0's values. Collective: every worker calls it alike. Returns when
  // the keys can be pulled. Values on a GPU are read after the work that their stream has been
  // given; this waits for that.
  // AlreadyExists: a key was initialised before.
  // InvalidArgument: a shape without elements, a key named twice, int keys beside text keys,
  // a key that another worker declared otherwise; on rank 0, a value of the wrong length, not
  // finite, or not where its place says.
  // FailedPrecondition: on rank 0, as of PushLent.
  [[nodiscard]] virtual absl::Status Init(const std::vector<InitTensor>& tensors) = 0;

  // Adds this worker's gradient to the key's next round. A key takes one push per round.
  // NotFound: the key was never initialised.
  // InvalidArgument: wrong length; NaN or infinity (names the key), unless the store passes them
  // (KVStoreOptions::pass_non_finite). Nothing was sent and the round is not consumed.
  [[nodiscard]] virtual absl::Status Push(const Key& key, std::span<const float> gradient,
                                          int priority) = 0;

  // Returns true if pushes of so many bytes might have to wait for room now. Pushes of other
  // threads may take the room meanwhile.
  virtual bool push_may_wait(size_t /*bytes*/) const { return false; }

  // Same as PushSum for memory that the caller lends, one array per device: on GPUs, where the push
  // waits for the streams' work and the caller does not, or on the host, where codecs read the
  // gradient where it lies. Returns when the round is counted; other pushes of the key come after
  // it. Each `returned` tells when its memory may be written again. It is not called if this
  // returns an error. Waits for room as Push does; of gradients on loan, up to 1 GiB may wait for
  // the servers. Local stores wait for the streams.
  // A value that is not finite may be found after this has returned: `returned` then gets
  // InvalidArgument as of Push, and the store fails, since the round was counted; other parts of
  // the gradient may have been sent. A gradient on the host that has to be copied anyway is refused
  // at once instead, as by Push: without compression (but for `until_acknowledged`), where the
  // codec's exchange has phases, outside of dist_sync, in local stores.
  // InvalidArgument: also memory that is not the place's, or a stream of another GPU.
  // FailedPrecondition: no driver, no such GPU, or a stream that is being captured into a graph.
  [[nodiscard]] virtual absl::Status PushLent(const Key& key, std::vector<LentGradient> gradients,
                                              int priority) = 0;

  // Pushes the sum of several devices' gradients, added in their order. Stores that do not compress
  // per device sum first.
  // InvalidArgument: there are no gradients, or their lengths differ.
  [[nodiscard]] virtual absl::Status PushSum(const Key& key,
                                             std::span<const std::span<const float>> gradients,
                                             int priority);

  // Tells the servers that this worker contributes nothing to the key's next round. If no worker
  // contributes, an optimizer skips the round: weights and state stay, and no update is counted.
  [[nodiscard]] virtual absl::Status PushNothing(const Key& key) = 0;

  // Waits for every round of the key that this worker has pushed, and writes the weights into
  // `out`. dist_async and dist_ssp have no rounds: there it waits until the servers have applied
  // this worker's own pushes.
  // NotFound: the key was never initialised.
  // InvalidArgument: wrong length.
  [[nodiscard]] virtual absl::Status Pull(const Key& key, std::span<float> out, int priority) = 0;

  // Push, then Pull. Both travel in one message where that is possible.
  [[nodiscard]] virtual absl::Status PushPull(const Key& key, std::span<const float> gradient,
                                              std::span<float> out, int priority) = 0;

  // Calls `done` once, when `out` holds the weights of this worker's newest pushed round. `done`
  // runs on a background thread or, if there is nothing to wait for (a local store, an error),
  // before this returns. `done` must not wait for the store.
  virtual void PullAsync(const Key& key, std::span<float> out, int priority,
                         std::function<void(absl::Status)> done) = 0;

  // Same as PullAsync for memory that the caller lends, which may lie on a GPU. Every error is
  // `done`'s.
  virtual void PullTo(const Key& key, LentTarget out, int priority) = 0;

  // Same as PullAsync, but adds compressed changes to `weights` in place. PullAsync adds them to a
  // copy that the store keeps.
  // REQUIRES: `weights` still holds, bit for bit, what this store's last PullOnto of this key left
  // there, even if that call failed. The first call, or one with other memory, may find anything.
  virtual void PullOnto(const Key& key, std::span<float> weights, int priority,
                        std::function<void(absl::Status)> done);

  // Row-sparse tensors. A row is what one index of the key's first dimension names. `values` holds
  // one row after another.
  //
  // Pushes some rows of the key's next round. `rows` may be unsorted, repeated (equal rows add up,
  // in the given order) or empty. The call counts as a push; in one round workers may push rows,
  // whole gradients or nothing.
  // With an optimizer, a round of only rows or nothing is a lazy update: it steps the rows that any
  // worker pushed. All other rows and their optimizer state stay as they are; they do not decay.
  // Without an optimizer the sum replaces the value, as in any round: rows that no worker pushed
  // become zero.
  // InvalidArgument (names key, row, expected and got): a row out of range, or values of the wrong
  // length or not finite. Nothing was sent and the round is not consumed.
  // FailedPrecondition: gradient compression is on.
  [[nodiscard]] virtual absl::Status PushRowSparse(const Key& key, std::span<const int64_t> rows,
                                                   std::span<const float> values, int priority);

  // Same, for values that may lie on a GPU; `rows` lies on the host. Waits for the work that the
  // place's stream has been given, and for a copy of the values.
  // InvalidArgument, FailedPrecondition: also as of PushLent.
  [[nodiscard]] absl::Status PushRowSparse(const Key& key, std::span<const int64_t> rows,
                                           std::span<const float> values, int priority,
                                           const Place& place);

  // Pulls some rows of any key. `row_ids` may be unsorted, repeated or empty. Replaces `rows` by
  // the rows asked for, ascending and each once, and `values` by their values. Leaves both
  // unchanged on an error.
  // InvalidArgument (names key and row): a row out of range.
  [[nodiscard]] virtual absl::Status PullRows(const Key& key, std::span<const int64_t> row_ids,
                                              std::vector<int64_t>* rows,
                                              std::vector<float>* values, int priority);

  // Same, and writes the values to the front of `out`, which may lie on a GPU. Waits for the copy,
  // which comes after the work that the place's stream has been given.
  // InvalidArgument: also, the values need more room than `out` has; or as of PushLent.
  // FailedPrecondition: as of PushLent.
  [[nodiscard]] absl::Status PullRowsTo(const Key& key, std::span<const int64_t> row_ids,
                                        std::vector<int64_t>* rows, std::span<float> out,
                                        const Place& place, int priority);

  // Initialises one tensor and pulls it into `out`, which may lie on a GPU. Collective.
  [[nodiscard]] absl::Status Broadcast(const InitTensor& tensor, std::span<float> out,
                                       const Place& place = {});

  // Adds to DeadlineExceeded how long the store waits, and what the job waits for: where the others
  // are. Returns any other status as it is.
  virtual absl::Status Explained(absl::Status status) const { return status; }

  // Sends rank 0's optimizer to the servers. Other ranks' optimizers are checked and have no
  // effect. Collective through the next Barrier.
  // InvalidArgument: the optimizer does not go with the codec or the store's mode.
  [[nodiscard]] virtual absl::Status SetOptimizer(const wire::OptimizerSpec& spec) = 0;

  // Sets what the optimizer uses for a key in place of its own learning rate, schedule included,
  // weight decay and momentum. An optimizer that was set without momentum ignores that one.
  // nullopt: the optimizer's own again. Holds from the key's next push on, also a push of rows or
  // nothing. A push keeps the numbers that were set when it was made, however late it leaves. Every
  // worker sets the same; rank 0's numbers hold. dist_async and dist_ssp step each push by its own.
  // NotFound: the key was never initialised.
  // InvalidArgument (names key and field): negative, not finite in fp32, or a momentum from 1.
  [[nodiscard]] virtual absl::Status SetHyper(const Key& key, std::optional<Hyper> hyper);

  // Clipping by the norm of the workers' mean gradient over several keys together.
  //
  // SetClipped makes the steps of the key's rounds, from the next push on, wait for ClipRound.
  // Every worker makes the same calls.
  // NotFound: the key was never initialised.
  // InvalidArgument: the store is not dist_sync.
  [[nodiscard]] virtual absl::Status SetClipped(const Key& key, bool clipped);

  // Lets the servers step the newest round that this worker has pushed of `keys`, all of which are
  // clipped, by the mean gradient times min(1, max_norm / (norm + 1e-6)). The norm is that of the
  // mean over all these keys, before clipping. If it is not finite, the servers skip the step:
  // weights and state stay, and no update is counted. Calls `done` once, when `out` is written. It
  // runs as PullAsync's does, and must not wait for the store.
  // DeadlineExceeded: some worker did not push some key.
  // REQUIRES: the keys of one step are in one call, the same for every worker; `out` stays until
  // `done` is called.
  virtual void ClipRound(std::span<const Key> keys, double max_norm, ClippedNorm* out,
                         std::function<void(absl::Status)> done);

  // Sets a function that runs in the optimizer's place, on the pushing thread, once per push and
  // key. It must not call the store. If it throws, the push throws the same and keeps what the
  // function did to the weight. An empty updater: pushes replace values again.
  // Unimplemented: not a local store.
  [[nodiscard]] virtual absl::Status SetUpdater(Updater updater);

  // Returns what the servers' optimizer keeps beside the weights (momentum, Adam's moments and step
  // counts) as a file's content, versioned and checksummed. A local store returns its own
  // optimizer's, in the same form. Collective; every worker gets the same content. It includes all
  // pushes so far.
  // DeadlineExceeded: under dist_sync, workers that have not left have pushed a key unequally
  // often.
  // FailedPrecondition: no optimizer was set.
  [[nodiscard]] virtual absl::StatusOr<std::string> SaveOptimizerStates();

  // Restores what SaveOptimizerStates returned. Collective; every worker brings the same content,
  // and rank 0's holds. The content lacks the progress of a learning-rate schedule, which counts
  // rounds.
  // REQUIRES: the keys have the same names and sizes, were initialised with the weights saved
  // beside the content, and no push was made since. The number of servers may differ.
  // Errors change nothing:
  // DataLoss: the content is damaged.
  // InvalidArgument: not optimizer states, or of other keys or sizes.
  // FailedPrecondition: of another optimizer.
  [[nodiscard]] virtual absl::Status LoadOptimizerStates(std::string_view content);

  // Writes what the servers' optimizer keeps of `keys` into `states`, one for each key. This worker
  // alone calls it: it waits for the rounds that this worker has pushed, and under dist_sync no
  // later round can be complete meanwhile. Of a worker that has left, it writes what all keys have
  // after one round. Under dist_async and dist_ssp, each key's state has this worker's pushes, and
  // those of the others that the server has by then; `updates` is then the most of all partitions.
  // NotFound: a key was never initialised.
  // InvalidArgument: a tensor of another length than its key.
  // FailedPrecondition: no optimizer was set; or this worker has left, and rounds went on.
  // DeadlineExceeded: a round is not complete, because another worker has not pushed it.
  [[nodiscard]] virtual absl::Status PullOptimizerStates(std::span<const Key> keys,
                                                         std::span<LentOptimizerState> states);

  // Replaces what the servers' optimizer keeps of `keys` by rank 0's `states`, of which the first
  // `count` tensors are there, before the next push. Collective, with equal keys; other ranks'
  // states do not matter. `mine`: this worker's error, if it can bring none.
  // Errors change nothing, unless a server is lost meanwhile:
  // `mine`, or Aborted: another worker could not do its part.
  // NotFound, InvalidArgument: as of PullOptimizerStates.
  // FailedPrecondition: the optimizer has another number of tensors.
  [[nodiscard]] virtual absl::Status PutOptimizerStates(std::span<const Key> keys,
                                                        std::span<const LentOptimizerState> states,
                                                        absl::Status mine);

  // Returns what gradient compression keeps on this worker between pushes (residuals, momentum of
  // its codecs), of all keys, as a file's content, versioned and checksummed; with a policy that
  // adapts, also what it has decided and measured so far. A job resumes from
  // this, the weights and the optimizer states. Waits until all pushes so far are acknowledged.
  // Each worker saves and loads its own.
  [[nodiscard]] virtual absl::StatusOr<std::string> SaveResiduals();

  // Restores what SaveResiduals returned, in place of what is there. Keys that the content does not
  // name begin at zero. partition_bytes may differ, and so may the codec: what another codec keeps
  // beside the residuals (powersgd's factors) is left out.
  // REQUIRES: called before the next push.
  // Errors change nothing:
  // DataLoss: the content is damaged.
  // InvalidArgument: not residuals, or of another grad_scale, or of keys or sizes that this store
  // does not have.
  [[nodiscard]] virtual absl::Status LoadResiduals(std::string_view content);

  // Saves the whole job in a folder that every node sees: weights, optimizer and its state, what
  // compressed pulls keep, each worker's residuals, thresholds and decisions, and each worker's
  // `own_state`, which is the caller's (a data position, say). Worker 0 makes the folder.
  // Collective, between two rounds. Returns when everything is copied; it is written while training
  // goes on. AwaitSaved tells how that went. A folder whose writing failed is no checkpoint.
  // An error in place of `own_state` is returned; the other workers wait for this one no longer.
  // FailedPrecondition: there is a checkpoint already, a node does not see the folder, or this
  // worker has left the rounds.
  // Unavailable: a server was started again meanwhile.
  // Aborted: another worker could not do its part.
  [[nodiscard]] virtual absl::Status Save(
      const std::string& folder, absl::StatusOr<std::string_view> own_state = std::string_view());

  // Waits until the newest Save is written, and returns how that went, on each worker alike.
  // Unavailable: this worker's disk refused it (says which file and why).
  // FailedPrecondition: nodes see different folders.
  // Aborted: another node could not do its part; worker 0 says which file of a server, and why. Or
  // the newest Save failed.
  [[nodiscard]] virtual absl::Status AwaitSaved() { return absl::OkStatus(); }

  // Makes the job what it was when `folder` was saved: keys that were pushed n times go on with
  // round n + 1. Collective; a worker that came back (former_rounds() > 0) must not call it. The
  // number of servers may differ.
  // REQUIRES: the same keys were initialised, with any values; no push was made; no pull is under
  // way. Set the optimizer and hyperparameters afterwards only if others are wanted.
  // Everything is read and checked first. These errors change nothing:
  // NotFound: `folder` has no checkpoint.
  // DataLoss: a file is damaged.
  // InvalidArgument: one of other keys or shapes, compression, kind of store, kind of optimizer (if
  // one was set), or number of workers.
  // FailedPrecondition: a push was made, or workers found different checkpoints in the folder.
  // Aborted: another worker could not do its part.
  // An error after that, as when a server is lost, fails the store on all workers: part of the job
  // may be the checkpoint's.
  [[nodiscard]] virtual absl::StatusOr<LoadedCheckpoint> Load(const std::string& folder);

  // Sets the codec of pushes. Every worker calls it alike, before the first push.
  // InvalidArgument: unknown codec or option, or a codec that does not go with the store's mode or
  // its optimizer (combination.h).
  // FailedPrecondition: a push was made; or keys were initialised, and the servers would have to
  // join their gradients in another way (signsgd's majority) or hold keys of the codec's own
  // (powersgd's factors).
  [[nodiscard]] absl::Status SetGradientCompression(std::string_view codec_spec) {
    return ChangeCompression(codec_spec, CompressedKeys::kByThreshold);
  }

  // Same, written as in MXNet ({"type": "2bit", "threshold": "0.5"}: every key is compressed, no
  // table) or BytePS ({"compressor_type": "onebit", ...}): compress/codec/catalogue/dictionary.h.
  [[nodiscard]] absl::Status SetGradientCompression(
      const std::map<std::string, std::string>& dictionary);

  // Same, and chooses the keys whose gradients are compressed.
  [[nodiscard]] virtual absl::Status ChangeCompression(std::string_view codec_spec,
                                                       CompressedKeys keys) = 0;

  // Sets what decides which codec a push uses (KVStoreOptions::policy). Every worker calls it
  // alike, before the first push. Keys that are initialised after the first push are sent raw.
  // InvalidArgument: unknown policy or option, or one that does not go with the store's other
  // options (combination.h) or with the tensors.
  // FailedPrecondition: a push was made.
  // Unimplemented: a policy that adapts in a local store.
  [[nodiscard]] virtual absl::Status SetPolicy(std::string_view policy);

  // Waits until every worker has called it.
  [[nodiscard]] virtual absl::Status Barrier() = 0;

  // A barrier that also returns the sums of `values` over all workers, added in rank order. The
  // numbers go through the scheduler: few only.
  [[nodiscard]] absl::StatusOr<std::vector<double>> AllReduceSum(
      const std::vector<double>& values) {
    return AllReduceSumFor("a sum over all workers", values);
  }

  // Same, for a call that workers make together.
  // InvalidArgument (names both): another worker calls it for another `purpose`, or calls
  // AllReduceSum.
  [[nodiscard]] virtual absl::StatusOr<std::vector<double>> AllReduceSumFor(
      std::string_view purpose, const std::vector<double>& values) = 0;

  // Makes the buffers of all workers equal to those of rank 0. Returns which ones of this worker's
  // were written. Only buffers that differ on some worker travel, as they lie in memory, and no
  // server keeps them. Collective, with equal numbers and sizes of buffers.
  // REQUIRES: nothing else uses the buffers meanwhile.
  // InvalidArgument (names the buffer): rank 0's has another size.
  // Aborted: so it is on another worker.
  [[nodiscard]] virtual absl::StatusOr<std::vector<bool>> BroadcastBytes(
      std::span<const std::span<std::byte>> buffers) {
    return std::vector<bool>(buffers.size());
  }

  // Waits until everything pushed so far is acknowledged. Returns the first error. A codec whose
  // exchange has phases (powersgd) sends its payloads once every worker has pushed the round, so
  // this waits for the other workers' pushes of these rounds too.
  [[nodiscard]] virtual absl::Status Wait() = 0;

  // Waits as Wait, then leaves: later rounds are complete without this worker. Pulls still work.
  // REQUIRES: no other thread is pushing. Such a push may be lost.
  [[nodiscard]] virtual absl::Status Leave() = 0;

  // Waits as Wait, then leaves the job. The destructor calls it too. Calls that begin later are
  // refused.
  // REQUIRES: no other thread is pushing. Such a push may be lost.
  [[nodiscard]] virtual absl::Status Close() = 0;

  // Ends the job because this worker cannot go on, and tells every node why. Every later call of
  // the store fails.
  virtual void Abort(const absl::Status&) {}

  // Returns how long a call waits for others that live: KVStoreOptions::timeout or, without one, as
  // long as the job says, but no less than the job waits for a node that is gone.
  virtual absl::Duration timeout() const { return absl::Minutes(30); }
  virtual uint32_t rank() const = 0;
  virtual uint32_t num_workers() const = 0;
  virtual std::string type() const = 0;

  // True if the store can do what `capability` names. The only name is "optimizer": an optimizer
  // can step the weights.
  bool is_capable(std::string_view capability) const { return capability == "optimizer"; }
  virtual StoreTotals totals() const = 0;
  virtual PushTreatment push_treatment() const { return {}; }

  // Returns the devices whose memory the store takes, which live as long as it. Null: the store
  // takes memory of the host alone.
  virtual Devices* devices() { return nullptr; }

  // Returns what this worker's pushes of one key carried, for stores that count by key.
  virtual PushCounts push_counts(const Key&) const { return {}; }

  // Returns how many rounds of all keys a former process of this worker's rank took part in. 0:
  // there was none. Not 0: this process was started again and the job goes on: Init has kept the
  // servers' weights, and training goes on with the step after so many.
  virtual uint64_t former_rounds() const { return 0; }

  // True if the next pushes are measured for the threshold table. They go out one by one. Other
  // work on this machine, or other rounds under way, would spoil the figures.
  virtual bool measuring() const { return false; }

  // Returns the decision in force and the averaged table behind it. nullopt: nothing is decided
  // yet, or this store compresses nothing that travels.
  virtual std::optional<wire::CodecMap> codec_map() const { return std::nullopt; }

  // Returns what a policy that adapts has decided so far, in order: the newest decisions, up to
  // CompressionPlan::kKeptDecisions, of those that changed something. Empty for other stores.
  virtual std::vector<wire::CodecMap> policy_decisions() const { return {}; }

  // Returns what the decision in force has chosen, for the keys in the order of their names. Empty
  // without a policy that adapts.
  virtual std::vector<KeyCodec> key_codecs() const { return {}; }

  // Returns what those who watch the job are told of this worker: the bytes of a NodeReport
  // (watch/node_report.proto), with details if they are wanted. Empty for a store without a job.
  // Waits for nothing.
  virtual std::string Report(bool /*details*/) const { return ""; }

  // Returns the record of the program's calls, which lives as long as the store. Null: there is
  // none.
  virtual Activity* activity() { return nullptr; }
};

}  // namespace slimps

#endif  // SLIMPS_WORKER_KVSTORE_H_
