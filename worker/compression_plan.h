// CompressionPlan: which codec a tensor's push of a round uses, and its pull, as this worker knows it.
//
//                     pre_steps rounds pushed              CodecMap arrived
//   kProfiling  ------------------------------>  kWaiting  ----------------->  kDecided
//   (odd raw, even compressed; stop and wait)    (raw)                         (threshold or map, from its round on)
//
// A fixed threshold, a loaded table or no compression begin at kDecided. With remeasure_every, some rounds of kDecided
// are measured in a few tensors (compress/policy/measured_rounds.h) and reported; each report is answered by a CodecMap,
// and no round is begun before it at which that map could already hold.
//
// What is measured is the codec as it will be after its warm-up (Codec::settled_spec), whatever the round: a table speaks
// for the rounds to come.
//
// Source: SlimGC section 3.3. Thread-safe.
#ifndef SLIMPS_WORKER_COMPRESSION_PLAN_H_
#define SLIMPS_WORKER_COMPRESSION_PLAN_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "compress/codec/codec.h"
#include "compress/policy/codec_map.h"
#include "compress/policy/measured_rounds.h"
#include "compress/policy/threshold_table.h"
#include "proto/base/mutex.h"
#include "proto/slimps.pb.h"
#include "worker/key_table.h"

namespace slimps {

struct CompressionPlanOptions {
  std::string compression = "none";
  std::optional<uint64_t> fixed_threshold_bytes;
  int pre_steps = 20;
  std::optional<ThresholdTable> table;  // loaded: decides at once
  std::string pull_compression = "none";
  std::optional<uint64_t> fixed_pull_threshold_bytes;
  std::optional<ThresholdTable> pull_table;
  uint64_t remeasure_every = 0;  // rounds from one pair of measured rounds to the next; 0: never
  // Whether this worker measures a tensor at all; null: every one. Others may: codecs are the same without.
  std::function<bool(const TensorPlan&)> is_measured = nullptr;
};

class CompressionPlan final {
 public:
  // How often CodecFor may come to its timeout for want of the answer to a later report, before the worker goes on
  // without it.
  static constexpr int kPatience = 3;

  [[nodiscard]] static absl::StatusOr<std::unique_ptr<CompressionPlan>> Create(
      const CompressionPlanOptions& options);

  // Rounds up to pre_steps while nothing is decided: every tensor is measured, alone on the wire.
  bool IsProfiled(uint64_t round) const;
  // Whether anything of it is measured, for the profile or during training: nothing else should be on the link.
  bool IsMeasured(uint64_t round) const;
  // Whether this tensor's push of `round` is measured, alone on the wire.
  bool MeasuresPush(const TensorPlan& tensor, uint64_t round);
  // Whether the pull of the version that `round` makes is measured: asked for again once that version is there.
  bool MeasuresPull(const TensorPlan& tensor, uint64_t round);
  // Waits for the decision where `round` needs one. DeadlineExceeded: the other workers did not
  // report.
  [[nodiscard]] absl::StatusOr<const Codec*> CodecFor(const TensorPlan& tensor, uint64_t round,
                                                      absl::Duration timeout);
  // How the version that `round` makes is to be pulled, as its pushes say in change_codec: a codec spec, or "" for the
  // weights as they are. Never waits: of a round whose decision has not come, what is known so far; pushes ask after
  // CodecFor, which has waited.
  std::string ChangeCodecFor(const TensorPlan& tensor, uint64_t round);
  // One measured push with the codec of CodecFor; `coding` (encode and decode) is that of a compressed one.
  void RecordPush(const TensorPlan& tensor, uint64_t round, absl::Duration communication,
                  absl::Duration coding);
  // One measured pull of the version that `round` made, whose answer was of the kind that ChangeCodecFor names: from the
  // request, when that version was there, to the last answer; `coding` is encode and decode of a change, else zero.
  void RecordPull(const TensorPlan& tensor, uint64_t round, absl::Duration communication,
                  absl::Duration coding);

  // Before a push of `round`: the report for the scheduler where one is due, once; else nullopt.
  std::optional<wire::ThresholdReport> TakeReport(uint64_t round);
  // The last report again while it is unanswered: it, or the answer, may have been lost.
  std::optional<wire::ThresholdReport> UnansweredReport() const;
  // No more pushes will come: what the scheduler must know of that.
  std::vector<wire::ThresholdReport> TakeLastReports();
  // Takes a decision of the scheduler; one that is older than the newest is none. InvalidArgument: a codec this worker
  // does not know.
  [[nodiscard]] absl::Status OnCodecMap(const wire::CodecMap& map);
  void Fail(const absl::Status& why);

  std::optional<wire::CodecMap> decision() const;
  // What this worker compresses with where it does; of the codec "none" where it never does. Lives as long as the plan.
  const Codec& compressor() const { return *compressor_; }
  // The same of what servers answer its pulls with.
  const Codec& pull_compressor() const { return *pull_compressor_; }

 private:
  enum class State { kProfiling, kWaiting, kDecided };
  // Of one direction.
  struct Side {
    std::string codec = "none";
    std::string settled_codec = "none";  // the same once its warm-up is over: what is measured
    bool automatic = false;              // measured and decided by the scheduler
    bool profiled = false;               // in the first pre_steps rounds
    CodecMap map;
    ThresholdTable profile;
    std::map<uint64_t, ThresholdTable> pairs;  // the newest of each measured pair
  };
  struct Awaited {
    wire::ThresholdReport report;
    uint64_t from_round = 0;  // the first round for which its answer could hold
    int timeouts = 0;
  };

  explicit CompressionPlan(const CompressionPlanOptions& options);
  absl::Status StartSide(const std::optional<uint64_t>& fixed_threshold,
                         const std::optional<ThresholdTable>& table, const Codec& codec, Side* side)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<const Codec*> FindCodec(const std::string& spec)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Decided, failed, or so early that undecided rounds are raw: the round after the last profiled
  // one may pass.
  bool MayGoOn(uint64_t round) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The codec that holds for the tensor in `round`; "none": as it is.
  std::string SpecFor(const Side& side, const TensorPlan& tensor, uint64_t round) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool Measures(const Side& side, const TensorPlan& tensor, uint64_t round) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Whether the pair that `round` belongs to measures this tensor.
  bool IsChosen(const Side& side, const TensorPlan& tensor, uint64_t round) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Record(Side* side, const TensorPlan& tensor, uint64_t round, StepKind kind,
              absl::Duration communication, absl::Duration coding)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // What is to be reported of this direction now.
  ThresholdTable Recent(const Side& side) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  wire::ThresholdReport ProfileReport() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  wire::ThresholdReport PairReport(uint64_t pair, uint64_t round)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void See(const TensorPlan& tensor) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const CompressionPlanOptions options_;
  const Codec* compressor_ = nullptr;  // one of codecs_; constant after Create
  const Codec* pull_compressor_ = nullptr;

  mutable Mutex mutex_;
  State state_ ABSL_GUARDED_BY(mutex_) = State::kDecided;
  std::map<std::string, std::unique_ptr<Codec>> codecs_
      ABSL_GUARDED_BY(mutex_);  // by spec; never erased
  Side push_ ABSL_GUARDED_BY(mutex_);
  Side pull_ ABSL_GUARDED_BY(mutex_);
  MeasuredRounds rounds_ ABSL_GUARDED_BY(mutex_) = MeasuredRounds(0, 0);
  uint64_t reported_pair_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<uint64_t, std::set<KeyId>> tensors_ ABSL_GUARDED_BY(mutex_);  // pushed, by bytes
  std::map<uint64_t, uint64_t> counts_ ABSL_GUARDED_BY(mutex_);  // how many those are: a step's
  std::optional<Awaited> awaited_ ABSL_GUARDED_BY(mutex_);
  std::optional<wire::CodecMap> decision_ ABSL_GUARDED_BY(mutex_);
  absl::Status failed_ ABSL_GUARDED_BY(mutex_);
  CondVar decided_;
};

}  // namespace slimps

#endif  // SLIMPS_WORKER_COMPRESSION_PLAN_H_
