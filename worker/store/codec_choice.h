// SPDX-License-Identifier: Apache-2.0
// CodecChoice: which codecs this worker's pushes and pulls use, and with which optimizer. It
// refuses what does not go together (combination.h) and holds the newest CompressionPlan.
//
//   CodecChoice codecs(mode, options, &keys, &node);
//   SLIMPS_RETURN_IF_ERROR(codecs.Start());   // before the worker joins: bad options fail here
//   SLIMPS_RETURN_IF_ERROR(codecs.CheckOptimizer(spec));
//   SLIMPS_RETURN_IF_ERROR(codecs.Use("1bit", threshold, &pushes));   // from now on
//
// Owned by the store; it must outlive all stages. Thread-safe.
#ifndef SLIMPS_WORKER_STORE_CODEC_CHOICE_H_
#define SLIMPS_WORKER_STORE_CODEC_CHOICE_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "compress/codec/codec.h"
#include "proto/base/mutex.h"
#include "worker/kvstore.h"
#include "worker/plan/compression_plan.h"
#include "worker/push/push_pipeline.h"
#include "worker/store/worker_node.h"
#include "worker/tensor/init_tensor.h"
#include "worker/tensor/key_table.h"
#include "worker/tensor/shared_momentum.h"

namespace slimps {

class CodecChoice final {
 public:
  // REQUIRES: the arguments outlive this object.
  CodecChoice(wire::StoreMode mode, const KVStoreOptions& options, const KeyTable* keys,
              const WorkerNode* node)
      : mode_(mode), options_(options), keys_(keys), node_(node) {}

  // Makes the codecs that the options name.
  // InvalidArgument: an option is bad, or two do not go together.
  // REQUIRES: called once, before every other method.
  [[nodiscard]] absl::Status Start();

  // Compresses pushes with this codec from now on. `pushes` (null: there is none yet) uses the new
  // plan. Errors change nothing (KVStore::SetGradientCompression).
  // REQUIRES: no push was made.
  [[nodiscard]] absl::Status Use(std::string_view codec_spec,
                                 std::optional<uint64_t> fixed_threshold_bytes,
                                 PushPipeline* pushes);

  // Same, and sets what decides which codec a push uses (KVStore::SetPolicy).
  // REQUIRES: no push was made.
  [[nodiscard]] absl::Status UsePolicy(std::string_view policy, PushPipeline* pushes);

  // Tells a policy that adapts of tensors that are about to be initialised. Does nothing once
  // pushes have been made.
  // InvalidArgument: the policy makes no sense for the store's tensors and these together.
  [[nodiscard]] absl::Status BeginPolicy(const std::vector<InitTensor>& tensors);

  // Returns, for each tensor that is about to be initialised, the codecs that its pushes may use.
  // They live as long as this object. Errors: those of CompressionPlan::ChoicesOf.
  [[nodiscard]] absl::StatusOr<std::vector<std::vector<const Codec*>>> PossibleCodecs(
      const std::vector<InitTensor>& tensors) const;

  // Returns what makes pushes take phases, for errors: "codec powersgd", or the policy.
  std::string PhasesName() const;

  // Goes on where the job was saved, if it had the same policy; else that policy begins anew.
  // InvalidArgument: the policy cannot follow the saved decisions. Nothing has changed.
  // REQUIRES: no push was made, and the caller may use `probe`.
  [[nodiscard]] absl::Status ResumePolicy(const wire::SavedPolicy& saved, LevelProbe* probe);

  // Checks that some tensor of the store can be compressed. Where each one would travel as without
  // the codec or the policy, its options are a mistake.
  // InvalidArgument: none can, though there are matrices (names the largest).
  [[nodiscard]] absl::Status CheckTakesSome() const;

  // Takes a decision of the scheduler, and logs it on rank 0.
  // Errors: those of CompressionPlan::OnCodecMap.
  [[nodiscard]] absl::Status OnCodecMap(const wire::CodecMap& map);

  // InvalidArgument: the optimizer does not go with the codecs, the thresholds or the store's mode.
  // FailedPrecondition: pushes are momenta for the optimizer before it.
  [[nodiscard]] absl::Status CheckOptimizer(const wire::OptimizerSpec& spec) const;

  // Remembers the optimizer that the servers have. REQUIRES: CheckOptimizer was OK.
  void UseOptimizer(const wire::OptimizerSpec& spec);
  std::optional<wire::OptimizerSpec> optimizer() const;

  // True if the optimizer is ONEBIT_ADAM: gradients are not compressed, momenta are.
  bool compresses_momenta() const;
  SharedMomentum* momentum() { return &momentum_; }

  // Returns the newest plan, which lives as long as this object. REQUIRES: Start was OK.
  CompressionPlan* plan() const;

  // Returns how the version that round `version` makes is pulled, as PushItem.change_codec says it.
  std::string ChangeCodecFor(const TensorPlan& tensor, uint64_t version) const;

  // True if this version or the next travels as a change, or may carry a momentum. A pull of this
  // version then goes through the merger's copy, because a change is added to the version before
  // it.
  bool NeedsCopy(const TensorPlan& tensor, uint64_t version) const;

  // Returns, for example, "1bit:scaling=l1, pulls fp16", or "powersgd from 4096 bytes": a fixed
  // threshold counts if the codec has phases.
  std::string Description() const;

  // Logs once, on rank 0, what is questionable about the codec, and about it with the optimizer,
  // that it measures, and what a loaded table has decided. REQUIRES: the worker has joined.
  void WarnOfCodec();

  // Logs once in which ways the workers' compression differs. Empty: it does not.
  void WarnOfDifference(const std::string& difference);

  // Ends every wait for a decision, now and later, with the first `why`.
  void Fail(const absl::Status& why);

 private:
  // What the user has chosen for pushes.
  struct Chosen {
    std::string codec;
    std::optional<uint64_t> fixed_threshold_bytes;
    std::string policy;
  };

  absl::Status UseChosen(const Chosen& chosen, PushPipeline* pushes);
  absl::StatusOr<CompressionPlanOptions> PlanOptionsFor(const Chosen& chosen) const;
  absl::Status CheckTogether(const Codec& codec, const std::string& policy,
                             const std::optional<wire::OptimizerSpec>& optimizer) const;
  Chosen chosen() const;
  // Returns the highest of all keys, as far as this worker knows it; 0: it does not.
  double LearningRateOf(uint64_t round) const;

  const wire::StoreMode mode_;
  const KVStoreOptions& options_;
  const KeyTable* const keys_;
  const WorkerNode* const node_;
  std::unique_ptr<const Codec> pull_codec_;  // made by Start, constant afterwards

  SharedMomentum momentum_;

  mutable Mutex mutex_;
  absl::Status failed_ ABSL_GUARDED_BY(mutex_);
  // None is erased: a pointer that a thread found here stays valid.
  std::vector<std::unique_ptr<CompressionPlan>> plans_ ABSL_GUARDED_BY(mutex_);
  Chosen chosen_ ABSL_GUARDED_BY(mutex_);  // of the newest plan
  std::optional<wire::OptimizerSpec> optimizer_ ABSL_GUARDED_BY(mutex_);
  std::string told_difference_ ABSL_GUARDED_BY(mutex_);  // between workers' compression
  std::set<std::string> told_ ABSL_GUARDED_BY(mutex_);   // by WarnOfCodec
};

}  // namespace slimps

#endif  // SLIMPS_WORKER_STORE_CODEC_CHOICE_H_
