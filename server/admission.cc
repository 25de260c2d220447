#include "server/admission.h"

#include "absl/strings/str_cat.h"

namespace slimps {

void Admission::SetRoster(const wire::Roster& roster) {
  if (roster.epoch() < epoch_) return;
  epoch_ = roster.epoch();
  incarnations_.clear();
  for (const wire::RosterEntry& entry : roster.nodes()) {
    if (entry.node().role() != wire::WORKER) continue;
    incarnations_[entry.node().rank()] = entry.incarnation();
  }
}

absl::Status Admission::Check(const wire::Header& header) const {
  const wire::NodeRef& sender = header.sender();
  if (header.job_id() != job_id_) {
    return absl::PermissionDeniedError(absl::StrCat(
        "this server belongs to job \"", job_id_, "\", the message to \"", header.job_id(), "\""));
  }
  if (sender.role() != wire::WORKER || sender.rank() >= num_workers_) {
    return absl::PermissionDeniedError(
        absl::StrCat("a server serves workers 0 to ", num_workers_ - 1, ", the message is from ",
                     wire::Role_Name(sender.role()), " ", sender.rank()));
  }
  const auto found = incarnations_.find(sender.rank());
  if (found != incarnations_.end() && found->second == header.incarnation()) {
    return absl::OkStatus();
  }
  if (header.membership_epoch() > epoch_) {
    return absl::UnavailableError(absl::StrCat("worker ", sender.rank(), " has seen roster ",
                                               header.membership_epoch(), ", this server only ",
                                               epoch_));
  }
  if (found == incarnations_.end()) {
    return absl::PermissionDeniedError(
        absl::StrCat("worker ", sender.rank(), " is not in roster ", epoch_));
  }
  return absl::FailedPreconditionError(
      absl::StrCat("worker ", sender.rank(), " of incarnation ", absl::Hex(header.incarnation()),
                   " is not the one in roster ", epoch_, ", ", absl::Hex(found->second)));
}

}  // namespace slimps
