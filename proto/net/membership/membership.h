// One node's place in the job, as servers and workers alike see it: joins at the scheduler, knows
// rank and roster, keeps the heartbeat, waits at barriers, learns that a node is down, and says
// goodbye.
//
//   Membership membership(&transport, options);
//   transport.Start(&sink);                              // whose OnMessage passes everything on:
//                                                        //   if (membership.HandleMessage(from, message)) return;
//   membership.SetDownHandler([&](absl::Status why) { ... });
//   SLIMPS_RETURN_IF_ERROR(membership.Join());           // rank(), roster() are known from here on
//   message.header = membership.MakeHeader();            // protocol version, job, sender, incarnation, epoch
//   SLIMPS_RETURN_IF_ERROR(membership.Leave());          // then Stop(), transport.Stop(), then destroy
//
// The rules (when to repeat, what counts as lost) are in membership_state.h; this class adds lock,
// thread and transport.
#ifndef SLIMPS_PROTO_NET_MEMBERSHIP_MEMBERSHIP_H_
#define SLIMPS_PROTO_NET_MEMBERSHIP_MEMBERSHIP_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "proto/base/clock.h"
#include "proto/base/mutex.h"
#include "proto/base/out_of_memory.h"
#include "proto/base/thread.h"
#include "proto/incarnation.h"
#include "proto/net/membership/membership_state.h"
#include "proto/net/transport.h"
#include "proto/slimps.pb.h"

namespace slimps {

struct MembershipOptions {
  wire::Role role = wire::ROLE_UNSPECIFIED;  // SERVER or WORKER
  int32_t wanted_rank = -1;                  // -1: any; else the rank this node had before
  std::string
      scheduler_address;  // "tcp://host:port"; names are resolved. Other schemes pass unchanged
  std::string job_id = "slimps";
  uint32_t num_workers =
      1;  // what this node was told; the scheduler refuses a node that was told otherwise
  uint32_t num_servers = 1;
  std::vector<std::string> endpoints;  // where a server listens, reachable by workers
  std::string host;                    // for messages to people; empty: this machine's name
  absl::Duration join_timeout = absl::Seconds(60);
  std::stop_token stop;  // ends Join
  const Clock* clock = MachineClock();
  // Of the heartbeat's thread; null: the process ends.
  OnOutOfMemory on_out_of_memory = {};
};

// Thread-safe. Never calls the transport or a handler with its lock held.
class Membership final {
 public:
  // `transport` outlives this object; its sink must not reach HandleMessage any more once this
  // object is destroyed. Destroying it stops it.
  Membership(Transport* transport, MembershipOptions options);
  ~Membership();
  Membership(const Membership&) = delete;
  Membership& operator=(const Membership&) = delete;

  // Registers, repeating until the deadline, and waits until the roster is complete. REQUIRES: the
  // transport was started. InvalidArgument: options that no message can carry (a job id that is not
  // UTF-8). DeadlineExceeded: scheduler silent, or nodes missing (says which and how
  // many). Whatever else the scheduler refused it with (AlreadyExists: rank taken; InvalidArgument:
  // other counts; FailedPrecondition: another job). Cancelled: MembershipOptions::stop.
  [[nodiscard]] absl::Status Join();

  // Says goodbye and waits for the scheduler's acknowledgement, which also ends the heartbeat.
  // Idempotent.
  absl::Status Leave(absl::Duration timeout = absl::Seconds(10));

  // Tells the scheduler that this node cannot go on; it then ends the job for everyone with this reason. Never waits;
  // repeated until the scheduler has acknowledged it.
  void ReportFailure(const absl::Status& why);
  // Join and barriers, those under way too, end with `why`.
  void FailWaiting(const absl::Status& why);
  // Waits until the scheduler has what ReportFailure said, if anything, or the job is down: before the transport stops.
  // False: not within `timeout`; the missing heartbeat will say the same later, without the reason.
  bool AwaitFailureReported(absl::Duration timeout);

  // For each message that arrives, on the I/O thread. True: it was the membership's own (Welcome,
  // Roster, Heartbeat, BarrierRelease, NodeDown, Shutdown, replies to its requests) and is
  // consumed. Such verbs from anyone but the scheduler are dropped.
  bool HandleMessage(PeerId from, Message& message);

  // Waits until all of `group` (ROLE_UNSPECIFIED: workers and servers) have come to the barrier
  // `name` as often as this node has, and sums `values` over the group in rank order. A barrier has
  // one outcome for all. DeadlineExceeded: a node, this one or another, waited for `timeout` and
  // gave up. FailedPrecondition: this node comes too late, another had given up; the next visit
  // meets the others' next. InvalidArgument: nodes came for different purposes, or with other
  // numbers of values. All of them name both nodes. The reason, once the job is down. May not be
  // called on the I/O thread.
  using BarrierVisit = MembershipState::BarrierVisit;
  [[nodiscard]] absl::StatusOr<std::vector<double>> BarrierSum(const BarrierVisit& visit,
                                                               absl::Duration timeout);
  [[nodiscard]] absl::Status Barrier(const std::string& name, wire::Role group,
                                     absl::Duration timeout);

  // Ends the heartbeat, and what it repeats, for good: after Leave. No call of the down handler begins from then on, and
  // none on the heartbeat's thread lasts when it returns, unless that is where it was called from. Idempotent.
  void Stop();

  // `handler` is called once, by the thread that finds out: the I/O or the heartbeat thread, one in Barrier or
  // ReportFailure, or this one, at once, when it has happened already. With OK: the job ended in order (Shutdown);
  // Unavailable: a node or the scheduler is lost; or the scheduler's reason.
  void SetDownHandler(std::function<void(absl::Status)> handler);
  // What the handler was, or would have been, told; nullopt while the job runs.
  std::optional<absl::Status> down() const;

  uint32_t rank() const;        // meaningful after Join
  wire::Roster roster() const;  // complete after Join
  PeerId scheduler() const;     // REQUIRES: Join was called
  wire::NodeRef self() const;
  // request_id and the body are left for the caller. The top bit of request_id belongs to this
  // class.
  wire::Header MakeHeader() const;

 private:
  absl::Status Connect();
  void RunHeartbeats();
  // nullopt: not decided by then.
  std::optional<absl::StatusOr<std::vector<double>>> AwaitBarrier(
      const MembershipState::BarrierId& id, SteadyTime deadline);
  // Sends what the state machine asked for and tells the handler what it must know, without the
  // lock. What is not sent is due again.
  void Carry(MembershipState::Actions actions);
  void Send(std::vector<wire::Header> headers);
  wire::Header MakeHeaderLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  Transport* const transport_;
  const MembershipOptions options_;
  const Incarnation incarnation_;

  mutable Mutex mutex_;
  CondVar changed_;  // after every step of state_
  MembershipState state_ ABSL_GUARDED_BY(mutex_);
  std::optional<PeerId> scheduler_ ABSL_GUARDED_BY(mutex_);
  std::function<void(absl::Status)> down_handler_ ABSL_GUARDED_BY(mutex_);
  bool down_told_ ABSL_GUARDED_BY(mutex_) = false;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::atomic<Thread::Id> heartbeat_thread_{};   // read to find out whether it is oneself
  Mutex joining_;                                // before mutex_, never within it
  Thread heartbeats_ ABSL_GUARDED_BY(joining_);  // started by the first Join, joined by Stop
};

}  // namespace slimps

#endif  // SLIMPS_PROTO_NET_MEMBERSHIP_MEMBERSHIP_H_
