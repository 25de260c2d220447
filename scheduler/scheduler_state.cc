// SPDX-License-Identifier: Apache-2.0
#include "scheduler/scheduler_state.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "proto/base/clock.h"
#include "proto/base/simulation/mutant.h"
#include "proto/base/status_copy.h"
#include "proto/base/status_macros.h"
#include "proto/incarnation.h"
#include "proto/net/membership/node_name.h"
#include "proto/status_proto.h"

namespace slimps {
namespace {

constexpr absl::Duration kShutdownRepeat = absl::Seconds(1);
constexpr size_t kMostToldOfFailure = 300;  // characters

uint32_t Millis(absl::Duration duration) {
  return static_cast<uint32_t>(
      std::clamp<int64_t>(absl::ToInt64Milliseconds(duration), 1, int64_t{1} << 31));
}

// Returns the time that a call waits at least: twice as long as a node may be gone, since one that
// comes back has to catch up.
uint32_t LeastTimeoutMs(const SchedulerOptions& options) {
  const absl::Duration gone = std::max(options.restart_timeout, options.worker_timeout);
  return gone == absl::ZeroDuration() ? 0 : Millis(2 * (options.heartbeat_timeout + gone));
}

}  // namespace

SchedulerState::SchedulerState(SchedulerOptions options, SteadyTime now, const WallAnchor& wall)
    : options_(std::move(options)),
      wall_(wall),
      began_(now),
      deadline_(now + options_.roster_timeout),
      repeat_at_(SteadyTime::InfiniteFuture()),
      credentials_(options_.allowed),
      members_({.job_id = options_.job_id,
                .num_workers = options_.num_workers,
                .num_servers = options_.num_servers,
                .heartbeat_timeout = options_.heartbeat_timeout,
                .probe_timeout = options_.heartbeat_timeout / 4,
                .restart_timeout = options_.restart_timeout,
                .worker_timeout = options_.worker_timeout,
                .public_keys = credentials_.PublicKeys()}),
      newcomers_(size_t{options_.num_workers} + options_.num_servers),
      agreements_(options_.num_workers, options_.num_servers),
      joining_(JoinLog::Options{}) {}

Outbox SchedulerState::Handle(PeerId from, const wire::Header& header, SteadyTime now,
                              const std::string& user_id) {
  Outbox out;
  // Checked before the message changes anything: who knows a member's incarnation is not yet that
  // member.
  if (const Member* const named = members_.HolderOf(IncarnationOf(header)); named != nullptr) {
    const absl::Status is_it = credentials_.Check(user_id, named->entry.node());
    if (!is_it.ok()) return {RefuseStranger(from, is_it, header.request_id())};
  }
  if (header.has_register_()) {
    HandleRegister(from, header, user_id, now, &out);
    SettleNewcomers(now, SteadyTime::InfinitePast(), &out);
    return out;
  }
  const absl::StatusOr<const Member*> member = members_.Heard(header, from, now);
  if (absl::IsUnavailable(member.status())) {
    ProbeMembers(&out);
  } else if (!member.ok()) {
    // A goodbye repeated after the roster forgot the node needs only its acknowledgement.
    out.push_back(header.has_goodbye()
                      ? OutgoingHeader{from, AckReply(header.request_id()), true}
                      : RefuseStranger(from, member.status(), header.request_id()));
  } else {
    HandleMember(**member, header, now, &out);
  }
  SettleNewcomers(now, SteadyTime::InfinitePast(), &out);
  return out;
}

void SchedulerState::ProbeMembers(Outbox* out) {
  for (const PeerId peer : members_.TakeProbes()) out->push_back({peer, Probe()});
}

void SchedulerState::SettleNewcomers(SteadyTime now, SteadyTime heard_until, Outbox* out) {
  for (;;) {
    const bool open = phase_ == Phase::kForming || phase_ == Phase::kRunning;
    std::optional<Newcomers::Settled> settled =
        open ? newcomers_.TakeSettled(members_, heard_until) : newcomers_.TakeAny();
    if (!settled.has_value()) return;
    if (settled->gone != nullptr) newcomers_.WaitAnew(settled->header.register_().role(), now);
    if (settled->gone != nullptr && phase_ == Phase::kRunning) {
      Replace(*settled, now, out);
      continue;
    }
    if (settled->gone != nullptr) {
      const wire::NodeRef node = settled->gone->entry.node();
      joining_.Replaced(*settled->gone);
      members_.Remove(node);
      settled->header.mutable_register_()->set_wanted_rank(static_cast<int32_t>(node.rank()));
    }
    Admit(settled->from, settled->header, now, out);
  }
}

void SchedulerState::HandleRegister(PeerId from, wire::Header header, const std::string& user_id,
                                    SteadyTime now, Outbox* out) {
  const absl::Status bound = credentials_.BindRegistration(user_id, header.mutable_register_());
  if (!bound.ok()) {
    joining_.Refused(header, bound, now - began_);
    out->push_back(RefuseStranger(from, bound, header.request_id()));
    return;
  }
  std::vector<PeerId> probes;
  const bool open = phase_ == Phase::kForming || phase_ == Phase::kRunning;
  if (!open || !newcomers_.Hold(from, header, now, members_, &probes)) {
    Admit(from, header, now, out);
  } else {
    for (const Member* former : members_.FormerSelves(header.register_())) {
      if (!former->IsGone() || !members_.MustWait(*former, SteadyTime::InfinitePast())) continue;
      joining_.Refused(header,
                       absl::UnavailableError("not yet: a server is gone, or is still sent what "
                                              "its snapshot lacks"),
                       now - began_);
    }
  }
  for (const PeerId peer : probes) out->push_back({peer, Probe()});
}

void SchedulerState::Admit(PeerId from, const wire::Header& header, SteadyTime now, Outbox* out) {
  if (phase_ != Phase::kForming && phase_ != Phase::kRunning) {
    std::string over =
        result_.ok() ? "the job is over: all workers have left" : "the job is over: it has failed";
    // Who is not of this job need not know why, nor get a long answer.
    if (!result_.ok() && members_.CheckRegistration(header).ok()) {
      absl::StrAppend(&over, ": ", result_.message().substr(0, kMostToldOfFailure));
    }
    out->push_back(RefuseStranger(from, absl::FailedPreconditionError(over), header.request_id()));
    return;
  }
  const bool was_complete = members_.complete();
  const uint64_t epoch = members_.epoch();
  const absl::StatusOr<const Member*> member = members_.Register(header, from, now);
  if (absl::IsUnavailable(member.status())) return ProbeMembers(out);
  if (!member.ok()) {
    joining_.Refused(header, member.status(), now - began_);
    out->push_back(RefuseStranger(from, member.status(), header.request_id()));
    return;
  }
  if (members_.epoch() != epoch) {
    joining_.Joined(**member, MissingNodes(members_.Roster()));
    Note(**member, header);
  }
  Welcome(from, header.request_id(), **member, out);
  if (!members_.complete() || was_complete) return SendRoster(**member, out);
  phase_ = Phase::kRunning;
  for (const Member& reader : members_.LiveMembers()) SendRoster(reader, out);
}

void SchedulerState::Welcome(PeerId to, uint64_t request_id, const Member& member,
                             Outbox* out) const {
  wire::Header header;
  header.set_request_id(request_id);
  wire::Welcome* welcome = header.mutable_welcome();
  welcome->set_rank(member.entry.node().rank());
  welcome->set_heartbeat_interval_ms(Millis(options_.heartbeat_interval));
  welcome->set_heartbeat_timeout_ms(Millis(options_.heartbeat_timeout));
  welcome->set_timeout_ms(Millis(options_.timeout));
  welcome->set_least_timeout_ms(LeastTimeoutMs(options_));
  welcome->set_restarts(member.entry.restarts());
  welcome->set_wants_reports(options_.wants_reports);
  const bool wants_decision = member.entry.restarts() > 0 && agreements_.Decided() != nullptr;
  if (wants_decision) *welcome->mutable_codec_map() = *agreements_.Decided();
  welcome->set_servers_may_return(options_.restart_timeout > absl::ZeroDuration());
  if (options_.has_journal) {
    welcome->set_scheduler_timeout_ms(
        Millis(options_.heartbeat_timeout + options_.restart_timeout));
  }
  for (wire::BarrierTicket& ticket : agreements_.Tickets()) {
    *welcome->add_tickets() = std::move(ticket);
  }
  out->push_back({to, std::move(header)});
}

void SchedulerState::SendRoster(const Member& reader, Outbox* out) const {
  wire::Header header;
  wire::Roster* roster = header.mutable_roster();
  *roster = members_.RosterFor(reader);
  if (phase_ == Phase::kForming) {
    for (const std::string& refusal : joining_.refusals()) roster->add_refusals(refusal);
  }
  out->push_back({reader.peer, std::move(header)});
}

void SchedulerState::HandleMember(const Member& member, const wire::Header& header, SteadyTime now,
                                  Outbox* out) {
  switch (header.body_case()) {
    case wire::Header::kHeartbeat: {
      if (members_.NoteDone(member.entry.node(), header.heartbeat())) {
        wire::Header done;
        done.mutable_heartbeat()->set_saved_epoch(header.heartbeat().saved_epoch());
        done.mutable_heartbeat()->set_has_pushed(header.heartbeat().has_pushed());
        Note(member, done);
      }
      wire::Header echo;
      echo.set_request_id(header.request_id());
      echo.mutable_heartbeat()->set_sequence(header.heartbeat().sequence());
      echo.mutable_heartbeat()->set_wants_details(wants_details_);
      if (member.entry.node().role() == wire::WORKER) echo.mutable_heartbeat()->set_waits(waits_);
      if (options_.wants_reports && !header.heartbeat().report().empty()) {
        const wire::NodeRef& node = member.entry.node();
        reports_[{node.role(), node.rank()}] = {node, header.heartbeat().report()};
      }
      echo.mutable_heartbeat()->set_scheduler_unix_ns(
          static_cast<uint64_t>(absl::ToUnixNanos(wall_.At(now))));
      out->push_back({member.peer, std::move(echo)});
      // The roster with a new process, or that says who is away, was lost on its way. Servers learn
      // here which workers have ended: a roster for each of many goodbyes would be too much.
      const bool is_server = member.entry.node().role() == wire::SERVER;
      const uint64_t needed = is_server && members_.complete() ? members_.epoch() : told_at_epoch_;
      if (header.membership_epoch() < needed) SendRoster(member, out);
      return;
    }
    case wire::Header::kBarrier:
    case wire::Header::kDeclareKeys:
    case wire::Header::kThresholdReport:
      if (agreements_.Handle(member, header, members_, out)) Note(member, header);
      return;
    case wire::Header::kPart: {
      const wire::NodeRef& node = member.entry.node();
      const absl::StatusOr<std::optional<wire::Header>> whole =
          parts_[{node.role(), node.rank()}].Add(header);
      if (!whole.ok()) {
        out->push_back({member.peer, ErrorReply(whole.status(), header.request_id())});
      } else if (whole->has_value()) {
        HandleMember(member, **whole, now, out);
      }
      return;
    }
    case wire::Header::kGoodbye:
      return HandleGoodbye(member, header, now, out);
    case wire::Header::kError: {
      const absl::Status why = FromStatusProto(header.error().status());
      // A copy: Fail outlives what `member` may point at.
      const wire::NodeRef node = member.entry.node();
      out->push_back({member.peer, AckReply(header.request_id())});
      Fail(node, absl::StrCat(member.ToString(), " failed: ", why.ToString()), now, out);
      return;
    }
    default:
      out->push_back({member.peer, ErrorReply(absl::InvalidArgumentError(absl::StrCat(
                                                  "the scheduler does not serve verb ",
                                                  static_cast<int>(header.body_case()), " of ",
                                                  NodeName(member.entry.node()))),
                                              header.request_id())});
  }
}

void SchedulerState::HandleGoodbye(const Member& member, const wire::Header& header, SteadyTime now,
                                   Outbox* out) {
  const wire::NodeRef node = member.entry.node();
  const std::string who = member.ToString();
  const bool again = member.state == MemberState::kLeft;
  out->push_back({member.peer, AckReply(header.request_id())});
  quiet_at_ = now + options_.quiet_time;
  if (again) return;
  if (phase_ == Phase::kRunning && node.role() == wire::SERVER) {
    return Lose(member, absl::StrCat(who, " left while workers are in the job"), now, out);
  }
  Note(member, header);
  members_.Leave(node);
  if (phase_ != Phase::kRunning) return;
  agreements_.Leave(node, members_, out);
  EndIfAllLeft(now, out);
}

void SchedulerState::EndIfAllLeft(SteadyTime now, Outbox* out) {
  if (!members_.AllLeft(wire::WORKER)) return;
  phase_ = Phase::kEnding;
  deadline_ = now + options_.shutdown_grace;
  BroadcastShutdown(now, out);
}

Outbox SchedulerState::Abort(const absl::Status& why, SteadyTime now) {
  Outbox out;
  if (phase_ == Phase::kForming || phase_ == Phase::kRunning) EnterFailed(why, now, &out);
  return out;
}

void SchedulerState::EnterFailed(const absl::Status& why, SteadyTime now, Outbox* out) {
  phase_ = Phase::kFailed;
  result_ = why;
  deadline_ = now + options_.shutdown_grace;
  BroadcastShutdown(now, out);
}

void SchedulerState::Fail(const wire::NodeRef& node, const std::string& reason, SteadyTime now,
                          Outbox* out) {
  if (phase_ != Phase::kForming && phase_ != Phase::kRunning) return;
  wire::Header header;
  *header.mutable_node_down()->mutable_node() = node;
  header.mutable_node_down()->set_reason(reason);
  TellEveryone(header, out);  // also the lost node, if it still listens; it is not waited for
  members_.Leave(node);
  blamed_ = header.node_down().node();  // a copy: `node` may be the member's own
  EnterFailed(absl::UnavailableError(reason), now, out);
}

void SchedulerState::BroadcastShutdown(SteadyTime now, Outbox* out) {
  wire::Header header;
  *header.mutable_shutdown()->mutable_reason() = ToStatusProto(result_);
  TellEveryone(header, out);
  repeat_at_ = now + kShutdownRepeat;
}

void SchedulerState::TellEveryone(const wire::Header& header, Outbox* out) const {
  for (const Member& member : members_.LiveMembers()) out->push_back({member.peer, header});
}

void SchedulerState::ConnectionGone(PeerId peer) {
  members_.ConnectionGone(peer);
  if (phase_ != Phase::kFailed) return;
  for (const Member& member : members_.LiveMembers()) {
    if (member.peer == peer) members_.Leave(member.entry.node());
  }
}

void SchedulerState::ConnectionClosed(PeerId peer, SteadyTime now) {
  if (phase_ != Phase::kRunning) return;
  for (const Member& member : members_.LiveMembers()) {
    if (member.peer != peer) continue;
    joining_.Disconnected(member, options_.heartbeat_timeout, now - began_);
  }
}

Outbox SchedulerState::Tick(SteadyTime now, SteadyTime delivered_until) {
  Outbox out;
  if (phase_ == Phase::kDone) return out;
  // The answer to a probe may lie undelivered, so silence counts only up to there.
  const SteadyTime heard_until = std::min(now, delivered_until);
  members_.SettleClaims(heard_until);
  if (phase_ == Phase::kEnding || phase_ == Phase::kFailed) {
    const bool quiet = members_.LiveMembers().empty() &&
                       (now >= quiet_at_ || simulation::Is(Mutant::kNoQuietTime));
    if (quiet || now >= deadline_) {
      phase_ = Phase::kDone;
    } else if (now >= repeat_at_) {
      BroadcastShutdown(now, &out);
    }
    return out;
  }
  for (const Member& member : members_.Overdue(heard_until)) {
    if (phase_ == Phase::kForming) {
      members_.Remove(member.entry.node());
      continue;
    }
    Lose(member,
         absl::StrCat(member.ToString(), " has been silent for over ",
                      absl::FormatDuration(options_.heartbeat_timeout)),
         now, &out);
  }
  if (phase_ == Phase::kRunning) LeaveBehind(now, heard_until, &out);
  if (const Member* lost = members_.GivenUp(now);
      lost != nullptr && phase_ == Phase::kRunning && !newcomers_.WaitFor(*lost, members_)) {
    Fail(lost->entry.node(),
         absl::StrCat(lost->ToString(), " is gone, and no new process took its place within ",
                      absl::FormatDuration(options_.restart_timeout)),
         now, &out);
  }
  SettleNewcomers(now, heard_until, &out);
  if (phase_ == Phase::kForming && now >= deadline_) {
    EnterFailed(absl::DeadlineExceededError(absl::StrCat(
                    "roster incomplete after ", absl::FormatDuration(options_.roster_timeout),
                    ": waiting for ", MissingNodes(members_.Roster()))),
                now, &out);
  }
  return out;
}

}  // namespace slimps
