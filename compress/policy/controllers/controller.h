// SPDX-License-Identifier: Apache-2.0
// Controller: a policy that adapts. Workers report every so many rounds what compressing their
// tensors would cost (report.h); the scheduler merges the reports and asks the controller for the
// next decision (decision.h). A controller is pure: it has no clock, no lock and no I/O, and equal
// calls give equal decisions.
//
//   auto controller = MakeController("lgreco:codec=topk:ratio=0.01,objective=time");
//   (*controller)->plan().every_rounds;                  // when workers report
//   (*controller)->Candidates(tensor);                   // and what they measure of a tensor
//   auto decision = (*controller)->Begin(tensors);       // holds from round 1
//   auto next = (*controller)->Decide(job_report, from_round);     // nullopt: nothing changes
//
// Each worker makes a controller of the same text to learn its plan and its candidates. The
// scheduler's makes the decisions.
//
// Policies are written like codecs: NAME or NAME:option=value,option=value. A codec inside a policy
// has ; between its options: "lgreco:codec=topk:ratio=0.01;value=fp16,objective=time".
#ifndef SLIMPS_COMPRESS_POLICY_CONTROLLERS_CONTROLLER_H_
#define SLIMPS_COMPRESS_POLICY_CONTROLLERS_CONTROLLER_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "compress/policy/controllers/decision.h"
#include "compress/policy/controllers/report.h"

namespace slimps {

// When workers report, and what.
struct ReportPlan {
  uint64_t every_rounds = 0;  // a report covers this many rounds; 0: workers report nothing
  // True: in every round, workers measure the gains of all steps of the ladders and choose by them.
  // Reports then have no figures of tensors.
  bool ladders = false;

  friend bool operator==(const ReportPlan&, const ReportPlan&) = default;
};

// Thread-compatible.
class Controller {
 public:
  virtual ~Controller() = default;

  // Returns the policy as text, with every option that was given.
  virtual std::string spec() const = 0;

  virtual const ReportPlan& plan() const = 0;

  // Returns the codecs that workers measure for a tensor, as codec specs, in the order of
  // LevelReports. Raw ("none") is not among them: it needs no measuring. Empty: the tensor needs
  // no levels. The result depends on the options and the tensor alone.
  virtual std::vector<std::string> Candidates(const TensorInfo& tensor) const = 0;

  // Returns all codecs that a decision may name for a tensor, beside raw. The result depends on the
  // options and the tensor alone.
  virtual std::vector<std::string> Choices(const TensorInfo& tensor) const {
    return Candidates(tensor);
  }

  // Returns the decision that holds from round 1 until the first one of Decide. Called once, before
  // Decide; a resumed controller is not asked.
  // InvalidArgument: the policy makes no sense for these tensors. The message says what would do.
  [[nodiscard]] virtual absl::StatusOr<PolicyDecision> Begin(
      std::span<const TensorInfo> tensors) = 0;

  // Takes the merged report of a window. Returns the decision that holds from `from_round`, or
  // nullopt if the one in force stays.
  // REQUIRES: reports come by rising rounds, and from_round is over report.round.
  // FailedPrecondition: the options ask for what this report shows to be impossible, e.g. a budget
  // that nothing meets. The message says what would do. The decision in force stays, and the
  // controller takes the next report.
  [[nodiscard]] virtual absl::StatusOr<std::optional<PolicyDecision>> Decide(
      const Report& report, uint64_t from_round) = 0;

  // Returns the state as printable text without line breaks. A controller of the same spec that
  // restores it decides from then on as this one would.
  virtual std::string SaveState() const = 0;

  // Takes a state that SaveState returned. Called instead of Begin.
  // InvalidArgument: the text is no state of this policy. Nothing has changed.
  [[nodiscard]] virtual absl::Status RestoreState(std::string_view state) = 0;
};

// Makes the controller that `text` describes.
// InvalidArgument: the text has another form, a policy, option or value is unknown or out of its
// range, or a codec is one that the policy does not know. The message gives the nearest valid name
// or the range. A codec's own options are checked by whoever makes that codec: make every candidate
// before a job begins.
[[nodiscard]] absl::StatusOr<std::unique_ptr<Controller>> MakeController(std::string_view text);

// Returns the names of all policies, for lists and suggestions.
std::vector<std::string_view> ControllerNames();

}  // namespace slimps

#endif  // SLIMPS_COMPRESS_POLICY_CONTROLLERS_CONTROLLER_H_
