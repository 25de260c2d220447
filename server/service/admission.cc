// SPDX-License-Identifier: Apache-2.0
#include "server/service/admission.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "proto/net/membership/node_name.h"

namespace slimps {

void Admission::SetRoster(const wire::Roster& roster) {
  if (roster.epoch() < epoch_) return;
  epoch_ = roster.epoch();
  incarnations_.clear();
  for (const wire::RosterEntry& entry : roster.nodes()) {
    if (entry.node().role() != wire::WORKER) continue;
    if (!IncarnationOf(entry).is_set()) continue;
    incarnations_[entry.node().rank()] = IncarnationOf(entry);
  }
}

absl::Status Admission::Check(const wire::Header& header, const std::string& user_id) const {
  if (header.job_id() != job_id_) {
    return absl::PermissionDeniedError("this server belongs to another job");
  }
  const wire::NodeRef& sender = header.sender();
  if (sender.role() != wire::WORKER || sender.rank() >= num_workers_) {
    return absl::PermissionDeniedError("a server serves the workers of its job alone");
  }
  if (!user_id.empty() && user_id != NodeName(sender)) {
    return absl::PermissionDeniedError("this is another node's key");
  }
  const auto found = incarnations_.find(sender.rank());
  if (found != incarnations_.end() && found->second == IncarnationOf(header)) {
    return absl::OkStatus();
  }
  if (header.membership_epoch() > epoch_) {
    return absl::UnavailableError("this server has not seen that roster yet");
  }
  const std::string gone = absl::StrCat("this server", kDoesNotKnow);
  return found == incarnations_.end() ? absl::PermissionDeniedError(gone)
                                      : absl::FailedPreconditionError(gone);
}

}  // namespace slimps
