// SPDX-License-Identifier: Apache-2.0
// The whole scheduler as one pure state machine: messages and the time go in, messages to send come
// out. scheduler_service.h owns it and adds lock, clock and transport.
//
//             all nodes there              last worker left           servers left and quiet,
//   kForming ------------------> kRunning -----------------> kEnding -----------------------> kDone
//      |                            |                sends Shutdown(OK)   or grace over       (OK)
//      | roster timeout             | node silent, failed,   to the servers
//      v                            v or a server left, and not back in time
//   kFailed: sends NodeDown and Shutdown(why) to everyone
//      | all left and quiet, or grace over
//      v
//   kDone (why)
//
//   SchedulerState state(options, clock->Now());
//   Send(state.Handle(from, header, clock->Now()));    // for each message
//   Send(state.Tick(clock->Now()));                    // a few times per heartbeat interval
#ifndef SLIMPS_SCHEDULER_SCHEDULER_STATE_H_
#define SLIMPS_SCHEDULER_SCHEDULER_STATE_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "proto/base/clock.h"
#include "proto/message_parts.h"
#include "proto/net/identity/node_keys.h"
#include "proto/net/transport.h"
#include "proto/slimps.pb.h"
#include "scheduler/agreements.h"
#include "scheduler/credentials.h"
#include "scheduler/join_log.h"
#include "scheduler/journal.h"
#include "scheduler/membership_table.h"
#include "scheduler/newcomers.h"
#include "scheduler/outbox.h"
#include "scheduler/watch/job_view.h"

namespace slimps {

struct SchedulerOptions {
  std::string job_id = "slimps";
  uint32_t num_workers = 1;
  uint32_t num_servers = 1;
  absl::Duration heartbeat_interval = absl::Seconds(1);
  absl::Duration heartbeat_timeout = absl::Seconds(10);
  absl::Duration roster_timeout = absl::Seconds(600);
  // How long a worker's call waits for others that live (Welcome.timeout_ms).
  absl::Duration timeout = absl::Seconds(1800);
  // How long the job waits for a lost node to be started again. 0: its loss ends the job.
  absl::Duration restart_timeout = absl::ZeroDuration();
  // How long it waits for a lost worker before it goes on without that. 0: as for other nodes.
  absl::Duration worker_timeout = absl::ZeroDuration();
  // TakeEntries is written down, so that this scheduler may be started again.
  bool has_journal = false;
  // Heartbeats should say how nodes do (TakeReports).
  bool wants_reports = false;
  // How long nodes may take to leave after they were told to.
  absl::Duration shutdown_grace = absl::Seconds(5);
  // How long the scheduler stays after the last goodbye. The acknowledgement of a goodbye may be
  // lost. A node that repeats its goodbye within this time gets another acknowledgement.
  absl::Duration quiet_time = absl::Milliseconds(300);
  // The keys of all servers and workers. Empty: the job has no keys.
  std::vector<AllowedNode> allowed = {};
};

// Thread-compatible.
class SchedulerState final {
 public:
  using Phase = JobView::Phase;
  // `wall` is the clock by which nodes align their traces.
  SchedulerState(SchedulerOptions options, SteadyTime now, const WallAnchor& wall = {});

  // `user_id` names the node whose key the message came with (Message::user_id).
  Outbox Handle(PeerId from, const wire::Header& header, SteadyTime now,
                const std::string& user_id = "");

  // Checks the deadlines. Call it a few times per heartbeat interval. A node's silence is counted
  // up to `delivered_until` (Transport::DeliveredUntil), because its later messages may still wait
  // to be handed over.
  Outbox Tick(SteadyTime now, SteadyTime delivered_until = SteadyTime::InfiniteFuture());

  // Notes that the connection of `peer` is gone. If the job has failed, its node is not waited for
  // any more. Otherwise its heartbeat decides, because the node may be reconnecting: another
  // connection that shows the node's incarnation takes its place at once.
  void ConnectionGone(PeerId peer);

  // Says that the connection of `peer` was closed, if the job runs. Its heartbeat decides.
  void ConnectionClosed(PeerId peer, SteadyTime now);

  // Ends the job for everyone with this reason, if it still forms or runs. Call it when the
  // scheduler itself is told to stop.
  Outbox Abort(const absl::Status& why, SteadyTime now);

  // Notes that the process that was started as the worker of this rank has ended well. Fails the
  // job if that process is still in it, or if nobody had come yet: who else would say its goodbye?
  // Its program may have taken another rank, or may have run in a child of it.
  Outbox WorkerEnded(uint32_t rank, uint64_t pid, SteadyTime now);

  // Goes on where the scheduler was that wrote these entries. Its nodes connect anew: none is
  // taken for lost before it had time for that.
  // REQUIRES: nothing was handled yet.
  // DataLoss, or an error of a registration: the entries make no sense.
  [[nodiscard]] absl::Status Restore(const std::vector<JournalEntry>& entries, SteadyTime now);

  // Removes and returns what must be written down before the last call's messages are sent.
  std::vector<JournalEntry> TakeEntries() { return std::exchange(entries_, {}); }

  // Returns log lines for people, each once: which nodes came, were refused or are gone.
  std::vector<std::string> TakeNews() { return joining_.Take(); }

  // What a node said of itself with a heartbeat: a NodeReport as bytes, which nobody has read.
  struct Report {
    wire::NodeRef node;
    std::string bytes;
  };
  // Removes and returns the newest report of each node that came since the last call.
  std::vector<Report> TakeReports();

  // Asks nodes for details in their reports, or for none.
  void SetWantsDetails(bool wants) { wants_details_ = wants; }

  // Tells workers whom the job waits for, for the messages of what was not in time.
  void SetWaits(std::string waits) { waits_ = std::move(waits); }

  // Returns what it knows of the job, for those who watch it. The decision is there if it is newer
  // than `known_version`.
  JobView View(SteadyTime now, uint64_t known_version) const;

  Phase phase() const { return phase_; }

  // Why the job failed; OK if it did not. Final in kDone.
  const absl::Status& result() const { return result_; }

  // The node that failed, and so ended the job; nullopt if no node did.
  const std::optional<wire::NodeRef>& blamed() const { return blamed_; }
  const MembershipTable& members() const { return members_; }

 private:
  void ProbeMembers(Outbox* out);
  void HandleRegister(PeerId from, wire::Header header, const std::string& user_id, SteadyTime now,
                      Outbox* out);
  // Admits the newcomers that wait no more. Each takes the place of a member that is gone.
  void SettleNewcomers(SteadyTime now, SteadyTime heard_until, Outbox* out);
  void Admit(PeerId from, const wire::Header& header, SteadyTime now, Outbox* out);
  // Gives the newcomer the place that it wants, and tells everyone.
  void Replace(const Newcomers::Settled& settled, SteadyTime now, Outbox* out);
  void Welcome(PeerId to, uint64_t request_id, const Member& member, Outbox* out) const;
  void SendRoster(const Member& reader, Outbox* out) const;
  // The node is gone for this `reason`. Waits for it to be started again, or fails the job.
  void Lose(const Member& member, const std::string& reason, SteadyTime now, Outbox* out);
  // Fails the job if nobody has certain pushes any more, now that `gone` is gone for good. It is a
  // server that had not saved those of a worker that is away, or a worker that had not sent a
  // server again what that lacks. Others may have seen weights with them.
  bool FailIfPushesAreLost(const Member& gone, SteadyTime now, Outbox* out);
  void HandleMember(const Member& member, const wire::Header& header, SteadyTime now, Outbox* out);
  void HandleGoodbye(const Member& member, const wire::Header& header, SteadyTime now, Outbox* out);
  // Goes on without the workers that were waited for long enough. Where none is left, fails.
  void LeaveBehind(SteadyTime now, SteadyTime heard_until, Outbox* out);
  // Ends the job if all workers have left it.
  void EndIfAllLeft(SteadyTime now, Outbox* out);
  // Adds what `member` said to the journal.
  void Note(const Member& member, const wire::Header& header,
            JournalEntry::Kind kind = JournalEntry::Kind::kMessage);
  void Fail(const wire::NodeRef& node, const std::string& reason, SteadyTime now, Outbox* out);
  void EnterFailed(const absl::Status& why, SteadyTime now, Outbox* out);
  void BroadcastShutdown(SteadyTime now, Outbox* out);
  void TellEveryone(const wire::Header& header, Outbox* out) const;

  const SchedulerOptions options_;
  const WallAnchor wall_;
  const SteadyTime began_;
  Phase phase_ = Phase::kForming;
  absl::Status result_;
  std::optional<wire::NodeRef> blamed_;
  SteadyTime deadline_;                               // kForming: roster; kEnding, kFailed: grace
  SteadyTime repeat_at_;                              // when Shutdown is sent again
  SteadyTime quiet_at_ = SteadyTime::InfinitePast();  // the last goodbye plus the quiet time
  const Credentials credentials_;
  MembershipTable members_;
  uint64_t told_at_epoch_ = 0;  // of the newest roster that every node must have
  Newcomers newcomers_;
  Agreements agreements_;
  JoinLog joining_;
  std::vector<JournalEntry> entries_;
  std::map<std::pair<wire::Role, uint32_t>, Report> reports_;    // by role and rank
  std::map<std::pair<wire::Role, uint32_t>, PartJoiner> parts_;  // likewise
  bool wants_details_ = false;
  std::string waits_;
};

}  // namespace slimps

#endif  // SLIMPS_SCHEDULER_SCHEDULER_STATE_H_
