// SPDX-License-Identifier: Apache-2.0
// Makes the log lines about waits that last too long: when one begins, again at growing intervals,
// and when it is over. Pure: the caller brings the time and writes the lines.
//
//   for (const std::string& line : log.Update(FindWaits(...), now)) LOG(WARNING) << line;
#ifndef SLIMPS_SCHEDULER_WATCH_STALL_LOG_H_
#define SLIMPS_SCHEDULER_WATCH_STALL_LOG_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "proto/base/clock.h"
#include "scheduler/watch/waits.h"

namespace slimps {

// A wait that lasts too long.
struct Stall {
  std::string text;
  absl::Duration age;
  std::vector<NodePlace> blamed;
};

// Thread-compatible.
class StallLog final {
 public:
  // Takes the waits that there are now. Returns the lines to write. A wait that is told after 10 s
  // is told again after 20 s, 40 s and so on.
  std::vector<std::string> Update(const std::vector<Wait>& waits, SteadyTime now);

  // Forgets all waits, because the job is over.
  void Clear() { open_.clear(); }

  // Returns the stalls that go on at `now`.
  std::vector<Stall> GoingOn(SteadyTime now) const;

  // Returns the lines of the waits that others do not explain, also of those that are not told yet,
  // the longest first.
  std::string Lines(SteadyTime now) const;

  // Returns how many stalls have begun.
  uint64_t begun() const { return begun_; }

 private:
  struct Open {
    SteadyTime since;
    absl::Duration tell_at = absl::InfiniteDuration();  // the age at which it is told next
    bool told = false;
    Wait newest;
  };

  std::map<std::string, Open> open_;  // by Wait::id
  uint64_t begun_ = 0;
};

}  // namespace slimps

#endif  // SLIMPS_SCHEDULER_WATCH_STALL_LOG_H_
