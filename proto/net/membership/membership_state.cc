// SPDX-License-Identifier: Apache-2.0
#include "proto/net/membership/membership_state.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "proto/base/clock.h"
#include "proto/base/simulation/mutant.h"
#include "proto/header_body.h"
#include "proto/net/membership/node_name.h"
#include "proto/status_proto.h"

namespace slimps {
namespace {

void Append(MembershipState::Actions more, MembershipState::Actions* all) {
  for (wire::Header& header : more.send) all->send.push_back(std::move(header));
  if (more.down.has_value()) all->down = std::move(more.down);
  if (!more.notice.empty()) all->notice = std::move(more.notice);
}

}  // namespace

wire::Header MembershipState::NewRequest(wire::Header::BodyCase body) {
  wire::Header header;
  header.set_request_id(kRequestBit | next_request_++);
  GiveBody(body, &header);
  return header;
}

wire::Header MembershipState::MakeReport(const Failure& failure) const {
  wire::Header header;
  header.set_request_id(failure.request_id);
  GiveBody(wire::Header::kError, &header);
  wire::Error* error = header.mutable_error();
  *error->mutable_status() = ToStatusProto(failure.why);
  error->mutable_node()->set_role(options_.registration.role());
  error->mutable_node()->set_rank(rank());
  return header;
}

MembershipState::Actions MembershipState::GoDown(absl::Status reason) {
  if (down_.has_value() || phase_ == Phase::kLeft) return {};
  down_ = reason;
  return {.send = {}, .down = std::move(reason), .notice = {}};
}

MembershipState::Actions MembershipState::StartJoin(SteadyTime now, SteadyTime deadline) {
  phase_ = Phase::kRegistering;
  join_deadline_ = deadline;
  notice_at_ = now + options_.join_patience;
  repeat_at_ = now;
  return Tick(now);
}

std::optional<absl::Status> MembershipState::JoinResult(SteadyTime now) const {
  if (!failed_.ok()) return failed_;
  if (phase_ == Phase::kMember) return absl::OkStatus();
  if (refused_.has_value()) return refused_;
  if (down_.has_value()) {
    if (!down_->ok()) return down_;
    return absl::FailedPreconditionError("the scheduler ended the job before it began");
  }
  if (now < join_deadline_) return std::nullopt;
  return absl::DeadlineExceededError(WaitsFor());
}

std::string MembershipState::WaitsFor() const {
  if (phase_ == Phase::kRegistering) {
    return absl::StrCat("scheduler ", options_.scheduler_address, " did not answer");
  }
  const std::string missing = MissingNodes(roster_);
  std::string text =
      absl::StrCat("roster incomplete: waiting for ", missing.empty() ? "the scheduler" : missing);
  for (int i = 0; i < roster_.refusals_size(); ++i) {
    absl::StrAppend(&text, i == 0 ? "; the scheduler " : "; it ", roster_.refusals(i));
  }
  return text;
}

MembershipState::Actions MembershipState::HandleFromScheduler(const wire::Header& header,
                                                              SteadyTime now, bool* consumed) {
  *consumed = false;
  const bool to_us = (header.request_id() & kRequestBit) != 0;
  if (header.body_case() == wire::Header::kError && to_us) {
    const bool is_of_report = reports_.erase(header.request_id()) > 0;
    const absl::Status why = FromStatusProto(header.error().status());
    if (is_of_report && !absl::IsNotFound(why)) return {};
    *consumed = true;
    return HandleError(why, header.request_id());
  }
  // Checked before the job id: a scheduler that has forgotten this node, or ended, names no job.
  if (header.body_case() == wire::Header::kAck && to_us) {
    *consumed = true;
    HandleAck(header.request_id());
    return {};
  }
  if (header.job_id() != options_.job_id) {
    *consumed = true;
    return {};
  }
  last_heard_ = now;
  *consumed = true;
  switch (header.body_case()) {
    case wire::Header::kWelcome:
      return HandleWelcome(header.welcome(), now);
    case wire::Header::kRoster:
      HandleRoster(header.roster());
      return {};
    case wire::Header::kBarrierRelease:
      HandleRelease(header.barrier_release());
      return {};
    case wire::Header::kHeartbeat:
      if (header.heartbeat().answer_at_once()) return AnswerProbe();
      HandleEcho(header.heartbeat(), now);
      return {};
    case wire::Header::kNodeDown:
      return GoDown(
          absl::UnavailableError(header.node_down().reason().empty()
                                     ? absl::StrCat(NodeName(header.node_down().node()), " is down")
                                     : header.node_down().reason()));
    case wire::Header::kShutdown:
      return GoDown(FromStatusProto(header.shutdown().reason()));
    default:
      break;
  }
  *consumed = false;
  return {};
}

MembershipState::Actions MembershipState::HandleError(const absl::Status& why,
                                                      uint64_t request_id) {
  // A scheduler that runs another job answers too. Its job id differs, and the error says so.
  // NotFound answers a heartbeat that came before the Register, so it refuses nothing.
  if (!absl::IsNotFound(why)) RefuseJoin(why);
  // What a member has asked the scheduler answers, unless it has given the member up.
  if (phase_ != Phase::kMember || !absl::IsNotFound(why) || request_id < first_as_member_) {
    return {};
  }
  return GoDown(absl::FailedPreconditionError(
      absl::StrCat("scheduler ", options_.scheduler_address, kDoesNotKnow,
                   ": it was silent for too long, and its place was taken or the job has ended (",
                   why.message(), ")")));
}

MembershipState::Actions MembershipState::HandleWelcome(const wire::Welcome& welcome,
                                                        SteadyTime now) {
  if (phase_ == Phase::kRegistering) returning_ = welcome.restarts() > 0;
  if (phase_ == Phase::kRegistering || phase_ == Phase::kWelcomed) {
    for (const wire::BarrierTicket& over : welcome.tickets()) NoteOver(over.name(), over.ticket());
  }
  // The node registered again before the roster was complete, because the scheduler had given it
  // up. The newest rank counts.
  if (phase_ == Phase::kWelcomed) welcome_ = welcome;
  if (phase_ != Phase::kRegistering) return {};
  welcome_ = welcome;
  phase_ = Phase::kWelcomed;
  heartbeat_at_ = now;
  return Tick(now);
}

void MembershipState::HandleRoster(const wire::Roster& roster) {
  // Register is repeated until the roster is complete. So a roster that overtook its Welcome and
  // is dropped here comes again.
  if (!InJob() || roster.epoch() < roster_.epoch()) return;
  roster_ = roster;
  if (phase_ != Phase::kWelcomed || !MissingNodes(roster_).empty()) return;
  phase_ = Phase::kMember;
  first_as_member_ = kRequestBit | next_request_;
}

void MembershipState::HandleAck(uint64_t request_id) {
  if (reports_.erase(request_id) > 0) return;
  if (failure_.has_value() && request_id == failure_->request_id) {
    failure_.reset();
  } else if (phase_ == Phase::kLeaving && request_id >= first_goodbye_) {
    phase_ = Phase::kLeft;
  }
}

MembershipState::Actions MembershipState::AnswerProbe() {
  if (phase_ == Phase::kIdle || phase_ == Phase::kLeft) return {};
  Actions actions;
  // Its sequence is 0, so its echo does not count for the clock offset.
  actions.send.push_back(NewRequest(wire::Header::kHeartbeat));
  return actions;
}

void MembershipState::HandleEcho(const wire::Heartbeat& echo, SteadyTime now) {
  wants_details_ = echo.wants_details();
  waits_ = echo.waits();
  // Only the echo of the newest heartbeat counts: one that took longer than the interval tells
  // little. A scheduler need not say its time.
  if (echo.sequence() != heartbeat_sequence_ || echo.scheduler_unix_ns() == 0) return;
  clock_offset_.Add(options_.wall.At(heartbeat_sent_),
                    absl::FromUnixNanos(static_cast<int64_t>(echo.scheduler_unix_ns())),
                    options_.wall.At(now));
}

void MembershipState::NoteOver(const std::string& name, uint64_t ticket) {
  uint64_t& newest = returning_ ? over_[name] : tickets_[name];
  newest = std::max(newest, ticket);
}

void MembershipState::EndReturn() {
  returning_ = false;
  for (const auto& [name, ticket] : over_) NoteOver(name, ticket);
  over_.clear();
}

void MembershipState::HandleRelease(const wire::BarrierRelease& release) {
  const auto found = barriers_.find({release.name(), release.ticket()});
  if (found == barriers_.end() || found->second.result.has_value()) return;
  NoteOver(release.name(), release.newest());
  if (found->second.forgotten) {
    barriers_.erase(found);
    return;
  }
  absl::Status status = FromStatusProto(release.status());
  if (status.ok()) {
    found->second.result = std::vector<double>(release.sums().begin(), release.sums().end());
  } else {
    found->second.result = std::move(status);
  }
}

MembershipState::Actions MembershipState::Tick(SteadyTime now, SteadyTime delivered_until) {
  Actions actions;
  if (down_.has_value() && phase_ != Phase::kLeaving) return actions;
  if ((phase_ == Phase::kRegistering || phase_ == Phase::kWelcomed) && now >= repeat_at_) {
    wire::Header header = NewRequest(wire::Header::kRegister);
    *header.mutable_register_() = options_.registration;
    actions.send.push_back(std::move(header));
    repeat_at_ = now + options_.repeat_interval;
    if (now >= notice_at_) {
      actions.notice = WaitsFor();
      notice_at_ = SteadyTime::InfiniteFuture();
    }
  }
  if (InJob() && now >= heartbeat_at_) {
    wire::Header header = NewRequest(wire::Header::kHeartbeat);
    header.mutable_heartbeat()->set_sequence(++heartbeat_sequence_);
    header.mutable_heartbeat()->set_saved_epoch(saved_epoch_);
    header.mutable_heartbeat()->set_has_pushed(has_pushed_);
    heartbeat_sent_ = now;
    actions.send.push_back(std::move(header));
    heartbeat_at_ = now + absl::Milliseconds(std::max(1u, welcome_.heartbeat_interval_ms()));
  }
  if (phase_ == Phase::kLeaving && now >= repeat_at_) {
    actions.send.push_back(NewRequest(wire::Header::kGoodbye));
    repeat_at_ = now + options_.goodbye_interval;
  }
  if (failure_.has_value() && now >= failure_->repeat_at) {
    actions.send.push_back(MakeReport(*failure_));
    failure_->repeat_at = now + options_.goodbye_interval;
  }
  for (auto& [id, pending] : reports_) {
    if (now < pending.repeat_at) continue;
    actions.send.push_back(pending.request);
    pending.repeat_at = now + options_.repeat_interval;
  }
  for (auto& [id, pending] : barriers_) {
    if (pending.result.has_value() || now < pending.repeat_at) continue;
    actions.send.push_back(pending.request);
    pending.repeat_at = now + options_.repeat_interval;
  }
  const absl::Duration timeout = SchedulerTimeout();
  if (phase_ == Phase::kMember && timeout > absl::ZeroDuration() &&
      std::min(now, delivered_until) - last_heard_ > timeout) {
    Append(GoDown(absl::UnavailableError(absl::StrCat("scheduler ", options_.scheduler_address,
                                                      " has been silent for over ",
                                                      absl::FormatDuration(timeout)))),
           &actions);
  }
  return actions;
}

absl::Duration MembershipState::SchedulerTimeout() const {
  return absl::Milliseconds(welcome_.scheduler_timeout_ms() > 0 ? welcome_.scheduler_timeout_ms()
                                                                : welcome_.heartbeat_timeout_ms());
}

SteadyTime MembershipState::NextTick() const {
  SteadyTime next = SteadyTime::InfiniteFuture();
  if (phase_ == Phase::kLeaving) {
    const bool reports = failure_.has_value() && !down_.has_value();
    return reports ? std::min(repeat_at_, failure_->repeat_at) : repeat_at_;
  }
  if (down_.has_value() || phase_ == Phase::kIdle || phase_ == Phase::kLeft) return next;
  if (phase_ != Phase::kMember) next = std::min(next, repeat_at_);
  if (InJob()) next = std::min(next, heartbeat_at_);
  if (failure_.has_value()) next = std::min(next, failure_->repeat_at);
  for (const auto& [id, pending] : reports_) next = std::min(next, pending.repeat_at);
  for (const auto& [id, pending] : barriers_) {
    if (!pending.result.has_value()) next = std::min(next, pending.repeat_at);
  }
  return next;
}

MembershipState::Actions MembershipState::StartBarrier(const BarrierVisit& visit, SteadyTime now,
                                                       BarrierId* id) {
  *id = {visit.name, ++tickets_[visit.name]};
  PendingBarrier pending{
      .request = NewRequest(wire::Header::kBarrier), .repeat_at = now, .result = {}};
  wire::Barrier* barrier = pending.request.mutable_barrier();
  barrier->set_name(visit.name);
  barrier->set_group(visit.group);
  barrier->set_purpose(visit.purpose);
  barrier->set_ticket(id->ticket);
  barrier->mutable_values()->Add(visit.values.begin(), visit.values.end());
  barriers_.emplace(*id, std::move(pending));
  return Tick(now);
}

MembershipState::Actions MembershipState::GiveUpBarrier(const BarrierId& id, absl::Duration waited,
                                                        SteadyTime now) {
  const auto found = barriers_.find(id);
  if (found == barriers_.end() || found->second.result.has_value()) return {};
  const int64_t ms = std::max<int64_t>(1, absl::ToInt64Milliseconds(waited));
  found->second.request.mutable_barrier()->set_gave_up_after_ms(static_cast<uint64_t>(ms));
  found->second.repeat_at = now;
  return Tick(now);
}

void MembershipState::ForgetBarrier(const BarrierId& id) {
  const auto found = barriers_.find(id);
  if (found == barriers_.end()) return;
  found->second.forgotten = true;
  const bool given_up = found->second.request.barrier().gave_up_after_ms() > 0;
  if (!given_up || found->second.result.has_value() || down_.has_value()) barriers_.erase(found);
}

std::optional<absl::StatusOr<std::vector<double>>> MembershipState::BarrierResult(
    const BarrierId& id) const {
  const auto found = barriers_.find(id);
  if (found != barriers_.end() && found->second.result.has_value()) return found->second.result;
  if (!failed_.ok()) return failed_;
  if (down_.has_value()) {
    return down_->ok() ? absl::FailedPreconditionError("the job has ended") : *down_;
  }
  if (phase_ != Phase::kMember) return absl::FailedPreconditionError("not a member of the job");
  return std::nullopt;
}

wire::Header MembershipState::StartReport(const wire::ThresholdReport& report, SteadyTime now) {
  wire::Header request = NewRequest(wire::Header::kThresholdReport);
  *request.mutable_threshold_report() = report;
  const SteadyTime repeat_at = simulation::Is(Mutant::kReportOnce) ? SteadyTime::InfiniteFuture()
                                                                   : now + options_.repeat_interval;
  reports_[request.request_id()] = {.request = request, .repeat_at = repeat_at};
  return request;
}

MembershipState::Actions MembershipState::StartLeave(SteadyTime now) {
  if (phase_ == Phase::kLeaving || phase_ == Phase::kLeft) return {};
  if (phase_ == Phase::kIdle || phase_ == Phase::kRegistering) {
    phase_ = Phase::kLeft;  // the scheduler does not know this node
    return {};
  }
  phase_ = Phase::kLeaving;
  first_goodbye_ = kRequestBit | next_request_;
  repeat_at_ = now;
  return Tick(now);
}

MembershipState::Actions MembershipState::ReportFailure(const absl::Status& why, SteadyTime now) {
  if (!InJob() || down_.has_value() || failure_.has_value()) return {};
  failure_ = {.why = why, .request_id = kRequestBit | next_request_++, .repeat_at = now};
  return Tick(now);
}

void MembershipState::RefuseJoin(const absl::Status& why) {
  if (phase_ == Phase::kRegistering || phase_ == Phase::kWelcomed) refused_ = why;
}

void MembershipState::CannotSend(const wire::Header& request, const absl::Status& why) {
  if (request.has_register_()) {
    RefuseJoin(why);
  } else if (request.has_barrier()) {
    const auto found = barriers_.find({request.barrier().name(), request.barrier().ticket()});
    if (found == barriers_.end()) return;
    found->second.result = why;
    if (found->second.forgotten) barriers_.erase(found);
  } else if (request.has_error()) {
    failure_.reset();
  }
}

}  // namespace slimps
