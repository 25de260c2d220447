// SPDX-License-Identifier: Apache-2.0
// What the nodes of a job agree on through the scheduler: barriers and sums, where keys lie, which
// codec is used when. Owned by SchedulerState. Pure.
//
//   if (agreements.Handle(member, header, members, &outbox)) ...   // it changed something
//   agreements.Leave(node, members, &outbox);
#ifndef SLIMPS_SCHEDULER_AGREEMENTS_H_
#define SLIMPS_SCHEDULER_AGREEMENTS_H_

#include <cstdint>
#include <vector>

#include "proto/slimps.pb.h"
#include "scheduler/barrier.h"
#include "scheduler/decisions/compression_roll.h"
#include "scheduler/decisions/threshold_decision.h"
#include "scheduler/membership_table.h"
#include "scheduler/outbox.h"
#include "scheduler/placement.h"
#include "scheduler/watch/job_view.h"

namespace slimps {

// Thread-compatible.
class Agreements final {
 public:
  Agreements(uint32_t num_workers, uint32_t num_servers);

  // Handles what a member asks or reports, and adds the answers to `out`, also those to other
  // members. Returns true if it counted. An error is answered, too; it does not count.
  // REQUIRES: header is a Barrier, DeclareKeys or ThresholdReport.
  bool Handle(const Member& member, const wire::Header& header, const MembershipTable& members,
              Outbox* out);

  // Returns what is decided; nullptr: nothing yet.
  const wire::CodecMap* Decided() const {
    return decision_.decision().has_value() ? &*decision_.decision() : nullptr;
  }

  // Waits for this worker no more, which has left the job.
  void Leave(const wire::NodeRef& node, const MembershipTable& members, Outbox* out);

  // Waits for this worker no more, which is away. It still waits for keys that the worker has not
  // declared: without them a new process could not take part.
  void SetAway(const wire::NodeRef& node, const MembershipTable& members, Outbox* out);

  // Waits for this worker again, which was away.
  void Return(const wire::NodeRef& node);

  // Returns the newest ticket of each barrier's name that is over.
  std::vector<wire::BarrierTicket> Tickets() const { return barriers_.Tickets(); }

  // Adds what is not agreed on yet, and a decision that is newer than `known_version`.
  void AddTo(uint64_t known_version, JobView* view) const;

 private:
  bool HandleBarrier(const Member& member, const wire::Header& header,
                     const MembershipTable& members, Outbox* out);
  bool HandleDeclare(const Member& member, const wire::Header& header,
                     const MembershipTable& members, Outbox* out);
  bool HandleReport(const Member& member, const wire::Header& header,
                    const MembershipTable& members, Outbox* out);
  void SendPlacements(std::vector<PlacementTable::Answer> answers, const MembershipTable& members,
                      Outbox* out) const;
  static void SendReleases(std::vector<BarrierTable::Release> releases,
                           const MembershipTable& members, Outbox* out);
  uint64_t DecidedVersion() const;  // 0: none
  void BroadcastDecision(const MembershipTable& members, Outbox* out) const;

  PlacementTable placement_;
  BarrierTable barriers_;
  ThresholdDecision decision_;
  CompressionRoll compressions_;
};

}  // namespace slimps

#endif  // SLIMPS_SCHEDULER_AGREEMENTS_H_
