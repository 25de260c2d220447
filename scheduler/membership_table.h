// Who is in the job: ranks, incarnations and when each node was last heard. Pure: the caller brings the time.
//
// A node is known by its incarnation (proto/incarnation.h), so a repeated Register finds its own entry and a new process
// never passes for an old one. It is heard on one connection. Another that shows its incarnation claims its place:
//
//   claim --> TakeProbes: ask the node where it is connected --> heard there: the claim is void
//                                                            --> gone, or silent for the probe timeout: the claim holds
//
// Until then what the claimant says is dropped: who has really reconnected repeats it. Before the roster is complete, a node that leaves or falls silent
// gives its rank back; afterwards the table is fixed and a lost node ends the job (rejoining comes later).
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

enum class MemberState { kLive, kLeft };

struct Member {
  wire::RosterEntry entry;
  PeerId peer = {};
  SteadyTime last_heard;
  MemberState state = MemberState::kLive;
  struct Claim {
    PeerId peer = {};
    SteadyTime since;
  };
  std::optional<Claim> claim;    // of another connection to this member's place
  bool connection_gone = false;  // `peer` can no longer be reached

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
  };
  // Servers before workers, each by rank: the one order in which anything walks the members.
  using Place = std::pair<wire::Role, uint32_t>;

  explicit MembershipTable(Options options) : options_(std::move(options)) {}

  // Whether Register would admit a node of this header, if a rank is free.
  [[nodiscard]] absl::Status CheckRegistration(const wire::Header& header) const;
  bool Knows(const Incarnation& incarnation) const;
  // The live members whose process this node may be, started again: of its role, on its host; or who has the rank that it
  // wants. Valid until the next Register or Remove.
  std::vector<const Member*> FormerSelves(const wire::Register& registration) const;
  // Admits a node, or finds it again. FailedPrecondition: another job, or the job is complete and this node is not of
  // it. InvalidArgument: wrong role, counts, rank, no endpoint, or names too long. AlreadyExists: the rank is taken.
  // ResourceExhausted: there are as many nodes of this role as the job has. Unavailable: as Heard.
  [[nodiscard]] absl::StatusOr<const Member*> Register(const wire::Header& header, PeerId peer,
                                                       SteadyTime now);
  // Notes that a member was heard. NotFound: the sender is no member (or was replaced). Unavailable: the member has
  // another connection, and whether it lives there is being found out. It stays valid until the next Register or Remove.
  [[nodiscard]] absl::StatusOr<const Member*> Heard(const wire::Header& header, PeerId peer,
                                                    SteadyTime now);
  // Returns the connections where a member is to be asked whether it lives, each once per claim.
  std::vector<PeerId> TakeProbes() { return std::exchange(probes_, {}); }
  // Whether a member is heard there.
  bool IsConnected(PeerId peer) const;
  // Notes that `peer` cannot be reached any more. A claim to its place holds.
  void ConnectionGone(PeerId peer);
  // Gives their places to those whose claims were not contradicted within the probe timeout.
  void SettleClaims(SteadyTime now);
  // Said goodbye. Before the roster is complete this forgets the node.
  void Leave(const wire::NodeRef& node);
  // Live members not heard for longer than the timeout.
  std::vector<Member> Overdue(SteadyTime now) const;
  // Forgets a node. REQUIRES: !complete().
  void Remove(const wire::NodeRef& node);

  // True for ever once as many nodes as the job has were there together.
  bool complete() const { return complete_; }
  bool AllLeft(wire::Role role) const;
  // nullptr: nobody has that place. Valid until the next Register or Remove.
  const Member* Find(const Place& place) const;
  std::vector<Member> LiveMembers() const;
  // Of those there are so far. The epoch grows with every change.
  wire::Roster Roster() const;
  // What this member is told of it: incarnations of workers go to servers alone, and until the roster is complete no more
  // of a node than its name, since until then anyone may come.
  wire::Roster RosterFor(const Member& reader) const;
  uint64_t epoch() const { return epoch_; }
  const Options& options() const { return options_; }

 private:
  uint32_t CountOfRole(wire::Role role) const;
  absl::StatusOr<uint32_t> ChooseRank(const wire::Register& registration) const;
  Member* FindIncarnation(const Incarnation& incarnation);
  absl::Status Hear(PeerId peer, SteadyTime now, Member* member);
  static void TakeOver(Member* member);

  const Options options_;
  std::map<Place, Member> members_;
  std::vector<PeerId> probes_;
  uint64_t epoch_ = 0;
  bool complete_ = false;
};

}  // namespace slimps

#endif  // SLIMPS_SCHEDULER_MEMBERSHIP_TABLE_H_
