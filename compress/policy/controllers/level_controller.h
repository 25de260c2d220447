// SPDX-License-Identifier: Apache-2.0
// LevelController: gives each tensor one level of one codec, so that the total error stays within
// that of a uniform setting. The policies that it serves differ in how they allocate the levels
// (allocation.h): uniform, kmeans, global_topk, lgreco and lgreco_accordion.
//
// The total error is the sum of the L2 norms of what tensors lose, as in L-GreCo's section 3 and in
// its authors' program. So a tensor with a small gradient counts more than in the squared error of
// the whole gradient. global_topk's is that squared error, since one threshold makes it least.
//
// Options (level_policies.cc says which policy takes which):
//   codec          the uniform setting, whose total error is the budget; default qsgd:bits=4
//   low, high      lgreco_accordion: the uniform setting is Accordion's choice for each tensor;
//                  default topk:ratio=0.1 and topk:ratio=0.01
//   budget         the total error as a part of that of sending nothing, instead of the uniform
//                  setting's
//   objective      size: fewest bytes; time: least predicted iteration time (iteration_model.h);
//                  default size
//   clusters       kmeans: the number of groups; default 6, L-GreCo's
//   eta            lgreco_accordion: as accordion's
//   every          rounds between decisions; default 200
//   min_elements   smaller tensors are sent raw; default 256
#ifndef SLIMPS_COMPRESS_POLICY_CONTROLLERS_LEVEL_CONTROLLER_H_
#define SLIMPS_COMPRESS_POLICY_CONTROLLERS_LEVEL_CONTROLLER_H_

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "compress/policy/allocation/allocation.h"
#include "compress/policy/controllers/codec_levels.h"
#include "compress/policy/controllers/controller.h"
#include "compress/policy/controllers/critical_regimes.h"
#include "compress/spec/spec_text.h"

namespace slimps {

enum class Allocator { kUniform, kClusters, kOneThreshold, kLeastCost };
enum class Objective { kSize, kTime };

struct LevelPolicy {
  SpecText spec;
  CodecLevels levels;  // the uniform setting is the first; Accordion's high level, the second
  Allocator allocator = Allocator::kLeastCost;
  Objective objective = Objective::kSize;
  std::optional<double> budget = {};  // a part of the error of sending nothing
  size_t clusters = 6;
  std::optional<CriticalRegimes> regimes = {};
  uint64_t every = 200;
  uint64_t min_elements = 256;
};

// Thread-compatible.
class LevelController final : public Controller {
 public:
  explicit LevelController(LevelPolicy policy);

  std::string spec() const override { return ToCodecSpec(policy_.spec); }
  const ReportPlan& plan() const override { return plan_; }
  std::vector<std::string> Candidates(const TensorInfo& tensor) const override;
  std::vector<std::string> Choices(const TensorInfo& tensor) const override;
  absl::StatusOr<PolicyDecision> Begin(std::span<const TensorInfo> tensors) override;
  absl::StatusOr<std::optional<PolicyDecision>> Decide(const Report& report,
                                                       uint64_t from_round) override;
  std::string SaveState() const override;
  absl::Status RestoreState(std::string_view text) override;

 private:
  // A report's tensors that have levels, and the problem that they pose.
  struct Measured {
    std::vector<const TensorReport*> tensors;
    AllocationProblem problem;
    Allocation uniform;
    double input = 0;  // the total error of sending nothing
  };

  // Returns what a tensor's squared error adds to the total.
  double ErrorOf(double norm2) const;
  std::string UniformCodec(const TensorInfo& tensor) const;
  Measured MeasuredIn(const Report& report) const;
  absl::StatusOr<Allocation> Allocate(const Report& report, const Measured& measured) const;
  Allocation AllocateTime(const Report& report, const Measured& measured,
                          const Allocation& reference) const;
  PolicyDecision DecisionFor(const Report& report, const Measured& measured,
                             const Allocation& chosen) const;
  std::string Summary(const Report& report, const Measured& measured,
                      const Allocation& chosen) const;

  LevelPolicy policy_;
  const ReportPlan plan_;
  std::map<KeyId, std::string> in_force_;
};

}  // namespace slimps

#endif  // SLIMPS_COMPRESS_POLICY_CONTROLLERS_LEVEL_CONTROLLER_H_
