// SPDX-License-Identifier: Apache-2.0
#include "scheduler/scheduler_service.h"

#include <glog/logging.h>

#include <optional>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/base/status_macros.h"
#include "proto/base/trace/trace.h"
#include "proto/limits.h"
#include "proto/net/membership/node_name.h"
#include "proto/net/send_in_parts.h"

namespace slimps {
namespace {

std::string_view NameOf(SchedulerState::Phase phase) {
  switch (phase) {
    case SchedulerState::Phase::kForming:
      return "forming";
    case SchedulerState::Phase::kRunning:
      return "running";
    case SchedulerState::Phase::kEnding:
      return "ending";
    case SchedulerState::Phase::kFailed:
      return "failed";
    case SchedulerState::Phase::kDone:
      return "done";
  }
  return "";
}

}  // namespace

SchedulerService::SchedulerService(Transport* transport, SchedulerOptions options,
                                   const Clock* clock, Journal* journal)
    : transport_(transport),
      options_(std::move(options)),
      clock_(clock),
      incarnation_(DrawIncarnation()),
      journal_(journal),
      state_(options_, clock->Now(), ReadAnchor(*clock)),
      phase_began_(clock->Now()) {}

void SchedulerService::SetFailureHandler(FailureHandler tell) {
  MutexLock lock(&mutex_);
  tell_failure_ = std::move(tell);
}

absl::Status SchedulerService::Restore() {
  MutexLock lock(&mutex_);
  const std::vector<JournalEntry> entries = journal_->TakeEntries();
  if (entries.empty()) return absl::OkStatus();
  SLIMPS_RETURN_IF_ERROR(state_.Restore(entries, clock_->Now()));
  LOG(WARNING) << "started again: going on by a journal of " << entries.size() << " entries, with "
               << state_.members().LiveMembers().size() << " nodes";
  return absl::OkStatus();
}

void SchedulerService::WriteDown() {
  const std::vector<JournalEntry> entries = state_.TakeEntries();
  if (journal_ == nullptr) return;
  if (state_.phase() == SchedulerState::Phase::kDone && state_.result().ok()) {
    return journal_->Remove();
  }
  if (entries.empty()) return;
  const absl::Status written = journal_->Append(entries);
  if (written.ok()) return;
  LOG(ERROR) << "the job goes on, but a scheduler that is started again cannot: " << written;
  journal_ = nullptr;
}

void SchedulerService::Change(absl::FunctionRef<Outbox(SchedulerState& state)> change) {
  Outbox outbox;
  uint64_t epoch = 0;
  {
    MutexLock lock(&mutex_);
    const SchedulerState::Phase before = state_.phase();
    outbox = change(state_);
    epoch = state_.members().epoch();
    WriteDown();  // before anybody sees what the entries led to
    LogChange(before);
  }
  Send(std::move(outbox), epoch);
}

void SchedulerService::OnMessage(PeerId from, Message message) {
  Change([&](SchedulerState& state) {
    Outbox outbox = state.Handle(from, message.header, clock_->Now(), message.user_id);
    if (state.members().IsConnected(from)) transport_->Admit(from);
    return outbox;
  });
}

void SchedulerService::OnBadFrame(PeerId from, const absl::Status& why) {
  Warn(absl::StrCat("bad frame from peer ", static_cast<uint64_t>(from), ": ", why.ToString()));
}

void SchedulerService::Warn(const std::string& line) {
  MutexLock lock(&mutex_);
  const std::optional<uint64_t> left_out = log_rate_.Take(clock_->Now());
  if (left_out.has_value()) LOG(WARNING) << line << LeftOut(*left_out);
}

void SchedulerService::OnUndeliverable(PeerId to, const absl::Status& why) {
  {
    MutexLock lock(&mutex_);
    state_.ConnectionGone(to);
    if (state_.phase() == SchedulerState::Phase::kFailed) return;  // nodes are expected to leave
  }
  Warn(absl::StrCat("could not reach peer ", static_cast<uint64_t>(to), ": ", why.ToString()));
}

void SchedulerService::OnConnectionLost(PeerId to) {
  Change([&](SchedulerState& state) {
    state.ConnectionClosed(to, clock_->Now());
    return Outbox();
  });
}

void SchedulerService::Tick() {
  const SteadyTime delivered_until = transport_->DeliveredUntil();
  Change([&](SchedulerState& state) { return state.Tick(clock_->Now(), delivered_until); });
}

void SchedulerService::Abort(const absl::Status& why) {
  Change([&](SchedulerState& state) { return state.Abort(why, clock_->Now()); });
}

void SchedulerService::WorkerEnded(uint32_t rank, uint64_t pid) {
  Change([&](SchedulerState& state) { return state.WorkerEnded(rank, pid, clock_->Now()); });
}

bool SchedulerService::done() const {
  MutexLock lock(&mutex_);
  return state_.phase() == SchedulerState::Phase::kDone;
}

absl::Status SchedulerService::result() const {
  MutexLock lock(&mutex_);
  return state_.result();
}

Observation SchedulerService::Observe(const Looking& looking) {
  MutexLock lock(&mutex_);
  state_.SetWantsDetails(looking.wants_details);
  state_.SetWaits(looking.waits);
  Observation seen;
  seen.view = state_.View(clock_->Now(), looking.known_version);
  seen.news = std::exchange(news_, {});
  for (SchedulerState::Report& report : state_.TakeReports()) {
    seen.reports.emplace_back(NodePlace(report.node.role(), report.node.rank()),
                              std::move(report.bytes));
  }
  return seen;
}

void SchedulerService::Tell(const std::string& line) {
  LOG(INFO) << line;
  if (options_.wants_reports) news_.push_back(line);
}

void SchedulerService::TellFailure() {
  tell_failure_(state_.result(), state_.blamed());
  const std::string line = absl::StrCat("the job has failed: ", state_.result().ToString());
  LOG(ERROR) << line;
  if (options_.wants_reports) news_.push_back(line);
}

void SchedulerService::LogChange(SchedulerState::Phase before) {
  const SteadyTime now = clock_->Now();
  for (const std::string& line : state_.TakeNews()) {
    Tell(line);
    TraceLog::Global().Add(TraceStage::kNews, {.key = line}, now, now);
  }
  if (state_.phase() == before) return;
  TraceLog::Global().Add(TraceStage::kPhase, {.key = NameOf(before)}, phase_began_, now);
  phase_began_ = now;
  switch (state_.phase()) {
    case SchedulerState::Phase::kForming:
      return;
    case SchedulerState::Phase::kRunning:
      return Tell(absl::StrCat("all nodes are there: ", CountOf(options_.num_workers, wire::WORKER),
                               ", ", CountOf(options_.num_servers, wire::SERVER)));
    case SchedulerState::Phase::kEnding:
      return Tell("the last worker has left, shutting the servers down");
    case SchedulerState::Phase::kFailed:
      return TellFailure();
    case SchedulerState::Phase::kDone:
      if (before == SchedulerState::Phase::kEnding) {
        Tell("the job has ended");
      } else if (before != SchedulerState::Phase::kFailed) {
        TellFailure();
      }
      return;
  }
}

void SchedulerService::Send(Outbox outbox, uint64_t epoch) {
  for (OutgoingHeader& outgoing : outbox) {
    wire::Header& header = outgoing.header;
    header.set_protocol_version(kProtocolVersion);
    header.mutable_sender()->set_role(wire::SCHEDULER);
    if (!outgoing.to_stranger) {
      header.set_job_id(options_.job_id);
      SetIncarnation(incarnation_, &header);
      header.set_membership_epoch(epoch);
    }
    const absl::Status sent = SendInParts(transport_, outgoing.to, std::move(header));
    if (sent.ok()) continue;
    Warn(absl::StrCat("cannot send: ", sent.ToString()));
    // NotFound: the transport has no such connection any more.
    if (!absl::IsNotFound(sent)) continue;
    MutexLock lock(&mutex_);
    state_.ConnectionGone(outgoing.to);
  }
}

}  // namespace slimps
