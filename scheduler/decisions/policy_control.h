// SPDX-License-Identifier: Apache-2.0
// The controller of a job's policy, and what it has decided. Owned by ThresholdDecision, which says
// when all workers have reported. Pure.
//
//   PolicyControl control;
//   SLIMPS_RETURN_IF_ERROR(control.Check(worker, report));          // for each report that comes
//   SLIMPS_RETURN_IF_ERROR(control.Decide(reports, from_round, &map));
//
// The first reports make the controller. It begins anew, or goes on from the state that resumed
// workers bring.
#ifndef SLIMPS_SCHEDULER_DECISIONS_POLICY_CONTROL_H_
#define SLIMPS_SCHEDULER_DECISIONS_POLICY_CONTROL_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "compress/policy/controllers/controller.h"
#include "proto/slimps.pb.h"

namespace slimps {

// The latest round that a report may name: far beyond any training, and far from overflow.
inline constexpr uint64_t kMaxReportedRound = uint64_t{1} << 48;

// Thread-compatible.
class PolicyControl final {
 public:
  // InvalidArgument: another policy than the other workers have (names both), or one that does not
  // exist, or a round that no training reaches.
  [[nodiscard]] absl::Status Check(uint32_t worker, const wire::PolicyReport& report);

  // Decides by the reports of one window, by rank, and writes what holds from `from_round` on into
  // `map`. Workers that have measured nothing are left out.
  // REQUIRES: Check was OK for each of them.
  // InvalidArgument: reports that disagree, or a policy that makes no sense for these tensors.
  // FailedPrecondition: the first reports show that the policy asks for what is impossible. Where
  // later ones do, what is in force stays and the map's reason says why.
  // What is in force stays after an error.
  [[nodiscard]] absl::Status Decide(const std::map<uint32_t, wire::PolicyReport>& reports,
                                    uint64_t from_round, wire::CodecMap* map);

 private:
  // Makes the controller, with what it decides for these tensors before any report.
  absl::Status Start(const std::map<uint32_t, wire::PolicyReport>& reports,
                     const std::vector<TensorInfo>& tensors);

  std::string policy_;   // "": no worker has reported
  uint32_t worker_ = 0;  // that named it
  std::unique_ptr<Controller> controller_;
  PolicyDecision in_force_;
  uint64_t round_ = 0;    // the newest round that a decision took in
  bool decided_ = false;  // by a report of this job or of the one that it goes on from
};

}  // namespace slimps

#endif  // SLIMPS_SCHEDULER_DECISIONS_POLICY_CONTROL_H_
