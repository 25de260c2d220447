// CompressionPlan: which codec a tensor's push of a round uses, as this worker knows it.
//
//                     pre_steps rounds pushed              CodecMap arrived
//   kProfiling  ------------------------------>  kWaiting  ----------------->  kDecided
//   (odd raw, even compressed; stop and wait)    (raw)                         (threshold or map,
//   from its round on) A fixed threshold, a loaded table or no compression begin at kDecided.
//
// Source: SlimGC section 3.3. Thread-safe.
#ifndef SLIMPS_WORKER_COMPRESSION_PLAN_H_
#define SLIMPS_WORKER_COMPRESSION_PLAN_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "compress/codec/codec.h"
#include "compress/policy/codec_map.h"
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
  uint64_t remeasure_every = 0;  // rounds from one pair of measured rounds to the next; 0: never
};

class CompressionPlan final {
 public:
  [[nodiscard]] static absl::StatusOr<std::unique_ptr<CompressionPlan>> Create(
      const CompressionPlanOptions& options);

  // Rounds up to pre_steps while nothing is decided: every tensor is measured, alone on the wire.
  bool IsProfiled(uint64_t round) const;
  // Whether this tensor's push of `round` is measured, alone on the wire.
  bool MeasuresPush(const TensorPlan& tensor, uint64_t round) const;
  // Whether the pull of the version that `round` makes is measured: asked for again once that version is there.
  bool MeasuresPull(const TensorPlan& tensor, uint64_t round) const;
  // Waits for the decision where `round` needs one. DeadlineExceeded: the other workers did not
  // report.
  [[nodiscard]] absl::StatusOr<const Codec*> CodecFor(const TensorPlan& tensor, uint64_t round,
                                                      absl::Duration timeout);
  // How the version that `round` makes is to be pulled, as its pushes say in change_codec: a codec spec, or "" for the
  // weights as they are. Never waits: CodecFor of that round has.
  std::string ChangeCodecFor(const TensorPlan& tensor, uint64_t round) const;
  // One measured push; `coding` (encode and decode) is that of a compressed one.
  void Record(const TensorPlan& tensor, uint64_t round, absl::Duration communication,
              absl::Duration coding);
  // One measured pull of the version that `round` made, whose answer was of the kind that ChangeCodecFor names: from the
  // request, when that version was there, to the last answer; `coding` is encode and decode of a change, else zero.
  void RecordPull(const TensorPlan& tensor, uint64_t round, absl::Duration communication,
                  absl::Duration coding);

  // Ends profiling. The report for the scheduler, once; nullopt: nothing (more) to report.
  std::optional<wire::ThresholdReport> TakeReport();
  // Takes a decision of the scheduler. InvalidArgument: a codec this worker does not know.
  [[nodiscard]] absl::Status OnCodecMap(const wire::CodecMap& map);
  void Fail(const absl::Status& why);

  std::optional<wire::CodecMap> decision() const;
  // What this worker compresses with where it does; of the codec "none" where it never does. Lives as long as the plan.
  const Codec& compressor() const { return *compressor_; }

 private:
  enum class State { kProfiling, kWaiting, kDecided };

  explicit CompressionPlan(const CompressionPlanOptions& options) : options_(options) {}
  absl::StatusOr<const Codec*> FindCodec(const std::string& spec)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Decided, failed, or so early that undecided rounds are raw: the round after the last profiled
  // one may pass.
  bool MayGoOn(uint64_t round) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const CompressionPlanOptions options_;
  const Codec* compressor_ = nullptr;  // one of codecs_; constant after Create

  mutable Mutex mutex_;
  State state_ ABSL_GUARDED_BY(mutex_) = State::kProfiling;
  std::map<std::string, std::unique_ptr<Codec>> codecs_
      ABSL_GUARDED_BY(mutex_);  // by spec; never erased
  ThresholdTable table_ ABSL_GUARDED_BY(mutex_);
  CodecMap map_ ABSL_GUARDED_BY(mutex_);
  std::optional<wire::CodecMap> decision_ ABSL_GUARDED_BY(mutex_);
  absl::Status failed_ ABSL_GUARDED_BY(mutex_);
  CondVar decided_;
};

}  // namespace slimps

#endif  // SLIMPS_WORKER_COMPRESSION_PLAN_H_
