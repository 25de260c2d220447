// What the scheduler tells people while a job forms: who came, who was refused and why, who is still missing. Pure: lines go
// out, somebody else writes them.
//
// Refusals are told by rate, each text once, and what a stranger wrote is cut and escaped: nobody fills a disk with them.
#ifndef SLIMPS_SCHEDULER_JOIN_LOG_H_
#define SLIMPS_SCHEDULER_JOIN_LOG_H_

#include <cstddef>
#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "proto/slimps.pb.h"
#include "scheduler/membership_table.h"

namespace slimps {

// Thread-compatible.
class JoinLog final {
 public:
  struct Options {
    absl::Duration patience =
        absl::Seconds(10);      // until the missing are named; then twice as long, and so on
    size_t most_refusals = 20;  // at once; then one for each `refusal_every`
    absl::Duration refusal_every = absl::Seconds(3);
    size_t most_remembered = 8;  // refusals
  };

  explicit JoinLog(const Options& options)
      : options_(options), next_missing_(options.patience), refusals_left_(options.most_refusals) {}

  // `missing` as MissingNodes has it.
  void Joined(const Member& member, const std::string& missing);
  // It is gone, and another process takes its place.
  void Replaced(const Member& member);
  // `age` is how long the scheduler has been there.
  void Refused(const wire::Header& header, const absl::Status& why, absl::Duration age);
  // While nodes are missing: says so when it is time.
  void Waiting(const MembershipTable& members, absl::Duration age);

  // Lines of no more than a few hundred bytes, each given once.
  std::vector<std::string> Take() { return std::exchange(lines_, {}); }
  // The newest refusals, oldest first.
  const std::deque<std::string>& refusals() const { return refusals_; }

 private:
  const Options options_;
  absl::Duration next_missing_;
  size_t refusals_left_;
  absl::Duration refilled_at_;
  size_t untold_ = 0;  // refusals, since the last that was told
  std::deque<std::string> refusals_;
  std::vector<std::string> lines_;
};

}  // namespace slimps

#endif  // SLIMPS_SCHEDULER_JOIN_LOG_H_
