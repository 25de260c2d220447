// SPDX-License-Identifier: Apache-2.0
// What a node knows of its job and what it must say next. Pure: no clock, lock or I/O. membership.h
// drives it.
//
//        StartJoin          Welcome          complete Roster       StartLeave         Ack
//   kIdle ------> kRegistering ---> kWelcomed ------------> kMember --------> kLeaving ---> kLeft
//
// In kRegistering and kWelcomed the node repeats Register. The scheduler gives each the same
// answer, with the roster so far. From kWelcomed to kMember the node sends heartbeats, which the
// scheduler echoes. Whatever waits for an answer is repeated, because delivery is at most once.
// `down` is independent of the phase and final: the first reason stays.
//
//   MembershipState::Actions actions = state.Tick(now, transport.DeliveredUntil());
//   ... send actions.send; tell the handler actions.down; call again at state.NextTick()
#ifndef SLIMPS_PROTO_NET_MEMBERSHIP_MEMBERSHIP_STATE_H_
#define SLIMPS_PROTO_NET_MEMBERSHIP_MEMBERSHIP_STATE_H_

#include <algorithm>
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
#include "proto/net/membership/clock_offset.h"
#include "proto/slimps.pb.h"

namespace slimps {

// Thread-compatible.
class MembershipState final {
 public:
  enum class Phase { kIdle, kRegistering, kWelcomed, kMember, kLeaving, kLeft };

  struct Options {
    wire::Register registration;
    std::string job_id;
    std::string scheduler_address;  // for messages to people
    WallAnchor wall;                // this node's wall clock
    absl::Duration repeat_interval = absl::Seconds(1);
    // How long until a goodbye or a failure report is sent again. This node waits for the answer
    // before it ends. The interval is shorter than the scheduler's quiet time
    // (SchedulerOptions::quiet_time), so a repeat still finds the scheduler there.
    absl::Duration goodbye_interval = absl::Milliseconds(100);
    // How long joining may take until people are told what it waits for.
    absl::Duration join_patience = absl::Seconds(10);
  };

  // What the driver must do now.
  struct Actions {
    std::vector<wire::Header> send;    // request_id and body, for the scheduler
    std::optional<absl::Status> down;  // tell the handler
    std::string notice;                // tell people, if not empty
  };

  // Requests of this class carry request ids with this bit. Others of the node do not.
  static constexpr uint64_t kRequestBit = uint64_t{1} << 63;

  explicit MembershipState(Options options) : options_(std::move(options)) {}

  Actions StartJoin(SteadyTime now, SteadyTime deadline);
  // Returns how joining ended; nullopt if that is undecided.
  // DeadlineExceeded: `now` has reached the deadline.
  std::optional<absl::Status> JoinResult(SteadyTime now) const;

  // Handles any message from the scheduler. Sets *consumed to true if it was meant for this class.
  Actions HandleFromScheduler(const wire::Header& header, SteadyTime now, bool* consumed);
  // Repeats what is due. Goes down if the scheduler had been silent for too long at
  // `delivered_until` (Transport::DeliveredUntil): its later messages may still wait to be handed
  // over.
  Actions Tick(SteadyTime now, SteadyTime delivered_until = SteadyTime::InfiniteFuture());

  // Returns when Tick has something to do next.
  SteadyTime NextTick() const;

  // Returns how long the scheduler may be silent; zero before the node has joined.
  absl::Duration SchedulerTimeout() const;

  struct BarrierId {
    std::string name;
    uint64_t ticket = 0;
    auto operator<=>(const BarrierId&) const = default;
  };
  struct BarrierVisit {
    std::string name;
    wire::Role group = wire::ROLE_UNSPECIFIED;  // workers and servers
    std::string purpose;                        // must be the same for all
    std::vector<double> values;                 // summed over the group; as many for all
  };
  Actions StartBarrier(const BarrierVisit& visit, SteadyTime now, BarrierId* id);

  // Tells the scheduler that this node waits no more, which ends the barrier for all. The
  // scheduler's answer says whether the barrier was over before.
  Actions GiveUpBarrier(const BarrierId& id, absl::Duration waited, SteadyTime now);

  // Returns the outcome of the barrier; nullopt if it is not released yet. If the job is down,
  // returns the reason.
  std::optional<absl::StatusOr<std::vector<double>>> BarrierResult(const BarrierId& id) const;

  // Drops the result of a barrier. One that was given up is still repeated until the scheduler has
  // answered.
  void ForgetBarrier(const BarrierId& id);

  // Returns the message of a threshold report, which the caller sends. It is repeated until the
  // scheduler has acknowledged it. An error in answer to it is not consumed.
  wire::Header StartReport(const wire::ThresholdReport& report, SteadyTime now);

  Actions StartLeave(SteadyTime now);

  // Repeats the report until the scheduler acknowledges it or the job is down. Only the first
  // counts.
  Actions ReportFailure(const absl::Status& why, SteadyTime now);

  // Makes JoinResult and BarrierResult return `why` from now on, except for released barriers.
  void FailWaiting(const absl::Status& why) { failed_ = why; }
  // True if no report waits for its acknowledgement.
  bool failure_reported() const { return !failure_.has_value() || down_.has_value(); }

  // Ends joining with `why`, if this node still joins.
  void RefuseJoin(const absl::Status& why);

  // Ends the wait for the answer to a request that the transport will never take.
  void CannotSend(const wire::Header& request, const absl::Status& why);

  Phase phase() const { return phase_; }
  uint32_t rank() const { return welcome_.rank(); }
  bool servers_may_return() const { return welcome_.servers_may_return(); }
  const wire::Welcome& welcome() const { return welcome_; }

  // Until EndReturn, a node whose place another process had before visits barriers from their first
  // ticket on, as that did at its start, and is answered as that was. Then it meets the others.
  void EndReturn();

  // What heartbeats say from now on.
  void SetSavedEpoch(uint64_t epoch) { saved_epoch_ = std::max(saved_epoch_, epoch); }
  void SetHasPushed() { has_pushed_ = true; }

  // Return what the scheduler's newest echo said (Heartbeat.wants_details and waits).
  bool wants_details() const { return wants_details_; }
  const std::string& waits() const { return waits_; }
  const wire::Roster& roster() const { return roster_; }
  const std::optional<absl::Status>& down() const { return down_; }
  // Returns the offset of this node's wall clock, from the echoes of heartbeats.
  const ClockOffset& clock_offset() const { return clock_offset_; }

  // Returns the scheduler's wall clock, as far as the offset is known.
  WallAnchor job_time() const {
    return {.steady = options_.wall.steady, .wall = options_.wall.wall - clock_offset_.ahead()};
  }

 private:
  struct Failure {
    absl::Status why;
    uint64_t request_id = 0;
    SteadyTime repeat_at;
  };
  struct PendingBarrier {
    wire::Header request;
    SteadyTime repeat_at;
    std::optional<absl::StatusOr<std::vector<double>>> result;
    bool forgotten = false;
  };

  struct PendingReport {
    wire::Header request;
    SteadyTime repeat_at;
  };

  Actions HandleError(const absl::Status& why, uint64_t request_id);
  Actions HandleWelcome(const wire::Welcome& welcome, SteadyTime now);
  void HandleRoster(const wire::Roster& roster);
  void HandleAck(uint64_t request_id);
  Actions AnswerProbe();
  void HandleEcho(const wire::Heartbeat& echo, SteadyTime now);
  void HandleRelease(const wire::BarrierRelease& release);
  void NoteOver(const std::string& name, uint64_t ticket);
  std::string WaitsFor() const;  // what joining waits for
  Actions GoDown(absl::Status reason);
  wire::Header NewRequest(wire::Header::BodyCase body);
  wire::Header MakeReport(const Failure& failure) const;
  bool InJob() const { return phase_ == Phase::kWelcomed || phase_ == Phase::kMember; }

  const Options options_;
  Phase phase_ = Phase::kIdle;
  wire::Welcome welcome_;
  wire::Roster roster_;
  std::optional<absl::Status> refused_;
  std::optional<absl::Status> down_;
  absl::Status failed_;
  SteadyTime join_deadline_ = SteadyTime::InfiniteFuture();
  SteadyTime notice_at_ = SteadyTime::InfiniteFuture();  // when to say that it has not joined yet
  SteadyTime repeat_at_ = SteadyTime::InfiniteFuture();  // of Register or Goodbye
  SteadyTime heartbeat_at_ = SteadyTime::InfiniteFuture();
  SteadyTime last_heard_ = SteadyTime::InfinitePast();
  uint64_t heartbeat_sequence_ = 0;
  uint64_t saved_epoch_ = 0;
  bool has_pushed_ = false;
  bool wants_details_ = false;
  std::string waits_;
  SteadyTime heartbeat_sent_ = SteadyTime::InfinitePast();  // of the newest heartbeat
  ClockOffset clock_offset_;
  uint64_t next_request_ = 1;
  uint64_t first_as_member_ = 0;    // the id of the first request that this node sent as a member
  std::optional<Failure> failure_;  // until it is acknowledged
  std::map<BarrierId, PendingBarrier> barriers_;
  std::map<uint64_t, PendingReport> reports_;  // by request id
  uint64_t first_goodbye_ = 0;                 // the id of this node's first goodbye
  // The newest ticket of each barrier name that this node has come to or that is over.
  std::map<std::string, uint64_t> tickets_;
  bool returning_ = false;
  std::map<std::string, uint64_t> over_;  // while returning: the newest that is over
};

}  // namespace slimps

#endif  // SLIMPS_PROTO_NET_MEMBERSHIP_MEMBERSHIP_STATE_H_
