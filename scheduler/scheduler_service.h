// SPDX-License-Identifier: Apache-2.0
// Drives the scheduler's state machine with messages from a transport and time from a clock. One
// mutex guards all of it.
//
//   ZmqTransport transport(options);
//   SchedulerService service(&transport, scheduler_options, &clock);
//   transport.Bind("tcp://127.0.0.1:0"); transport.Start(&service);
//   while (!service.done()) { sleep a tick; service.Tick(); }
//   transport.Stop(); return service.result();
#ifndef SLIMPS_SCHEDULER_SCHEDULER_SERVICE_H_
#define SLIMPS_SCHEDULER_SCHEDULER_SERVICE_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "proto/base/clock.h"
#include "proto/base/log_rate.h"
#include "proto/base/mutex.h"
#include "proto/incarnation.h"
#include "proto/net/transport.h"
#include "proto/slimps.pb.h"
#include "scheduler/journal.h"
#include "scheduler/scheduler_state.h"
#include "scheduler/watch/watch_service.h"

namespace slimps {

// Thread-safe.
class SchedulerService final : public MessageSink {
 public:
  // REQUIRES: `transport`, `clock` and `journal` outlive the service. `journal` may be null.
  SchedulerService(Transport* transport, SchedulerOptions options, const Clock* clock,
                   Journal* journal = nullptr);

  // Makes `tell` learn how the job fails, and which node failed, if one did, before any node does.
  // `tell` must not call the service.
  // REQUIRES: the transport was not started.
  using FailureHandler =
      std::function<void(const absl::Status& why, const std::optional<wire::NodeRef>& blamed)>;
  void SetFailureHandler(FailureHandler tell);

  // Goes on where the scheduler was that wrote the journal (SchedulerState::Restore).
  // REQUIRES: there is a journal, and the transport was not started.
  [[nodiscard]] absl::Status Restore();

  void OnMessage(PeerId from, Message message) override;
  void OnBadFrame(PeerId from, const absl::Status& why) override;
  void OnUndeliverable(PeerId to, const absl::Status& why) override;
  void OnConnectionLost(PeerId to) override;

  // Checks the deadlines. Call it a few times per heartbeat interval.
  void Tick();

  // Ends the job for everyone. done() follows within the grace time.
  void Abort(const absl::Status& why);

  // Notes that a worker's process has ended by itself (SchedulerState::WorkerEnded).
  void WorkerEnded(uint32_t rank, uint64_t pid);

  // Returns what there is to see since the last call, with the decision if it is newer than
  // `known_version`. Asks nodes for details from now on, or for none, and tells them whom the job
  // waits for.
  // REQUIRES: called often, if options.wants_reports.
  struct Looking {
    uint64_t known_version = 0;
    bool wants_details = false;
    std::string waits = {};
  };
  Observation Observe(const Looking& looking);

  bool done() const;

  // Returns how the job ended: OK if all nodes left in order.
  absl::Status result() const;

 private:
  // Changes the state, logs what that changed, and sends what `change` returns.
  void Change(absl::FunctionRef<Outbox(SchedulerState& state)> change);
  void WriteDown() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void LogChange(SchedulerState::Phase before) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Logs what people should know, and keeps it for Observe.
  void Tell(const std::string& line) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void TellFailure() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Send(Outbox outbox, uint64_t epoch);
  // Logs a line that strangers can cause, bounded by rate.
  void Warn(const std::string& line);

  Transport* const transport_;
  const SchedulerOptions options_;
  const Clock* const clock_;
  const Incarnation incarnation_;
  mutable Mutex mutex_;
  Journal* journal_ ABSL_GUARDED_BY(mutex_);  // null: none, or it cannot be written any more
  SchedulerState state_ ABSL_GUARDED_BY(mutex_);
  FailureHandler tell_failure_ ABSL_GUARDED_BY(mutex_) = [](const auto&, const auto&) {};
  std::vector<std::string> news_ ABSL_GUARDED_BY(mutex_);  // if options_.wants_reports
  SteadyTime phase_began_ ABSL_GUARDED_BY(mutex_);
  LogRate<SteadyTime> log_rate_ ABSL_GUARDED_BY(mutex_){absl::Seconds(10)};
};

}  // namespace slimps

#endif  // SLIMPS_SCHEDULER_SCHEDULER_SERVICE_H_
