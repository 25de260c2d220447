// SPDX-License-Identifier: Apache-2.0
// Makes the log lines for people about who is in a job: which nodes came, which were refused and
// why, which are waited for. Owned by SchedulerState. Pure: the caller writes
// the lines.
//
//   log.Joined(member, MissingNodes(roster));
//   for (const std::string& line : log.Take()) LOG(INFO) << line;
//
// Refusals are bounded by rate, each text is told once, and what a stranger wrote is cut and
// escaped. So nobody can fill a disk with them.
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
    // Bounds the lines that others can cause: so many at once, then one at each `line_every`.
    size_t max_lines = 20;
    absl::Duration line_every = absl::Seconds(3);
    size_t max_remembered = 8;  // that refusals() returns
  };

  explicit JoinLog(const Options& options) : options_(options), lines_left_(options.max_lines) {}

  // Adds a line: `member` has come. `missing` is what MissingNodes returns.
  void Joined(const Member& member, const std::string& missing);

  // Adds a line: `member` is gone, and another process takes its place.
  void Replaced(const Member& member);

  // Adds a line, unless there were too many lately: a node has closed its connection, and may be
  // silent for this `timeout`. `age` is how long the scheduler has run.
  void Disconnected(const Member& member, absl::Duration timeout, absl::Duration age);

  // Adds a line: a node is gone for this `reason`, and the job waits for it.
  void Awaited(const std::string& reason, absl::Duration timeout);

  // Adds a line: the job goes on without a worker that was waited for.
  void LeftBehind(const Member& member, absl::Duration timeout);

  // Remembers that the sender of `header` was refused because of `why`. Adds a line for it, unless
  // its text is remembered already or too many were told lately. `age` is as above.
  void Refused(const wire::Header& header, const absl::Status& why, absl::Duration age);

  // Removes and returns the lines, of at most a few kilobytes each.
  std::vector<std::string> Take() { return std::exchange(lines_, {}); }

  // Returns the newest refusals, oldest first.
  const std::deque<std::string>& refusals() const { return refusals_; }

 private:
  // Returns true if a line that others cause may be told now.
  bool TakeRoom(absl::Duration age);

  const Options options_;
  size_t lines_left_;
  absl::Duration refilled_at_;
  size_t untold_ = 0;  // refusals since the last one told
  std::deque<std::string> refusals_;
  std::vector<std::string> lines_;
};

}  // namespace slimps

#endif  // SLIMPS_SCHEDULER_JOIN_LOG_H_
