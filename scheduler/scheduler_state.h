// The whole scheduler as one pure state machine: messages and the time go in, messages to send come out.
//
//             all nodes there              last worker left                     servers left and quiet, or grace over
//   kForming ------------------> kRunning -------------------> kEnding -------------------------------> kDone (OK)
//      | roster timeout             | node silent, failed,        Shutdown(OK) to the servers
//      v                            v or a server left
//   kFailed: NodeDown and Shutdown(why) to everyone, then, when they left or grace is over, ---> kDone (why)
//
// scheduler_service.h adds lock, clock and transport.
#ifndef SLIMPS_SCHEDULER_SCHEDULER_STATE_H_
#define SLIMPS_SCHEDULER_SCHEDULER_STATE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "proto/base/clock.h"
#include "proto/net/transport.h"
#include "proto/slimps.pb.h"
#include "scheduler/barrier.h"
#include "scheduler/compression_roll.h"
#include "scheduler/join_log.h"
#include "scheduler/membership_table.h"
#include "scheduler/placement.h"
#include "scheduler/threshold_decision.h"

namespace slimps {

struct SchedulerOptions {
  std::string job_id = "slimps";
  uint32_t num_workers = 1;
  uint32_t num_servers = 1;
  absl::Duration heartbeat_interval = absl::Seconds(1);
  absl::Duration heartbeat_timeout = absl::Seconds(10);
  absl::Duration roster_timeout = absl::Seconds(60);
  absl::Duration shutdown_grace =
      absl::Seconds(5);  // how long nodes may take to leave when told to
  // How long it must be quiet after the last goodbye. An acknowledgement may be lost when the
  // connection is closed right behind it: who repeats its goodbye meanwhile gets another.
  absl::Duration quiet_time = absl::Milliseconds(300);
};

// Thread-compatible.
class SchedulerState final {
 public:
  enum class Phase { kForming, kRunning, kEnding, kFailed, kDone };
  struct Outgoing {
    PeerId to;
    wire::Header header;  // body and, in a reply, request_id
    // To one that is no member: it is told nothing of the job or of this scheduler.
    bool to_stranger = false;
  };
  using Outbox = std::vector<Outgoing>;

  // `wall`: by which nodes put their traces together.
  SchedulerState(SchedulerOptions options, SteadyTime now, const WallAnchor& wall = {});

  Outbox Handle(PeerId from, const wire::Header& header, SteadyTime now);
  // Deadlines. To be called a few times per heartbeat interval.
  // Who was not heard from until `delivered_until` was silent: what came later may not have been handed over yet.
  Outbox Tick(SteadyTime now, SteadyTime delivered_until = SteadyTime::InfiniteFuture());

  // Its connection is gone. A node of a failed job that has just ended is not waited for; else the heartbeat decides, since
  // it may be reconnecting, and a connection that shows its incarnation takes the place at once.
  void ConnectionGone(PeerId peer);

  // Ends the job for everyone with this reason (the scheduler itself is told to stop).
  Outbox Abort(const absl::Status& why, SteadyTime now);

  // For people: who came, who was refused, who is missing, each line once.
  std::vector<std::string> TakeNews() { return joining_.Take(); }

  Phase phase() const { return phase_; }
  // Why the job failed; OK when it did not. Final in kDone.
  const absl::Status& result() const { return result_; }
  const MembershipTable& members() const { return members_; }

 private:
  void ProbeMembers(Outbox* out);
  // A node that comes while the job forms, and may be a member that was started again.
  struct Newcomer {
    PeerId from;
    wire::Header header;
    SteadyTime since;
  };

  void HandleRegister(PeerId from, const wire::Header& header, SteadyTime now, Outbox* out);
  // Keeps it until those whom it may replace were heard or are gone. False: nothing to find out.
  bool HoldNewcomer(PeerId from, const wire::Header& header, SteadyTime now, Outbox* out);
  // Silence counts up to `heard_until`; InfinitePast: only who answered or is gone is settled.
  void SettleNewcomers(SteadyTime now, SteadyTime heard_until, Outbox* out);
  void Admit(PeerId from, const wire::Header& header, SteadyTime now, Outbox* out);
  void HandleMember(const Member& member, const wire::Header& header, SteadyTime now, Outbox* out);
  void HandleBarrier(const Member& member, const wire::Header& header, Outbox* out);
  void HandleDeclare(const Member& member, const wire::Header& header, Outbox* out);
  void HandleReport(const Member& member, const wire::Header& header, Outbox* out);
  void HandleGoodbye(const Member& member, const wire::Header& header, SteadyTime now, Outbox* out);
  void SendPlacements(std::vector<PlacementTable::Answer> answers, Outbox* out);
  void SendReleases(std::vector<BarrierTable::Release> releases, Outbox* out);
  uint64_t DecidedVersion() const;  // 0: none
  void BroadcastDecision(Outbox* out);
  void Fail(const wire::NodeRef& node, const std::string& reason, SteadyTime now, Outbox* out);
  void EnterFailed(const absl::Status& why, SteadyTime now, Outbox* out);
  void BroadcastShutdown(SteadyTime now, Outbox* out);
  void TellEveryone(const wire::Header& header, Outbox* out) const;

  const SchedulerOptions options_;
  const WallAnchor wall_;
  const SteadyTime began_;
  Phase phase_ = Phase::kForming;
  absl::Status result_;
  SteadyTime deadline_;   // of kForming: roster; of kEnding and kFailed: grace
  SteadyTime repeat_at_;  // of Shutdown
  SteadyTime quiet_at_ = SteadyTime::InfinitePast();  // the last goodbye plus the quiet time
  MembershipTable members_;
  std::vector<Newcomer> newcomers_;  // in the order of arrival
  PlacementTable placement_;
  BarrierTable barriers_;
  ThresholdDecision decision_;
  CompressionRoll compressions_;
  JoinLog joining_;
};

}  // namespace slimps

#endif  // SLIMPS_SCHEDULER_SCHEDULER_STATE_H_
