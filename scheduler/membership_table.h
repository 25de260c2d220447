// SPDX-License-Identifier: Apache-2.0
// Knows who is in the job: ranks, incarnations, and when each node was last heard. Owned by
// SchedulerState. Pure: the caller brings the time.
//
// A node is known by its incarnation (proto/incarnation.h). So a repeated Register finds its own
// entry, and a new process is never taken for an old one. A node is heard on one connection.
// Another connection that shows its incarnation claims its place:
//
//   claim --> TakeProbes: ask the node at its connection --> heard there: the claim is void
//                              --> gone, or silent for the probe timeout: the claim holds
//
// Until then the claimant's messages are dropped. A node that has really reconnected repeats them.
//
// Before the roster is complete, a node that leaves or falls silent gives its rank back. Afterwards
// the places are fixed. A lost node's place waits for a new process if it may (restart_timeout);
// any other lost node ends the job. A worker's place waits on while the job goes on without it
// (worker_timeout): it is away.
//
// A server that was started again lacks pushes until the workers have sent it what they kept. Until
// then a worker that is gone for good takes some of them along (NotReplayedBy), and no new process
// takes a worker's place (MustWait).
#ifndef SLIMPS_SCHEDULER_MEMBERSHIP_TABLE_H_
#define SLIMPS_SCHEDULER_MEMBERSHIP_TABLE_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "proto/base/clock.h"
#include "proto/incarnation.h"
#include "proto/net/transport.h"
#include "proto/slimps.pb.h"

namespace slimps {

// kLost: it is gone or away, and its place waits for a process that takes it.
enum class MemberState { kLive, kLost, kLeft };

struct Member {
  wire::RosterEntry entry;
  PeerId peer = {};
  SteadyTime last_heard;
  SteadyTime answered;  // when it registered, or answered a probe
  MemberState state = MemberState::kLive;
  SteadyTime lost_at;         // if kLost
  uint64_t away_epoch = 0;    // if it is away: the epoch that said so first
  uint64_t seated_epoch = 0;  // the first that has this process
  uint64_t saved_epoch = 0;   // Heartbeat.saved_epoch
  bool has_pushed = false;    // Heartbeat.has_pushed, of any process of the place
  struct Claim {
    PeerId peer = {};
    SteadyTime since;
  };
  std::optional<Claim> claim;    // another connection claims this member's place
  bool connection_gone = false;  // `peer` cannot be reached any more

  // True if it is lost or its connection broke. A member that a scheduler, started again, has not
  // heard yet has no connection to break.
  bool IsGone() const {
    return state == MemberState::kLost ||
           (state == MemberState::kLive && connection_gone && peer != PeerId{});
  }

  // "worker 1 (host a, pid 17)".
  std::string ToString() const;
};

// Thread-compatible.
class MembershipTable final {
 public:
  struct Options {
    std::string job_id = "slimps";
    uint32_t num_workers = 1;
    uint32_t num_servers = 1;
    absl::Duration heartbeat_timeout = absl::Seconds(10);
    absl::Duration probe_timeout = absl::Milliseconds(2500);
    // How long a lost node's place waits for a new process. 0: it does not wait.
    absl::Duration restart_timeout = absl::ZeroDuration();
    // How long a lost worker's place waits before the job goes on. 0: restart_timeout holds.
    absl::Duration worker_timeout = absl::ZeroDuration();
    // By role and rank. Empty: the job has no keys.
    std::map<std::pair<wire::Role, uint32_t>, std::string> public_keys = {};
  };

  // Role and rank. All walks over members go in this order: servers before workers, each by rank.
  using Place = std::pair<wire::Role, uint32_t>;

  explicit MembershipTable(Options options) : options_(std::move(options)) {}

  // Returns OK if Register would admit a node with this header, given a free rank.
  [[nodiscard]] absl::Status CheckRegistration(const wire::Header& header) const;
  bool Knows(const Incarnation& incarnation) const { return HolderOf(incarnation) != nullptr; }
  // Returns the member with this incarnation, or nullptr. Valid as long as Register's.
  const Member* HolderOf(const Incarnation& incarnation) const;

  // Returns the members, live or lost, that this node may be, started again. A node that wants a
  // rank may be the member of its role with that rank. Otherwise it may be any member of its role
  // on its host. Valid until the next Register or Remove.
  std::vector<const Member*> FormerSelves(const wire::Register& registration) const;

  // Admits a node, or finds it again. The member is valid until the next Register or Remove.
  // FailedPrecondition: another job.
  // InvalidArgument: wrong role, counts or rank, no incarnation, no endpoint of a server, or names
  // too long.
  // AlreadyExists: the rank is taken.
  // ResourceExhausted: the job has all its nodes of this role.
  // Unavailable: as in Heard.
  [[nodiscard]] absl::StatusOr<const Member*> Register(const wire::Header& header, PeerId peer,
                                                       SteadyTime now);

  // Gives the place of a member that is gone to the newcomer that wants it. Errors are those of
  // Register. REQUIRES: complete(), and MayReturn of the place.
  [[nodiscard]] absl::StatusOr<const Member*> Replace(const wire::Header& header, PeerId peer,
                                                      SteadyTime now);

  // Notes that a member was heard. The member is valid until the next Register or Remove.
  // NotFound: the sender is no member, or was replaced.
  // Unavailable: the member has another connection, and a probe is finding out if it lives there.
  [[nodiscard]] absl::StatusOr<const Member*> Heard(const wire::Header& header, PeerId peer,
                                                    SteadyTime now);

  // Removes and returns the connections on which members must now be asked if they live, because
  // another connection claims their place. Returns each once per claim.
  std::vector<PeerId> TakeProbes() { return std::exchange(probes_, {}); }

  // True if a member is heard on `peer`.
  bool IsConnected(PeerId peer) const;

  // Notes that `peer` cannot be reached any more. A claim to its member's place then holds.
  void ConnectionGone(PeerId peer);

  // Notes that no member is connected any more, and that each was heard at `now`. Until it is heard
  // again its `peer` is PeerId{}.
  void LoseConnections(SteadyTime now);

  // Gives places to claims that were not contradicted within the probe timeout.
  void SettleClaims(SteadyTime now);

  // Notes that the node said goodbye. Before the roster is complete, this forgets the node.
  void Leave(const wire::NodeRef& node);

  // True if a new process may take this member's place once it is gone, while the job runs.
  bool MayReturn(const Member& member) const {
    return complete_ && (options_.restart_timeout > absl::ZeroDuration() || MayStayAway(member));
  }
  // True if the job goes on without this member once it is gone: a worker that has begun its
  // rounds. What it sets before (first values, the optimizer) would be missed.
  bool MayStayAway(const Member& member) const {
    return member.entry.node().role() == wire::WORKER &&
           options_.worker_timeout > absl::ZeroDuration() && member.has_pushed;
  }

  // Returns a worker that is away and whose pushes this server, whose process is gone, had not all
  // saved, so that nobody has them any more. nullptr: there is none. A worker that is only lost may
  // be silent and still have what it sent: its place decides, once that is taken or given up
  // (NotReplayedBy).
  const Member* AwayBeforeSavedBy(const Member& server) const;

  // Returns a server that was started again and that this member, a worker in the job, has not sent
  // yet all that it kept. nullptr: there is none.
  const Member* NotReplayedBy(const Member& worker) const;

  // True if a new process, which came at `since`, cannot take this worker's place yet: a server has
  // not answered a probe since, or lacks what the other workers send it again. The process would
  // take that server's old state for the job's.
  bool MustWait(const Member& gone, SteadyTime since) const;

  // Notes that a live member is gone. REQUIRES: MayReturn of it.
  void Lose(const wire::NodeRef& node, SteadyTime now);

  // Returns a lost member whose place has waited for too long; nullptr: there is none.
  const Member* GivenUp(SteadyTime now) const;

  // Returns a lost worker without which the job may go on now; nullptr: there is none.
  const Member* StaysAway(SteadyTime now) const;

  // Notes that a worker is away. Its process is no member any more. REQUIRES: it is a member.
  void SetAway(const wire::NodeRef& node);

  // Returns the live members not heard for longer than the heartbeat timeout.
  std::vector<Member> Overdue(SteadyTime now) const;

  // Notes what a node says it has saved and done. Returns true if that is more than before.
  bool NoteDone(const wire::NodeRef& node, const wire::Heartbeat& heartbeat);

  // Forgets a node.
  // REQUIRES: !complete().
  void Remove(const wire::NodeRef& node);

  // True once all nodes of the job were there at one time, and for ever after.
  bool complete() const { return complete_; }
  // True if no node of the role is in the job any more: at least one left, and the others left or
  // are away.
  bool AllLeft(wire::Role role) const;
  bool AnyLeft(wire::Role role) const;
  // True once each worker has pushed, and for ever after.
  bool all_have_pushed() const { return all_have_pushed_; }
  // Counts the members that have neither left nor are away. A lost one counts.
  uint32_t CountPresent(wire::Role role) const;

  // Returns nullptr if no member has that place. Valid until the next Register or Remove.
  const Member* Find(const Place& place) const;
  std::vector<Member> LiveMembers() const;
  const std::map<Place, Member>& all() const { return members_; }  // in every state

  // Returns the members so far. The epoch grows with every change.
  wire::Roster Roster() const;

  // Returns the roster as `reader` may see it. Only servers see the workers' incarnations. Until
  // the roster is complete a node's name is all that is shown, because until then anyone may come.
  wire::Roster RosterFor(const Member& reader) const;
  uint64_t epoch() const { return epoch_; }
  const Options& options() const { return options_; }

 private:
  uint32_t CountOfRole(wire::Role role) const;
  // Writes the sender of Register, which is live, to a place.
  Member& Seat(const Place& place, const wire::Header& header, PeerId peer, SteadyTime now);
  absl::StatusOr<uint32_t> ChooseRank(const wire::Register& registration) const;
  Member* FindIncarnation(const Incarnation& incarnation);
  absl::Status Hear(PeerId peer, SteadyTime now, Member* member);
  static void TakeOver(Member* member);

  const Options options_;
  std::map<Place, Member> members_;
  std::vector<PeerId> probes_;
  uint64_t epoch_ = 0;
  bool complete_ = false;
  bool all_have_pushed_ = false;
};

}  // namespace slimps

#endif  // SLIMPS_SCHEDULER_MEMBERSHIP_TABLE_H_
