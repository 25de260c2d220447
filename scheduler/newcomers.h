// SPDX-License-Identifier: Apache-2.0
// Newcomers: nodes that register and that may be members started again. Each
// waits here until every member that it may replace was heard or is gone, and its place may be
// taken (MembershipTable::MustWait). Owned by SchedulerState.
//
//   if (!newcomers.Hold(from, header, now, members, &probes)) Admit(...);
//   while (auto settled = newcomers.TakeSettled(members, heard_until)) Admit(...);
//
// Thread-compatible.
#ifndef SLIMPS_SCHEDULER_NEWCOMERS_H_
#define SLIMPS_SCHEDULER_NEWCOMERS_H_

#include <cstddef>
#include <optional>
#include <vector>

#include "proto/base/clock.h"
#include "proto/net/transport.h"
#include "proto/slimps.pb.h"
#include "scheduler/membership_table.h"

namespace slimps {

class Newcomers final {
 public:
  struct Settled {
    PeerId from;
    wire::Header header;
    // The first member that is gone, whose place the newcomer takes; null: none is. Valid until the
    // table changes.
    const Member* gone = nullptr;
  };

  // Keeps at most `most` newcomers, so that strangers cannot fill the memory.
  explicit Newcomers(size_t most) : most_(most) {}

  // Keeps the newcomer, and adds to `probes` those that have not answered since it came: members
  // that it may replace and, where that is a worker of a job that runs, the servers. Returns false,
  // having kept nothing, if it can be admitted or refused at once.
  bool Hold(PeerId from, const wire::Header& header, SteadyTime now, const MembershipTable& members,
            std::vector<PeerId>* probes);

  // Takes the first newcomer whose members have all answered the probe, are gone, or had the probe
  // timeout for it, and whose place may be taken; nullopt if there is none. Silence counts up to
  // `heard_until`. InfinitePast: silence does not count.
  std::optional<Settled> TakeSettled(const MembershipTable& members, SteadyTime heard_until);

  // Lets newcomers of this role wait anew: one of them has just taken a place, and may have died
  // while it waited.
  void WaitAnew(wire::Role role, SteadyTime now);

  // True if a newcomer waits for this member's place.
  bool WaitFor(const Member& gone, const MembershipTable& members) const;

  // Takes the first newcomer, whatever its members do; nullopt if there is none. For a job that
  // forms no more.
  std::optional<Settled> TakeAny();

 private:
  struct Newcomer {
    PeerId from;
    wire::Header header;
    SteadyTime since;
    SteadyTime heard;  // it registers again and again
  };

  Settled Take(size_t index, const Member* gone);

  const size_t most_;
  std::vector<Newcomer> newcomers_;  // in order of arrival
};

}  // namespace slimps

#endif  // SLIMPS_SCHEDULER_NEWCOMERS_H_
