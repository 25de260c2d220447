// SPDX-License-Identifier: Apache-2.0
#include "server/service/server_service.h"

#include <algorithm>
#include <functional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "proto/base/clock.h"
#include "proto/base/mutex.h"
#include "proto/base/simulation/mutant.h"
#include "proto/base/status_copy.h"
#include "proto/base/status_macros.h"
#include "proto/base/trace/trace.h"
#include "proto/header_check.h"
#include "proto/limits.h"
#include "proto/status_proto.h"

namespace slimps {
namespace {

// So that no sum of times overflows; as long as the longest timeout_s.
constexpr uint64_t kMaxPullWaitMs = 1'000'000'000;

std::function<void(SteadyTime)> TraceHandOver(std::vector<TraceEvent> answers) {
  return [answers = std::move(answers)](SteadyTime when) {
    for (const TraceEvent& one : answers) {
      TraceLog::Global().Add(one.stage, {one.key, one.partition, one.round}, one.began, when);
    }
  };
}

}  // namespace

class ServerService::AckCollector final {
 public:
  AckCollector(ServerService* service, const Origin& origin, size_t shards)
      : service_(service), origin_(origin), left_(shards) {}

  void Done(const absl::Status& status) {
    absl::Status result;
    {
      MutexLock lock(&mutex_);
      result_.Update(status);
      if (--left_ > 0) return;
      result = result_;
    }
    service_->SendAck(origin_, result);
  }

 private:
  ServerService* const service_;  // joins the threads that call Done in its Stop
  const Origin origin_;
  Mutex mutex_;
  size_t left_ ABSL_GUARDED_BY(mutex_);
  absl::Status result_ ABSL_GUARDED_BY(mutex_);
};

ServerService::ServerService(Transport* transport, std::function<wire::Header()> make_header,
                             const ServerOptions& options, const Clock* clock)
    : ServerService(transport, std::move(make_header), options, clock, BeginEmpty(options, clock)) {
}

ServerService::ServerService(Transport* transport, std::function<wire::Header()> make_header,
                             const ServerOptions& options, const Clock* clock, Beginning beginning)
    : transport_(transport),
      make_header_(std::move(make_header)),
      options_(options),
      clock_(clock),
      began_(clock->Now()),
      admission_(options.job_id, options.num_workers),
      waiting_(std::move(beginning.waiting)),
      directory_(std::move(beginning.directory)),
      mode_(beginning.mode),
      staleness_(beginning.staleness) {
  std::vector<Shard*> shards;
  for (std::unique_ptr<ShardState>& state : beginning.shards) {
    shards_.push_back(
        std::make_unique<Shard>(options.shard, std::move(state), clock,
                                [this](Reply reply) { SendReply(std::move(reply)); }));
    shards.push_back(shards_.back().get());
  }
  if (beginning.folder != nullptr) {
    snapshotter_ =
        std::make_unique<Snapshotter>(std::move(beginning.folder), shards, options, clock);
  }
  checkpointer_ = std::make_unique<Checkpointer>(std::move(shards), options);
}

ServerService::~ServerService() { Stop(); }

void ServerService::Stop(const absl::Status& why) {
  checkpointer_->Stop(why);  // it waits for the shards, and so does the next one
  if (snapshotter_ != nullptr) snapshotter_->Stop(why);
  for (const auto& shard : shards_) shard->Stop(why);
}

absl::Status ServerService::StartSnapshots(const std::string& owner,
                                           Snapshotter::Done on_replaced) {
  return snapshotter_ == nullptr ? absl::OkStatus()
                                 : snapshotter_->Start(owner, std::move(on_replaced));
}

void ServerService::RemoveSnapshots() {
  if (snapshotter_ != nullptr) snapshotter_->RemoveAll();
}

void ServerService::OnBadFrame(PeerId, const absl::Status&) {
  bad_frames_.fetch_add(1, std::memory_order_relaxed);
}

void ServerService::OnUndeliverable(PeerId, const absl::Status&) {
  undeliverable_.fetch_add(1, std::memory_order_relaxed);
}

ServerCounters ServerService::counters() const {
  return {.bad_frames = bad_frames_.load(std::memory_order_relaxed),
          .refused_messages = refused_messages_.load(std::memory_order_relaxed),
          .undeliverable = undeliverable_.load(std::memory_order_relaxed),
          .snapshots = snapshotter_ == nullptr ? SnapshotCounters() : snapshotter_->counters()};
}

void ServerService::NoteAbsent(const wire::Roster& roster) {
  bool is_newly_away = false;
  for (const wire::RosterEntry& entry : roster.nodes()) {
    const uint32_t worker = entry.node().rank();
    if (entry.node().role() != wire::WORKER) continue;
    if (entry.ended() && ended_.insert(worker).second) {
      for (const auto& shard : shards_) {
        shard->PostOwnControl([worker](ShardState& state) { state.NoteEnded(worker); });
      }
    }
    if (entry.away() == away_.contains(worker)) continue;
    for (const auto& shard : shards_) {
      shard->PostOwnControl([worker, away = entry.away()](ShardState& state) {
        away ? state.SetAway(worker) : state.SetPresent(worker);
      });
    }
    if (entry.away()) {
      away_.insert(worker);
      is_newly_away = true;
    } else {
      away_.erase(worker);
    }
  }
  if (!is_newly_away || snapshotter_ == nullptr) return;
  // Nobody keeps its pushes any more, so they must be on the disk before a server may be lost. The
  // scheduler takes them for lost until it hears that they are.
  snapshotter_->PersistAtLast(
      [this, epoch = roster.epoch()] { saved_epoch_.store(epoch, std::memory_order_relaxed); });
}

void ServerService::SetRoster(const wire::Roster& roster) {
  if (roster.epoch() >= admission_.epoch()) NoteAbsent(roster);
  admission_.SetRoster(roster);
  for (EarlyMessage& early : parked_.TakeAll()) {
    if (!simulation::Is(Mutant::kForgetParked)) Receive(std::move(early));
  }
}

void ServerService::OnMessage(PeerId from, Message message) {
  Receive({.from = from, .message = std::move(message), .came = clock_->Now()});
}

void ServerService::Receive(EarlyMessage received) {
  const absl::Status admitted = admission_.Check(received.message.header, received.message.user_id);
  if (admitted.ok()) {
    transport_->Admit(received.from);
    return Dispatch(received.from, std::move(received.message));
  }
  if (absl::IsUnavailable(admitted)) {
    // A worker that has really seen a newer roster retries what found no room here.
    const SteadyTime now = clock_->Now();
    size_t dropped = parked_.DropLate(now);
    if (!parked_.Add(std::move(received)).ok()) ++dropped;
    refused_messages_.fetch_add(dropped, std::memory_order_relaxed);
    return;
  }
  refused_messages_.fetch_add(1, std::memory_order_relaxed);
  RefuseStranger(received.from, received.message.header.request_id(), admitted);
}

void ServerService::Dispatch(PeerId from, Message message) {
  Request request(from, std::move(message), shards_.size());
  const wire::Header& header = request.message.header;
  switch (header.body_case()) {
    case wire::Header::kInit:
      HandleInit(request);
      break;
    case wire::Header::kPush:
      HandlePushes(request, header.push().items());
      break;
    case wire::Header::kPull:
      HandlePulls(request, header.pull().items());
      break;
    case wire::Header::kPushPull:
      HandlePushes(request, header.push_pull().push());
      HandlePulls(request, header.push_pull().pull());
      break;
    case wire::Header::kHeartbeat:  // a greeting needs no answer
      return;
    case wire::Header::kSetOptimizer:
      return HandleSetOptimizer(request.origin, header.set_optimizer());
    case wire::Header::kLeave:
      return HandleLeave(request.origin, header.leave().from_round());
    case wire::Header::kPersist:
      return HandlePersist(request.origin);
    case wire::Header::kCheckpoint:
      return HandleCheckpoint(request.origin, header.checkpoint());
    case wire::Header::kRelay:
      return HandleRelay(request);
    default:
      refused_messages_.fetch_add(1, std::memory_order_relaxed);
      return Refuse(from, header.request_id(),
                    absl::InvalidArgumentError(
                        absl::StrCat("a server does not understand the verb ", VerbName(header))));
  }
  for (size_t i = 0; i < shards_.size(); ++i) {
    ShardItems& items = request.by_shard[i];
    if (items.empty()) continue;
    items.origin = request.origin;
    const absl::Status posted = shards_[i]->Post(&items);
    if (posted.ok()) continue;
    for (const InitWork& init : items.inits) {
      request.refused.AddInit(request.origin, init.id, posted);
    }
    for (const PushWork& push : items.pushes) {
      request.refused.AddPush(request.origin, push.item.id(), posted, 0);
    }
    for (const PullWork& pull : items.pulls) {
      request.refused.AddPullError(request.origin, pull.item, posted);
    }
  }
  SendReplies(request.refused);
}

void ServerService::HandlePushes(Request& request,
                                 const google::protobuf::RepeatedPtrField<wire::PushItem>& items) {
  for (const wire::PushItem& item : items) {
    absl::StatusOr<Payload> payload = request.TakePayload(item.payload_bytes());
    const std::optional<size_t> shard =
        directory_.FindShard({.key = item.id().key(), .index = item.id().partition()});
    absl::Status status = payload.status();
    if (!shard.has_value()) {
      status.Update(absl::NotFoundError(
          absl::StrCat("push of key ", absl::Hex(item.id().key(), absl::kZeroPad16), " partition ",
                       item.id().partition(), ": never initialised on this server")));
    }
    if (!status.ok()) {
      request.refused.AddPush(request.origin, item.id(), status, 0);
      continue;
    }
    request.by_shard[*shard].pushes.push_back({.item = item, .payload = *std::move(payload)});
  }
}

void ServerService::HandlePulls(Request& request,
                                const google::protobuf::RepeatedPtrField<wire::PullItem>& items) {
  const SteadyTime now = clock_->Now();
  for (const wire::PullItem& item : items) {
    const PartitionId id{.key = item.id().key(), .index = item.id().partition()};
    absl::StatusOr<size_t> shard = absl::NotFoundError("never initialised on this server");
    if (const std::optional<size_t> known = directory_.FindShard(id); known.has_value()) {
      shard = *known;
    } else if (item.min_version() == 0) {
      shard = directory_.Reserve(id, item.elements());
    }
    if (!shard.ok()) {
      request.refused.AddPullError(
          request.origin, item,
          Prefixed(shard.status(), absl::StrCat("pull of key ", absl::Hex(id.key, absl::kZeroPad16),
                                                " partition ", id.index)));
      continue;
    }
    const auto wait = static_cast<int64_t>(std::min(item.timeout_ms(), kMaxPullWaitMs));
    request.by_shard[*shard].pulls.push_back(
        {.item = item, .deadline = now + absl::Milliseconds(wait)});
  }
}

absl::Status ServerService::CheckSetOptimizer(const Origin& origin,
                                              const wire::SetOptimizer& request) const {
  if (origin.worker != 0) {
    return absl::PermissionDeniedError(
        absl::StrCat("only worker 0 sets the optimizer, not worker ", origin.worker));
  }
  if (mode_.value_or(request.mode()) != request.mode()) {
    return absl::FailedPreconditionError(absl::StrCat("optimizer: the store is ",
                                                      wire::StoreMode_Name(*mode_), ", not ",
                                                      wire::StoreMode_Name(request.mode())));
  }
  if (request.mode() != wire::DIST_SYNC && request.spec().kind() == wire::OptimizerSpec::NONE) {
    return NeedsOptimizer(request.mode());
  }
  return absl::OkStatus();
}

void ServerService::HandleSetOptimizer(const Origin& origin, const wire::SetOptimizer& request) {
  absl::StatusOr<std::shared_ptr<const Optimizer>> optimizer = Optimizer::Create(request.spec());
  absl::Status status = optimizer.status();
  if (status.ok()) status = CheckSetOptimizer(origin, request);
  if (!status.ok()) return SendAck(origin, status);
  mode_ = request.mode();
  PostToAll(origin, [optimizer = *std::move(optimizer)](ShardState& state) {
    return state.SetOptimizer(optimizer);
  });
}

void ServerService::HandleLeave(const Origin& origin, uint64_t from_round) {
  PostToAll(origin, [worker = origin.worker, from_round](ShardState& state) {
    return state.Leave(worker, from_round);
  });
}

void ServerService::HandlePersist(const Origin& origin) {
  const auto answer = [this, origin](const absl::Status& status) { SendAck(origin, status); };
  if (snapshotter_ == nullptr) return answer(absl::OkStatus());
  const absl::Status waits = snapshotter_->Persist(answer);
  if (!waits.ok()) answer(waits);
}

void ServerService::HandleCheckpoint(const Origin& origin, const wire::Checkpoint& request) {
  if (origin.worker != 0) {
    return SendAck(origin,
                   absl::PermissionDeniedError(absl::StrCat(
                       "only worker 0 saves and loads the job, not worker ", origin.worker)));
  }
  const absl::Status waits = checkpointer_->Handle(
      make_header_().sender().rank(), request,
      [this, origin](const absl::Status& status, const wire::CheckpointFile& written) {
        SendAck(origin, status, written);
      });
  if (!waits.ok()) SendAck(origin, waits);
}

void ServerService::HandleRelay(Request& request) {
  const wire::Relay& relay = request.message.header.relay();
  absl::StatusOr<Payload> payload = request.TakePayload(relay.payload_bytes());
  if (!payload.ok()) return SendAck(request.origin, payload.status());
  for (Reply& reply : relay_.Handle(request.origin, relay, *std::move(payload))) {
    SendReply(std::move(reply));
  }
}

void ServerService::PostToAll(const Origin& origin,
                              const std::function<absl::Status(ShardState&)>& control) {
  auto ack = std::make_shared<AckCollector>(this, origin, shards_.size());
  for (const auto& shard : shards_) {
    const absl::Status posted =
        shard->PostControl([ack, control](ShardState& state) { ack->Done(control(state)); });
    if (!posted.ok()) ack->Done(posted);
  }
}

void ServerService::FailPending(const absl::Status& why) {
  for (const auto& shard : shards_) {
    shard->PostOwnControl([own = CopyUnshared(why)](ShardState& state) { state.Fail(own); });
  }
}

void ServerService::RefuseStranger(PeerId from, uint64_t request_id, const absl::Status& why) {
  Message refusal;
  refusal.header.set_protocol_version(kProtocolVersion);
  refusal.header.mutable_sender()->set_role(wire::SERVER);
  refusal.header.set_request_id(request_id);
  *refusal.header.mutable_error()->mutable_status() = ToStatusProto(why);
  const absl::Status sent = transport_->Send(from, std::move(refusal));
  if (!sent.ok()) undeliverable_.fetch_add(1, std::memory_order_relaxed);
}

void ServerService::Refuse(PeerId from, uint64_t request_id, const absl::Status& why) {
  Reply error;
  error.to = from;
  error.message.header.set_request_id(request_id);
  *error.message.header.mutable_error()->mutable_status() = ToStatusProto(why);
  SendReply(std::move(error));
}

void ServerService::SendAck(const Origin& origin, const absl::Status& status,
                            const wire::CheckpointFile& written) {
  Reply reply;
  reply.to = origin.peer;
  reply.message.header.set_request_id(origin.request_id);
  *reply.message.header.mutable_ack()->mutable_status() = ToStatusProto(status);
  if (!written.name().empty()) *reply.message.header.mutable_ack()->mutable_written() = written;
  SendReply(std::move(reply));
}

void ServerService::SendReplies(ReplyOutbox& outbox) {
  outbox.Flush();
  for (Reply& reply : outbox.Take()) SendReply(std::move(reply));
}

void ServerService::SendReply(Reply reply) {
  wire::Header header = make_header_();
  header.set_request_id(reply.message.header.request_id());
  reply.message.header.MergeFrom(header);
  SendOptions options{.priority = reply.priority, .may_hand_over_here = true};
  if (!reply.traced.empty()) options.on_handed_over = TraceHandOver(std::move(reply.traced));
  const absl::Status sent =
      transport_->Send(reply.to, std::move(reply.message), std::move(options));
  // The worker retries what was not answered, so a lost answer is only counted.
  if (!sent.ok()) undeliverable_.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace slimps
