// SPDX-License-Identifier: Apache-2.0
// One node's place in the job. Servers and workers use it alike. It joins at the scheduler, knows
// rank and roster, keeps the heartbeat, waits at barriers, learns that a node is down, and says
// goodbye.
//
//   Membership membership(&transport, options);
//   transport.Start(&sink);      // sink: if (membership.HandleMessage(from, message)) return;
//   membership.SetDownHandler([&](absl::Status why) { ... });
//   SLIMPS_RETURN_IF_ERROR(membership.Join());   // rank() and roster() are known from here on
//   message.header = membership.MakeHeader();    // version, job, sender, incarnation, epoch
//   SLIMPS_RETURN_IF_ERROR(membership.Leave());  // then Stop(), transport.Stop(), then destroy
//
// membership_state.h has the rules (when to repeat, what counts as lost). This class adds lock,
// thread and transport.
#ifndef SLIMPS_PROTO_NET_MEMBERSHIP_MEMBERSHIP_H_
#define SLIMPS_PROTO_NET_MEMBERSHIP_MEMBERSHIP_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
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
#include "proto/message_parts.h"
#include "proto/net/identity/allowed_keys.h"
#include "proto/net/membership/membership_state.h"
#include "proto/net/transport.h"
#include "proto/slimps.pb.h"

namespace slimps {

struct MembershipOptions {
  wire::Role role = wire::ROLE_UNSPECIFIED;  // SERVER or WORKER
  int32_t wanted_rank = -1;                  // -1: any; else the rank this node had before
  // "tcp://host:port"; its host name is resolved. Addresses of other schemes pass unchanged.
  std::string scheduler_address;
  std::string scheduler_key;  // its public key, in hexadecimal; "": the job has no keys
  // Filled with the keys of each roster, for those who connect to this node. May be null.
  std::shared_ptr<AllowedKeys> allowed_keys = {};
  std::string job_id = "slimps";
  // The numbers that this node was told. The scheduler refuses a node that was told others.
  uint32_t num_workers = 1;
  uint32_t num_servers = 1;
  std::vector<std::string> endpoints;  // where workers can reach this server
  std::string host;                    // named in messages to people; empty: this machine's name
  bool restored = false;               // this server goes on from a snapshot of the job
  absl::Duration join_timeout = absl::Seconds(600);
  std::stop_token stop;  // ends Join
  const Clock* clock = MachineClock();
  // Called when memory runs out on the heartbeat's thread. Null: the process ends.
  OnOutOfMemory on_out_of_memory = {};
};

// Thread-safe. Holds no lock while it calls the transport or a handler.
class Membership final {
 public:
  // REQUIRES: `transport` outlives this object, and its sink calls HandleMessage no more once this
  // object is destroyed. The destructor stops it.
  Membership(Transport* transport, MembershipOptions options);
  ~Membership();
  Membership(const Membership&) = delete;
  Membership& operator=(const Membership&) = delete;

  // Registers, repeating until the deadline, and waits until the roster is complete.
  // REQUIRES: the transport was started.
  // InvalidArgument: no message can carry the options (a job id that is not UTF-8), or the
  // scheduler was told other counts.
  // DeadlineExceeded: the scheduler is silent, or nodes are missing; the message says which and how
  // many.
  // Cancelled: MembershipOptions::stop asked for it.
  // PermissionDenied: the scheduler refuses this node's key.
  // AlreadyExists: the wanted rank is taken.
  // FailedPrecondition: the scheduler runs another job, or Join was called twice.
  // Any other reason for which the scheduler refused it or ended the job.
  [[nodiscard]] absl::Status Join();

  // Says goodbye and waits for the scheduler's acknowledgement, which also ends the heartbeat.
  // Idempotent.
  // DeadlineExceeded: the scheduler did not acknowledge within the time after which its silence
  // ends the job, which is the longer one if it may be started again.
  absl::Status Leave();

  // Tells the scheduler that this node cannot go on. The scheduler then ends the job for every node
  // with this reason. Never waits. The report is repeated until the scheduler has acknowledged it.
  void ReportFailure(const absl::Status& why);

  // Returns the message of a threshold report, which the caller sends. It is repeated until the
  // scheduler has acknowledged it, also if this node waits for something else meanwhile.
  wire::Header StartReport(const wire::ThresholdReport& report);

  // Makes Join and every barrier return `why`: those in progress, and later ones.
  void FailWaiting(const absl::Status& why);

  // Waits until the scheduler has acknowledged the failure report or the job is down. Returns at
  // once if there is no report. Call it before the transport stops. Returns false after `timeout`:
  // the scheduler will then miss this node's heartbeat, but not learn the reason.
  bool AwaitFailureReported(absl::Duration timeout);

  // Handles a message. Call it for each message that arrives, on the I/O thread. Returns true if
  // the message was the membership's own and is consumed: Welcome, Roster, Heartbeat,
  // BarrierRelease, NodeDown, Shutdown, a reply to one of its requests, or a Part. Messages of
  // these kinds from any node but the scheduler are dropped. The last part of a message turns
  // `message` into the whole, which is then handled.
  bool HandleMessage(PeerId from, Message& message);

  // Ends Join with `why` if `to` is the scheduler and refuses this node's key. Call it when `to`
  // cannot be reached.
  void HandleUndeliverable(PeerId to, const absl::Status& why);

  // Waits until all of `group` (ROLE_UNSPECIFIED: workers and servers) have come to the barrier
  // `name` as often as this node has. Returns the sum of `values` over the group, added in rank
  // order. A barrier has one outcome for all nodes. Errors name both nodes.
  // REQUIRES: not called on the I/O thread.
  // DeadlineExceeded: this node or another waited for `timeout` and gave up.
  // FailedPrecondition: this node is not in the job, or comes too late because another gave up.
  // This node's next visit then meets the next visits of the others.
  // InvalidArgument: nodes came for different purposes or with different numbers of values, or a
  // value is not finite.
  // The reason for which the job went down, once it has.
  using BarrierVisit = MembershipState::BarrierVisit;
  [[nodiscard]] absl::StatusOr<std::vector<double>> BarrierSum(const BarrierVisit& visit,
                                                               absl::Duration timeout);

  // BarrierSum without values.
  [[nodiscard]] absl::Status Barrier(const std::string& name, wire::Role group,
                                     absl::Duration timeout);

  // Ends the heartbeat, and all that it repeats, for good. Call it after Leave. From then on no
  // call of the down handler begins. When Stop returns, none is running on the heartbeat's thread,
  // unless Stop was called from there. Idempotent.
  void Stop();

  // Sets the handler that learns how the job ended. It is called once, on the thread that finds
  // out: the I/O thread, the heartbeat thread, or one in Barrier or ReportFailure. If the job has
  // ended already, this call itself calls the handler. Its argument is:
  // OK: the job ended in order (Shutdown).
  // Unavailable: a node or the scheduler is lost.
  // Any other error: the scheduler's reason.
  void SetDownHandler(std::function<void(absl::Status)> handler);

  // Returns what the handler was told, or would have been told; nullopt while the job runs.
  std::optional<absl::Status> down() const;

  // Returns whom the job waits for, as the scheduler said with its newest heartbeat; "": nobody.
  std::string waits() const;

  uint32_t rank() const;  // meaningful after Join
  // True if a server that dies may be started again while the job runs. Meaningful after Join.
  bool servers_may_return() const;
  // What the scheduler said when this node joined. Meaningful after Join.
  wire::Welcome welcome() const;
  void EndReturn();  // MembershipState::EndReturn
  void SetSavedEpoch(uint64_t epoch);
  void SetHasPushed();

  // Makes heartbeats carry what `reporter` returns: the bytes of a NodeReport
  // (watch/node_report.proto), with details if its argument says so (Heartbeat.wants_details). One
  // that is too large is left out. The heartbeat's thread calls it, only where the scheduler wants
  // reports. It must not wait. Until Stop, all that it uses must live.
  using Reporter = std::function<std::string(bool details)>;
  void SetReporter(Reporter reporter);
  wire::Roster roster() const;  // complete after Join
  PeerId scheduler() const;     // REQUIRES: Join was called
  wire::NodeRef self() const;

  // Returns a header without request_id and body, which the caller sets. The top bit of request_id
  // belongs to this class.
  wire::Header MakeHeader() const;

 private:
  absl::Status Connect();
  void RunHeartbeats();
  void AddReport(std::vector<wire::Header>* headers) const;
  // Turns a Part into the whole. Returns false if other parts are missing, or if it is dropped.
  bool Complete(PeerId from, wire::Header* header) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void AllowKeys() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Waits for the outcome of the barrier until `deadline`. Returns nullopt if it is undecided then.
  std::optional<absl::StatusOr<std::vector<double>>> AwaitBarrier(
      const MembershipState::BarrierId& id, SteadyTime deadline);
  // Sends what the state machine asked for and calls the down handler if it must. Takes no lock
  // while it does. What could not be sent is due again later.
  void Carry(MembershipState::Actions actions);
  void Send(std::vector<wire::Header> headers);
  wire::Header MakeHeaderLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  Transport* const transport_;
  const MembershipOptions options_;
  const Incarnation incarnation_;

  mutable Mutex mutex_;
  CondVar changed_;  // notified after every step of state_
  MembershipState state_ ABSL_GUARDED_BY(mutex_);
  std::optional<PeerId> scheduler_ ABSL_GUARDED_BY(mutex_);
  PartJoiner parts_ ABSL_GUARDED_BY(mutex_);  // of the scheduler
  std::function<void(absl::Status)> down_handler_ ABSL_GUARDED_BY(mutex_);
  bool down_told_ ABSL_GUARDED_BY(mutex_) = false;
  Reporter reporter_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::atomic<Thread::Id> heartbeat_thread_{};   // lets Stop learn if it runs on that thread
  Mutex joining_;                                // locked before mutex_, never within it
  Thread heartbeats_ ABSL_GUARDED_BY(joining_);  // started by the first Join, joined by Stop
};

}  // namespace slimps

#endif  // SLIMPS_PROTO_NET_MEMBERSHIP_MEMBERSHIP_H_
