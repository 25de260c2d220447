// SPDX-License-Identifier: Apache-2.0
#include "proto/net/membership/membership.h"

#include <glog/logging.h>
#include <unistd.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/base/clock.h"
#include "proto/base/simulation/simulation.h"
#include "proto/base/status_macros.h"
#include "proto/base/trace/trace.h"
#include "proto/limits.h"
#include "proto/net/address.h"
#include "proto/net/membership/node_name.h"
#include "proto/net/send_in_parts.h"

namespace slimps {
namespace {

// Goes before any gradient, so that a node with a long queue does not seem to be down.
constexpr int kControlPriority = 1 << 30;

std::string OwnHost() {
  char host[256] = "";
  gethostname(host, sizeof(host) - 1);
  return host;
}

MembershipState::Options StateOptions(const MembershipOptions& options) {
  MembershipState::Options state;
  state.job_id = options.job_id;
  state.scheduler_address = options.scheduler_address;
  state.wall = ReadAnchor(*options.clock);
  wire::Register& registration = state.registration;
  registration.set_role(options.role);
  registration.set_wanted_rank(options.wanted_rank);
  for (const std::string& endpoint : options.endpoints) registration.add_endpoints(endpoint);
  registration.set_num_workers(options.num_workers);
  registration.set_num_servers(options.num_servers);
  registration.set_restored(options.restored);
  registration.set_host(options.host.empty() ? OwnHost() : options.host);
  registration.set_pid(simulation::Active() ? 0 : static_cast<uint64_t>(getpid()));
  return state;
}

}  // namespace

Membership::Membership(Transport* transport, MembershipOptions options)
    : transport_(transport),
      options_(std::move(options)),
      incarnation_(DrawIncarnation()),
      state_(StateOptions(options_)) {}

Membership::~Membership() { Stop(); }

void Membership::Stop() {
  {
    MutexLock lock(&mutex_);
    stopping_ = true;
    down_handler_ = nullptr;
    changed_.NotifyAll();
  }
  // Called from within the handler on the heartbeat thread: it cannot wait for itself.
  if (heartbeat_thread_ == Thread::CurrentId()) return;
  MutexLock joining(&joining_);
  if (heartbeats_.joinable()) heartbeats_.Join();
}

absl::Status Membership::Connect() {
  {
    MutexLock lock(&mutex_);
    if (scheduler_.has_value()) return absl::FailedPreconditionError("Join was called twice");
  }
  SLIMPS_ASSIGN_OR_RETURN(std::string address, ResolveAddress(options_.scheduler_address));
  SLIMPS_ASSIGN_OR_RETURN(address, WithKey(address, options_.scheduler_key));
  SLIMPS_ASSIGN_OR_RETURN(const PeerId scheduler, transport_->Connect(address));
  MutexLock lock(&mutex_);
  scheduler_ = scheduler;
  return absl::OkStatus();
}

absl::Status Membership::Join() {
  SLIMPS_RETURN_IF_ERROR(Connect());
  const SteadyTime deadline = options_.clock->Now() + options_.join_timeout;
  MembershipState::Actions actions;
  {
    MutexLock lock(&mutex_);
    actions = state_.StartJoin(options_.clock->Now(), deadline);
  }
  Carry(std::move(actions));
  {
    MutexLock joining(&joining_);
    heartbeats_ = Thread("heartbeats", [this] { RunHeartbeats(); });
  }

  // Declared before the lock, so it is destroyed after the lock: its callback takes the lock.
  const std::stop_callback wake(options_.stop, [this] {
    MutexLock lock(&mutex_);
    changed_.NotifyAll();
  });
  MutexLock lock(&mutex_);
  while (!state_.JoinResult(options_.clock->Now()).has_value()) {
    if (options_.stop.stop_requested()) {
      return absl::CancelledError(absl::StrCat("joining the job at scheduler ",
                                               options_.scheduler_address, " was stopped"));
    }
    changed_.WaitFor(&mutex_, deadline - options_.clock->Now());
  }
  absl::Status result = *state_.JoinResult(SteadyTime::InfiniteFuture());
  if (result.code() != absl::StatusCode::kDeadlineExceeded || state_.down().has_value()) {
    return result;
  }
  return absl::DeadlineExceededError(
      absl::StrCat(result.message(), " within ", absl::FormatDuration(options_.join_timeout)));
}

void Membership::RunHeartbeats() {
  heartbeat_thread_ = Thread::CurrentId();
  // Sleeps until the state machine has something due, or until a message may have brought that
  // forward (a Welcome starts the heartbeat). A Tick too many does nothing.
  for (;;) {
    MembershipState::Actions actions;
    {
      MutexLock lock(&mutex_);
      if (stopping_) return;
      changed_.WaitFor(&mutex_, state_.NextTick() - options_.clock->Now());
    }
    OrTell(options_.on_out_of_memory, [&] {
      const SteadyTime delivered_until = transport_->DeliveredUntil();
      {
        MutexLock lock(&mutex_);
        if (stopping_) return;
        actions = state_.Tick(options_.clock->Now(), delivered_until);
      }
      AddReport(&actions.send);
      Carry(std::move(actions));
    });
  }
}

void Membership::SetReporter(Reporter reporter) {
  MutexLock lock(&mutex_);
  reporter_ = std::move(reporter);
}

void Membership::AddReport(std::vector<wire::Header>* headers) const {
  for (wire::Header& header : *headers) {
    if (!header.has_heartbeat() || header.heartbeat().sequence() == 0) continue;
    Reporter reporter;
    bool details = false;
    {
      MutexLock lock(&mutex_);
      if (!state_.welcome().wants_reports() || reporter_ == nullptr) return;
      reporter = reporter_;
      details = state_.wants_details();
    }
    std::string report = reporter(details);
    // A heartbeat that breaks a limit would not go out, and the node would seem dead.
    if (report.size() > kDefaultLimits.max_report_bytes) continue;
    header.mutable_heartbeat()->set_report(std::move(report));
  }
}

void Membership::Carry(MembershipState::Actions actions) {
  std::function<void(absl::Status)> handler;
  {
    MutexLock lock(&mutex_);
    if (!scheduler_.has_value()) return;
    if (actions.down.has_value() && down_handler_ != nullptr && !down_told_) {
      handler = down_handler_;
      down_told_ = true;
    }
    changed_.NotifyAll();
  }
  if (!actions.notice.empty()) LOG(WARNING) << "joining the job: " << actions.notice;
  Send(std::move(actions.send));
  if (handler != nullptr) handler(*std::move(actions.down));
}

void Membership::Send(std::vector<wire::Header> headers) {
  const PeerId to = scheduler();
  const wire::Header envelope = MakeHeader();
  for (wire::Header& header : headers) {
    header.MergeFrom(envelope);
    const absl::Status sent = SendInParts(transport_, to, header, kControlPriority);
    // A message that cannot be queued now is repeated later. A scheduler that stays away is noticed
    // by its silence. A message that breaks a limit breaks it every time, so its wait ends now.
    if (!absl::IsInvalidArgument(sent)) continue;
    MutexLock lock(&mutex_);
    state_.CannotSend(header, sent);
    changed_.NotifyAll();
  }
}

bool Membership::HandleMessage(PeerId from, Message& message) {
  bool consumed = false;
  MembershipState::Actions actions;
  {
    MutexLock lock(&mutex_);
    if (message.header.has_part() && !Complete(from, &message.header)) return true;
    if (!scheduler_.has_value() || from != *scheduler_) {
      // Only the scheduler may send these. From anyone else they are dropped here.
      switch (message.header.body_case()) {
        case wire::Header::kWelcome:
        case wire::Header::kRoster:
        case wire::Header::kBarrierRelease:
        case wire::Header::kNodeDown:
        case wire::Header::kShutdown:
          return true;
        default:
          return false;
      }
    }
    actions = state_.HandleFromScheduler(message.header, options_.clock->Now(), &consumed);
    if (message.header.has_roster()) AllowKeys();
    TraceLog::Global().SetJobTime(state_.job_time());
  }
  Carry(std::move(actions));
  return consumed;
}

bool Membership::Complete(PeerId from, wire::Header* header) {
  if (from != scheduler_) return false;
  absl::StatusOr<std::optional<wire::Header>> whole = parts_.Add(*header);
  if (!whole.ok()) LOG(WARNING) << "dropped a message of the scheduler: " << whole.status();
  if (!whole.ok() || !whole->has_value()) return false;
  *header = **std::move(whole);
  return true;
}

void Membership::AllowKeys() {
  if (options_.allowed_keys == nullptr) return;
  AllowedKeys::Owners owners;
  for (const wire::RosterEntry& entry : state_.roster().nodes()) {
    if (!entry.public_key().empty()) owners[entry.public_key()] = NodeName(entry.node());
  }
  // Keys come with the complete roster. Until then nobody is refused for good.
  if (!owners.empty()) options_.allowed_keys->Set(std::move(owners));
}

void Membership::HandleUndeliverable(PeerId to, const absl::Status& why) {
  if (!absl::IsPermissionDenied(why)) return;
  MutexLock lock(&mutex_);
  if (to != scheduler_) return;
  state_.RefuseJoin(absl::PermissionDeniedError(
      absl::StrCat("scheduler ", options_.scheduler_address, ": ", why.message())));
  changed_.NotifyAll();
}

absl::Status Membership::Leave() {
  MembershipState::Actions actions;
  bool lost = false;
  absl::Duration timeout;
  {
    MutexLock lock(&mutex_);
    timeout = state_.SchedulerTimeout();
    lost = state_.down().has_value() && !state_.down()->ok();
    actions = state_.StartLeave(options_.clock->Now());
  }
  Carry(std::move(actions));
  if (lost) return absl::OkStatus();  // the job is over; its goodbye is not waited for

  const SteadyTime deadline = options_.clock->Now() + timeout;
  MutexLock lock(&mutex_);
  while (state_.phase() != MembershipState::Phase::kLeft && options_.clock->Now() < deadline) {
    changed_.WaitFor(&mutex_, deadline - options_.clock->Now());
  }
  if (state_.phase() == MembershipState::Phase::kLeft) return absl::OkStatus();
  // The scheduler ended the job in order. It does not need this goodbye and may be gone.
  if (state_.down().has_value()) return absl::OkStatus();
  return absl::DeadlineExceededError(absl::StrCat("scheduler ", options_.scheduler_address,
                                                  " did not acknowledge the goodbye within ",
                                                  absl::FormatDuration(timeout)));
}

void Membership::ReportFailure(const absl::Status& why) {
  MembershipState::Actions actions;
  {
    MutexLock lock(&mutex_);
    actions = state_.ReportFailure(why, options_.clock->Now());
  }
  Carry(std::move(actions));
}

wire::Header Membership::StartReport(const wire::ThresholdReport& report) {
  MutexLock lock(&mutex_);
  wire::Header message = state_.StartReport(report, options_.clock->Now());
  message.MergeFrom(MakeHeaderLocked());
  changed_.NotifyAll();
  return message;
}

void Membership::FailWaiting(const absl::Status& why) {
  MutexLock lock(&mutex_);
  state_.FailWaiting(why);
  changed_.NotifyAll();
}

bool Membership::AwaitFailureReported(absl::Duration timeout) {
  MutexLock lock(&mutex_);
  return changed_.Await(&mutex_, timeout, [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return state_.failure_reported();
  });
}

void Membership::SetDownHandler(std::function<void(absl::Status)> handler) {
  std::optional<absl::Status> already;
  {
    MutexLock lock(&mutex_);
    down_handler_ = handler;
    if (state_.down().has_value() && !down_told_) {
      down_told_ = true;
      already = state_.down();
    }
  }
  if (already.has_value() && handler != nullptr) handler(*already);
}

std::string Membership::waits() const {
  MutexLock lock(&mutex_);
  return state_.waits();
}

std::optional<absl::Status> Membership::down() const {
  MutexLock lock(&mutex_);
  return state_.down();
}

bool Membership::servers_may_return() const {
  MutexLock lock(&mutex_);
  return state_.servers_may_return();
}

wire::Welcome Membership::welcome() const {
  MutexLock lock(&mutex_);
  return state_.welcome();
}

void Membership::EndReturn() {
  MutexLock lock(&mutex_);
  state_.EndReturn();
}

void Membership::SetSavedEpoch(uint64_t epoch) {
  MutexLock lock(&mutex_);
  state_.SetSavedEpoch(epoch);
}

void Membership::SetHasPushed() {
  MutexLock lock(&mutex_);
  state_.SetHasPushed();
}

uint32_t Membership::rank() const {
  MutexLock lock(&mutex_);
  return state_.rank();
}

wire::Roster Membership::roster() const {
  MutexLock lock(&mutex_);
  return state_.roster();
}

PeerId Membership::scheduler() const {
  MutexLock lock(&mutex_);
  return scheduler_.value();
}

wire::NodeRef Membership::self() const {
  wire::NodeRef self;
  self.set_role(options_.role);
  self.set_rank(rank());
  return self;
}

wire::Header Membership::MakeHeader() const {
  MutexLock lock(&mutex_);
  return MakeHeaderLocked();
}

wire::Header Membership::MakeHeaderLocked() const {
  wire::Header header;
  header.set_protocol_version(kProtocolVersion);
  header.set_job_id(options_.job_id);
  header.mutable_sender()->set_role(options_.role);
  header.mutable_sender()->set_rank(state_.rank());
  SetIncarnation(incarnation_, &header);
  header.set_membership_epoch(state_.roster().epoch());
  return header;
}

}  // namespace slimps
