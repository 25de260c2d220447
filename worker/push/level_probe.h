// SPDX-License-Identifier: Apache-2.0
// LevelProbe: measures, for a policy that adapts, what the codecs that it may choose would do to
// this worker's gradients. It encodes a sample of each partition's blocks with the real codecs.
// Gradients and residuals stay as they are.
//
//   probe.BeginRound(round, submitted, plan);             // before the round's first push
//   SLIMPS_RETURN_IF_ERROR(probe.See(part, residual, plan));     // each push, before its encoding
//   SLIMPS_ASSIGN_OR_RETURN(Report measured, probe.Take(plan));  // when a report is due
//
//   partition:  |#|...|#|...|#|...|#|...|   at most kSampleBlocks blocks of kBlockElements, evenly
//               |.|#..|.|#..|.|#..|.|#..|   spread, others in the next report (with ladders: in the
//               next round); squares and bytes are scaled up to the whole partition
//
// x in the report is the sum of the gradients since the last report, in the units that codecs see
// (gradient * grad_scale). Under a policy with ladders it measures the gains of their steps
// instead, in each round, on gradient + residual.
//
// Codecs of low rank whose factors are those of whole tensors (powersgd) are measured on whole
// tensors: the sums then take as much memory as the gradients. One factorisation, with the highest
// rank, tells the errors of all ranks (PhasedCodec::KeptNorm2). Times are those of the lowest and
// the highest rank, and lie on a line in between.
//
// One thread at a time may call it: the one that PushPipeline lets choose.
#ifndef SLIMPS_WORKER_PUSH_LEVEL_PROBE_H_
#define SLIMPS_WORKER_PUSH_LEVEL_PROBE_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "compress/codec/codec.h"
#include "compress/codec/encode_run.h"
#include "compress/policy/controllers/report.h"
#include "proto/base/clock.h"
#include "proto/base/key.h"
#include "proto/slimps.pb.h"
#include "worker/plan/compression_plan.h"
#include "worker/push/payload_maker.h"
#include "worker/tensor/key_table.h"

namespace slimps {

class LevelProbe final {
 public:
  static constexpr size_t kSampleBlocks = 4;  // of a partition

  LevelProbe(const PayloadMakerOptions& payloads, const Clock* clock)
      : payloads_(payloads), clock_(clock) {}

  // Notes that the pushes of a round begin, with one that was submitted then; of one that has
  // begun, does nothing. Tells the plan what the round before was like.
  void BeginRound(uint64_t round, SteadyTime submitted, CompressionPlan* plan);

  // Looks at a gradient that is about to be encoded. `residual` is what feedback would add; it may
  // be empty.
  [[nodiscard]] absl::Status See(const GradientPart& part, std::span<const float> residual,
                                 CompressionPlan* plan);

  // Returns what was seen since the last call: the tensors with all their partitions, by rising
  // key.
  [[nodiscard]] absl::StatusOr<Report> Take(CompressionPlan* plan);

  // Adds what was summed up since the last Take, and the newest round's gains, for a job that goes
  // on later. Load takes the sums back, as far as the partitions are those of `tensors`.
  void Save(wire::SavedPolicy* saved) const;
  [[nodiscard]] absl::Status Load(const wire::SavedPolicy& saved,
                                  const std::vector<const TensorPlan*>& tensors,
                                  CompressionPlan* plan);

 private:
  // What one level would do, scaled up to the partition.
  struct Figures {
    double error_norm2 = 0;
    double payload_bytes = 0;
    absl::Duration encode, decode;
    bool known = false;
  };
  struct Partition {
    std::vector<float> sum;    // the sample's, or all elements'; empty: nothing seen
    uint64_t first_round = 0;  // of the sum, whose blocks it has
    double input_norm2 = 0;
    std::vector<Figures> figures;  // by level
  };
  struct Tensor {
    const TensorPlan* plan = nullptr;
    std::vector<PolicySide::Level> levels;
    bool whole = false;  // some level needs the whole tensor: the sums are not those of a sample
    std::vector<Partition> partitions;
    std::vector<Figures> whole_figures;  // by level; of those that need the whole tensor
    absl::Duration ready;                // sum over the rounds seen
    uint64_t rounds = 0;
  };

  absl::StatusOr<Tensor*> Find(const TensorPlan& tensor, CompressionPlan* plan);
  // Measures all levels on a sample of one partition's sum.
  void Measure(const CompressionPlan& plan, const Tensor& tensor, size_t partition,
               Partition* seen);
  // Returns which blocks a sum is of: others in each report.
  static uint64_t TurnOf(const Partition& seen, const CompressionPlan& plan);
  // Measures the levels that need the whole tensor. REQUIRES: all of its partitions were seen.
  void MeasureWhole(uint32_t workers, Tensor* tensor);
  // Encodes the sample. A codec that cannot encode it leaves `figures` as they are. Each codec
  // encodes anew, since a report says how long that takes.
  void Try(const Codec& codec, const EncodeInput& input, size_t elements, Figures* figures);
  // Returns |C(x)|^2 / |x|^2 of the newest round, by step.
  std::vector<double> Gains() const;
  // Adds to the gains of this round.
  void TrySteps(const std::vector<const Codec*>& steps, const EncodeInput& input, double scale);
  static void AddTo(const Tensor& tensor, TensorReport* report);

  PayloadMakerOptions payloads_;
  const Clock* clock_;
  std::map<KeyId, Tensor> tensors_;
  EncodeWorkspace workspace_;
  std::vector<float> sample_;
  std::vector<std::byte> payload_, finer_payload_;
  std::vector<float> decoded_;

  uint64_t round_ = 0;  // the newest begun; 0: none
  SteadyTime began_;
  double input_norm2_ = 0;             // of the tensors with steps, in this round
  std::vector<double> decoded_norm2_;  // by step
};

}  // namespace slimps

#endif  // SLIMPS_WORKER_PUSH_LEVEL_PROBE_H_
