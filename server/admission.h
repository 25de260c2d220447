// Whom a server listens to: workers of its job, as the newest roster has them.
#ifndef SLIMPS_SERVER_ADMISSION_H_
#define SLIMPS_SERVER_ADMISSION_H_

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

  // An older roster than the one held is ignored.
  void SetRoster(const wire::Roster& roster);

  // PermissionDenied: another job, no worker, not in the roster. FailedPrecondition: a process that its successor has
  // replaced. Unavailable: the sender has seen a newer roster than this server; check again once it is here. The words
  // are for strangers: short, without anything of the message or of the roster.
  [[nodiscard]] absl::Status Check(const wire::Header& header) const;

  uint64_t epoch() const { return epoch_; }

 private:
  const std::string job_id_;
  const uint32_t num_workers_;
  uint64_t epoch_ = 0;
  std::map<uint32_t, Incarnation> incarnations_;  // by worker
};

}  // namespace slimps

#endif  // SLIMPS_SERVER_ADMISSION_H_
