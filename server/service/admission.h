// SPDX-License-Identifier: Apache-2.0
// Decides which messages a server listens to: those of workers of its job, as the newest roster has
// them. Owned by ServerService.
//
//   admission.SetRoster(roster);
//   const absl::Status admitted = admission.Check(message.header, message.user_id);
//   if (absl::IsUnavailable(admitted)) ...   // park it
#ifndef SLIMPS_SERVER_SERVICE_ADMISSION_H_
#define SLIMPS_SERVER_SERVICE_ADMISSION_H_

#include <cstdint>
#include <map>
#include <string>

#include "absl/status/status.h"
#include "proto/incarnation.h"
#include "proto/slimps.pb.h"

namespace slimps {

// Thread-compatible. Pure.
class Admission final {
 public:
  Admission(std::string job_id, uint32_t num_workers)
      : job_id_(std::move(job_id)), num_workers_(num_workers) {}

  // Ignores a roster that is older than the one held.
  void SetRoster(const wire::Roster& roster);

  // Returns OK if the sender is a worker of this job. `user_id` names the node whose key the
  // connection was made with. A local socket asks for no key: there the incarnation proves who the
  // sender is, which told it to the scheduler over CURVE. The error texts are for strangers: short,
  // and without anything of the message or the roster.
  // PermissionDenied: another job, not a worker, another node's key, or not in the roster.
  // FailedPrecondition: a newer process has replaced the sender.
  // Unavailable: the sender has seen a newer roster than this server. Check again once it is here.
  [[nodiscard]] absl::Status Check(const wire::Header& header, const std::string& user_id) const;

  uint64_t epoch() const { return epoch_; }

 private:
  const std::string job_id_;
  const uint32_t num_workers_;
  uint64_t epoch_ = 0;
  std::map<uint32_t, Incarnation> incarnations_;  // by worker
};

}  // namespace slimps

#endif  // SLIMPS_SERVER_SERVICE_ADMISSION_H_
