// SPDX-License-Identifier: Apache-2.0
#include "worker/store/worker_node.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "glog/logging.h"
#include "proto/base/status_macros.h"
#include "proto/net/membership/node_name.h"
#include "proto/net/send_in_parts.h"
#include "proto/status_proto.h"
#include "worker/store/guarded_store.h"

namespace slimps {
namespace {

// The longest time that a failed worker waits until the scheduler has heard why.
constexpr absl::Duration kReportPatience = absl::Seconds(5);

// Returns why a store has failed. `cause` is the error, or how the job ended. Never
// InvalidArgument: that would blame the arguments of whichever call is next.
absl::Status AsFailure(const absl::Status& cause) {
  if (cause.ok()) return absl::UnavailableError("the scheduler has ended the job");
  return absl::IsInvalidArgument(cause) ? absl::AbortedError(cause.message()) : cause;
}

absl::Status WasClosed() { return absl::FailedPreconditionError("the store was closed"); }

MembershipOptions MakeMembershipOptions(const KVStoreOptions& options,
                                        const OnOutOfMemory& on_out_of_memory) {
  MembershipOptions membership;
  membership.role = wire::WORKER;
  membership.wanted_rank = options.wanted_rank;
  membership.scheduler_address = options.scheduler_address;
  membership.scheduler_key = options.scheduler_key;
  membership.job_id = options.job_id;
  membership.num_workers = options.num_workers;
  membership.num_servers = options.num_servers;
  membership.join_timeout = options.join_timeout;
  membership.stop = options.stop;
  membership.clock = options.clock;
  membership.on_out_of_memory = on_out_of_memory;
  return membership;
}

// Makes `timeout` the job's if the worker has none of its own, and no shorter than the job allows.
void SettleTimeout(const wire::Welcome& welcome, absl::Duration* timeout) {
  if (*timeout == absl::ZeroDuration()) *timeout = absl::Milliseconds(welcome.timeout_ms());
  const absl::Duration least = absl::Milliseconds(welcome.least_timeout_ms());
  if (*timeout >= least) return;
  LOG(INFO) << "timeout_s is " << absl::ToDoubleSeconds(*timeout) << ", and the job waits for "
            << "processes that died: calls wait " << absl::ToDoubleSeconds(least) << " s";
  *timeout = least;
}

}  // namespace

WorkerNode::WorkerNode(wire::StoreMode mode, KVStoreOptions* options,
                       std::unique_ptr<Transport> transport, Activity* activity)
    : mode_(mode),
      options_(*options),
      transport_(std::move(transport)),
      activity_(activity),
      on_out_of_memory_(
          [this](const std::bad_alloc& error) { Fail(StoreFailure(error), Cause::kOurs); }),
      membership_(transport_.get(), MakeMembershipOptions(options_, on_out_of_memory_)),
      rpc_(transport_.get(), options_.retry_interval, options_.clock),
      servers_(transport_.get(), &membership_, &options_) {}

absl::Status WorkerNode::Join() {
  SLIMPS_RETURN_IF_ERROR(transport_->Start(this));
  SLIMPS_RETURN_IF_ERROR(membership_.Join());
  SettleTimeout(membership_.welcome(), &options_.timeout);
  SLIMPS_RETURN_IF_ERROR(servers_.Connect(membership_.roster()));
  returning_.store(membership_.welcome().restarts() > 0);
  former_saved_.store(!returning_.load());
  courier_ = std::make_unique<Courier>(
      transport_.get(), &membership_, servers_.Peers(),
      CourierOptions{
          .timeout = options_.timeout,
          .retry_interval = options_.retry_interval,
          .mode = mode_,
          .staleness = options_.staleness,
          .coalesce = options_.coalesce,
          .max_kept_bytes = membership_.servers_may_return()
                                ? std::optional(options_.max_kept_bytes)
                                : std::nullopt,
          .on_snapshot_wanted = [this](uint32_t server) { WishSnapshot(server); },
          .on_not_replayed = [this](const absl::Status& why) { Fail(why, Cause::kOurs); },
          .on_replayed =
              [this](uint64_t epoch) {
                if (former_saved_.load()) membership_.SetSavedEpoch(epoch);
              },
          .on_travel = [this](bool travels) { activity_->SetTravels(travels); },
          .clock = options_.clock,
          .on_out_of_memory = on_out_of_memory_});
  return absl::OkStatus();
}

void WorkerNode::FollowRoster() {
  MutexLock lock(&following_);
  const wire::Roster roster = membership_.roster();
  courier_->HoldReplays(roster.epoch());  // before a call can find the new connection
  const auto restarted = servers_.Follow(roster);
  if (restarted.ok()) {
    if (!restarted->empty() && !former_saved_.load()) {
      Fail(absl::DataLossError(absl::StrCat(
               "server ", restarted->front().server,
               " was started again while this worker took "
               "its rank back: pushes of the worker's former process may be lost with it")),
           Cause::kOurs);
    }
    for (const ServerConnections::Restarted& one : *restarted) {
      courier_->OnServerRestarted(one.server, one.peer);
      transport_->Disconnect(one.former);
    }
  } else {
    Fail(restarted.status(), Cause::kOurs);
  }
  courier_->ReleaseReplays();
}

void WorkerNode::NoteFormerSaved() {
  former_saved_.store(true);
  FollowRoster();  // which says what is saved
}

void WorkerNode::NotePush() {
  if (has_pushed_.load(std::memory_order_relaxed) || has_pushed_.exchange(true)) return;
  membership_.SetHasPushed();
  if (returning_.exchange(false)) membership_.EndReturn();
}

void WorkerNode::WishSnapshot(uint32_t server) {
  Message wish{.header = membership_.MakeHeader(), .payloads = {}};
  wish.header.mutable_persist();
  const absl::Status sent = transport_->Send(servers_.PeerOf(server), std::move(wish));
  if (!sent.ok()) LOG(WARNING) << "cannot ask server " << server << " for a snapshot: " << sent;
}

absl::Status WorkerNode::Serve(WorkerNodeEvents events) {
  events_ = std::move(events);
  ready_.store(true);
  {
    MutexLock lock(&mutex_);  // a Fail before ready_ did not reach the stages
    SLIMPS_RETURN_IF_ERROR(first_error_);
  }
  membership_.SetDownHandler([this](absl::Status why) { Fail(why, Cause::kOthers); });
  FollowRoster();  // what came before ready_ was not followed
  return absl::OkStatus();
}

void WorkerNode::GiveUp(const absl::Status& why) {
  membership_.ReportFailure(why);
  AwaitReport();
}

// ---- what arrives, on the I/O thread ------------------------------------------------------------

bool WorkerNode::IsOfUnknownProcess(PeerId from, const wire::Header& header) {
  const Incarnation speaker = IncarnationOf(header);
  if (header.sender().role() != wire::SERVER || !speaker.is_set()) return false;
  return speakers_.try_emplace(from, speaker).first->second != speaker;
}

void WorkerNode::OnMessage(PeerId from, Message message) {
  if (membership_.HandleMessage(from, message)) {
    if (message.header.has_roster() && ready_.load()) FollowRoster();
    return;
  }
  if (IsOfUnknownProcess(from, message.header)) return;
  if (rpc_.HandleMessage(message)) return;
  if (message.header.has_ack()) return;  // a repeat's, or WishSnapshot's
  if (!ready_.load()) return;            // the stages are not there yet
  if (courier_->HandleMessage(from, message)) return;
  const wire::Header& header = message.header;
  if (header.has_codec_map()) {
    if (from != membership_.scheduler()) {
      LOG(WARNING) << "dropped a codec map from " << NodeName(header.sender())
                   << ": expected one from the scheduler only";
      return;
    }
    const absl::Status applied = events_.on_codec_map(header.codec_map());
    if (!applied.ok()) Fail(applied, Cause::kOurs);
  } else if (header.has_error()) {
    Fail(FromStatusProto(header.error().status()), Cause::kOurs);
  } else {
    LOG(WARNING) << "dropped a message that a worker does not expect, verb " << header.body_case();
  }
}

void WorkerNode::OnBadFrame(PeerId from, const absl::Status& why) {
  LOG(WARNING) << "dropped a bad frame from peer " << static_cast<uint64_t>(from) << ": " << why;
}

void WorkerNode::OnUndeliverable(PeerId to, const absl::Status& why) {
  membership_.HandleUndeliverable(to, why);
  bool is_news = false;
  {
    MutexLock lock(&mutex_);
    is_news = first_error_.ok() && state_ != State::kClosed && undeliverable_.insert(to).second;
  }
  if (is_news) {
    LOG(WARNING) << "could not deliver to peer " << static_cast<uint64_t>(to) << ": " << why
                 << " (logged once per peer)";
  }
  if (ready_.load()) courier_->OnUndeliverable(to);
}

void WorkerNode::OnConnectionLost(PeerId to) {
  if (!ready_.load() || to == membership_.scheduler() || !FirstError().ok()) return;
  if (!servers_.Has(to)) return;  // a server's former process
  servers_.Greet(to);
  courier_->OnConnectionLost(to);
}

void WorkerNode::Fail(const absl::Status& cause, Cause whose) {
  const absl::Status why = AsFailure(cause);
  {
    MutexLock lock(&mutex_);
    if (!first_error_.ok() || state_ == State::kClosed) return;
    first_error_ = why;
    report_due_ = whose == Cause::kOurs;
  }
  // Tell allocates a little memory. A shortage a moment ago was mostly for something much larger,
  // so another try works. A waiter that is not told would wait for ever.
  for (bool told = false; !told;) {
    try {
      Tell(why, whose);
      told = true;
    } catch (const std::bad_alloc&) {
    }
  }
}

void WorkerNode::Tell(const absl::Status& why, Cause whose) {
  if (whose == Cause::kOurs) {
    membership_.FailWaiting(why);
    membership_.ReportFailure(why);
    MutexLock lock(&mutex_);
    report_due_ = false;
    reported_.NotifyAll();
  }
  rpc_.FailAll(why);
  if (!ready_.load()) return;  // the stages below are not there yet
  events_.on_failed(why);
  courier_->FailAll(why);
}

absl::Status WorkerNode::FailIfServerIsGone(const absl::Status& answer) {
  if (absl::IsUnavailable(answer)) Fail(answer, Cause::kOthers);
  return InOwnWords(answer);
}

absl::Status WorkerNode::InOwnWords(const absl::Status& answer) const {
  MutexLock lock(&mutex_);
  return absl::IsUnavailable(answer) && !first_error_.ok() ? first_error_ : answer;
}

void WorkerNode::OnOutOfMemory(const std::bad_alloc& error) { on_out_of_memory_(error); }

void WorkerNode::AwaitReport() {
  const absl::Duration patience = std::min(options_.timeout, kReportPatience);
  {
    MutexLock lock(&mutex_);
    reported_.Await(&mutex_, patience,
                    [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return !report_due_; });
  }
  if (membership_.AwaitFailureReported(patience)) return;
  LOG(WARNING) << "the scheduler did not acknowledge within " << patience
               << " why this worker failed";
}

absl::Status WorkerNode::CheckOpen() const {
  {
    MutexLock lock(&mutex_);
    if (state_ == State::kClosing) return WasClosed();
  }
  return FirstError();
}

absl::Status WorkerNode::FirstError() const {
  {
    MutexLock lock(&mutex_);
    if (state_ == State::kClosed) return WasClosed();
    if (!first_error_.ok()) return first_error_;
  }
  // A barrier can return with the job's end before the down handler is called.
  const std::optional<absl::Status> down = membership_.down();
  return down.has_value() ? AsFailure(*down) : absl::OkStatus();
}

// ---- what the worker says -----------------------------------------------------------------------

absl::Status WorkerNode::TellServers(const wire::Header& message, const std::string& what) {
  for (;;) {
    const uint64_t before = servers_.restarts();
    SLIMPS_RETURN_IF_ERROR(CallServers(message, what));
    SLIMPS_RETURN_IF_ERROR(Persist());
    // A server that was started again meanwhile may have forgotten it.
    if (servers_.restarts() == before) return absl::OkStatus();
  }
}

absl::Status WorkerNode::Persist() {
  if (!membership_.servers_may_return()) return absl::OkStatus();
  wire::Header message = membership_.MakeHeader();
  message.mutable_persist();
  return CallServers(message, "waiting for a snapshot");
}

absl::StatusOr<wire::Header> WorkerNode::AskServer(uint32_t server, const wire::Header& message,
                                                   absl::Duration timeout,
                                                   const std::string& what) {
  SLIMPS_ASSIGN_OR_RETURN(Message answer,
                          ExchangeWith(server, {.header = message, .payloads = {}}, timeout, what));
  return std::move(answer.header);
}

absl::StatusOr<Message> WorkerNode::ExchangeWith(uint32_t server, Message question,
                                                 absl::Duration timeout, const std::string& what) {
  const bool may_return = membership_.servers_may_return();
  // A call must not overtake what the server is sent again: it may end the worker, or change what
  // later rounds compute.
  const auto find = [this, server, may_return] {
    if (may_return) courier_->AwaitReplays(options_.timeout);
    return servers_.PeerOf(server);
  };
  return rpc_.Exchange(find, std::move(question), timeout,
                       absl::StrCat(what, " at server ", server),
                       may_return ? RpcClient::Patience::kMayReturn : RpcClient::Patience::kNone);
}

absl::Status WorkerNode::CallServers(const wire::Header& message, const std::string& what) {
  for (uint32_t server = 0; server < options_.num_servers; ++server) {
    SLIMPS_RETURN_IF_ERROR(AskServer(server, message, options_.timeout, what).status());
  }
  return absl::OkStatus();
}

void WorkerNode::Report(wire::ThresholdReport report) {
  const absl::Status sent =
      SendInParts(transport_.get(), membership_.scheduler(), membership_.StartReport(report));
  if (!sent.ok()) Fail(sent, Cause::kOurs);
}

absl::StatusOr<std::vector<Answer>> WorkerNode::AwaitAnswers(ItemGathering& gathering) {
  absl::StatusOr<std::vector<Answer>> answers = gathering.Await();
  SLIMPS_RETURN_IF_ERROR(FailIfServerIsGone(answers.status()));
  return answers;
}

absl::Status WorkerNode::Barrier(const std::string& name) {
  return membership_.Barrier(name, wire::WORKER, options_.timeout);
}

absl::StatusOr<std::vector<double>> WorkerNode::Sum(const std::string& purpose,
                                                    const std::vector<double>& values,
                                                    std::optional<absl::Duration> timeout) {
  SLIMPS_RETURN_IF_ERROR(CheckOpen());
  return membership_.BarrierSum(
      {.name = "kvstore/sum", .group = wire::WORKER, .purpose = purpose, .values = values},
      timeout.value_or(options_.timeout));
}

absl::Status WorkerNode::AgreeOn(const absl::Status& mine, const std::string& what,
                                 std::optional<absl::Duration> timeout) {
  const absl::StatusOr<std::vector<double>> failed = Sum(what, {mine.ok() ? 0.0 : 1.0}, timeout);
  SLIMPS_RETURN_IF_ERROR(mine);
  SLIMPS_RETURN_IF_ERROR(failed.status());
  if ((*failed)[0] == 0) return absl::OkStatus();
  return absl::AbortedError(absl::StrCat(what, ": ", (*failed)[0], " other workers failed"));
}

absl::Status WorkerNode::Close(const std::function<absl::Status()>& drain) {
  {
    MutexLock lock(&mutex_);
    if (state_ == State::kClosed) return absl::OkStatus();
    state_ = State::kClosing;  // a push after the drain would be lost
  }
  absl::Status status;
  if (ready_.load()) {
    status = drain();
    // Nobody could send it again once this worker is gone.
    const absl::Status lasts = status.ok() ? Persist() : absl::OkStatus();
    if (!lasts.ok()) {
      LOG(WARNING) << "a server that dies before the job ends may lack this worker's last pushes: "
                   << lasts;
    }
    // The others need not wait for what this worker could not deliver.
    if (!status.ok()) Fail(status, Cause::kOurs);
    if (status.ok()) status = membership_.Leave();
    AwaitReport();
  }
  {
    MutexLock lock(&mutex_);
    state_ = State::kClosed;
  }
  // The membership's thread may be in Fail, which uses the members below.
  membership_.Stop();
  // The courier's timer calls stages that are destroyed before it.
  if (courier_ != nullptr) courier_->Stop();
  transport_->Stop();
  const TransportStats moved = transport_->stats();
  if (moved.sharing_refusals > 0) {
    LOG(WARNING)
        << "payloads to a process of this machine went by socket, not shared memory: refused "
        << moved.sharing_refusals << " times, the last time: " << moved.last_sharing_refusal;
  }
  return status;
}

}  // namespace slimps
