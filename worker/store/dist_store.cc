// SPDX-License-Identifier: Apache-2.0
#include "worker/store/dist_store.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "glog/logging.h"
#include "proto/base/clock.h"
#include "proto/base/status_macros.h"
#include "proto/net/address.h"
#include "proto/net/membership/node_name.h"
#include "proto/net/zmq/same_host.h"
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

MembershipOptions MakeMembershipOptions(const KVStoreOptions& options,
                                        const OnOutOfMemory& on_out_of_memory) {
  MembershipOptions membership;
  membership.role = wire::WORKER;
  membership.wanted_rank = options.wanted_rank;
  membership.scheduler_address = options.scheduler_address;
  membership.job_id = options.job_id;
  membership.num_workers = options.num_workers;
  membership.num_servers = options.num_servers;
  membership.join_timeout = options.timeout;
  membership.stop = options.stop;
  membership.clock = options.clock;
  membership.on_out_of_memory = on_out_of_memory;
  return membership;
}

// Refuses a server's loopback address on any machine but the server's own, which is the
// scheduler's. Other faults of the addresses show when they are used.
absl::Status CheckReachable(const wire::RosterEntry& server, const std::string& endpoint,
                            const std::string& scheduler_address) {
  const absl::StatusOr<Address> address = ParseAddress(endpoint);
  const absl::StatusOr<Address> scheduler = ParseAddress(scheduler_address);
  if (!address.ok() || address->kind != Address::Kind::kTcp || !IsLoopback(address->host) ||
      !scheduler.ok() || scheduler->kind != Address::Kind::kTcp) {
    return absl::OkStatus();
  }
  const absl::StatusOr<std::string> own = RouteAddress(scheduler->host);
  if (!own.ok() || IsLoopback(*own) || *own == ResolveForBind(scheduler->host)) {
    return absl::OkStatus();
  }
  return absl::FailedPreconditionError(absl::StrCat(
      NodeName(server.node()), " (host ", server.host(), ", pid ", server.pid(), ") listens at ",
      endpoint, ", where no other machine reaches it, and the scheduler at ", scheduler->host,
      " is on another machine than this worker: start the server with --bind and an address that "
      "this worker reaches, and --insecure"));
}

absl::StatusOr<std::unique_ptr<const Codec>> MakePullCodec(const std::string& text) {
  const auto refuse = [&](const absl::Status& why) {
    return absl::InvalidArgumentError(
        absl::StrCat("pull compression ", text, ": ", std::string(why.message())));
  };
  const absl::StatusOr<CodecSpec> spec = ParseCodecSpec(text);
  if (!spec.ok()) return refuse(spec.status());
  absl::StatusOr<std::unique_ptr<Codec>> codec = MakeCodec(*spec);
  if (!codec.ok()) return refuse(codec.status());
  return *std::move(codec);
}

}  // namespace

absl::StatusOr<std::unique_ptr<DistStore>> DistStore::Create(wire::StoreMode mode,
                                                             const KVStoreOptions& options,
                                                             std::unique_ptr<Transport> transport) {
  auto store = std::unique_ptr<DistStore>(new DistStore(mode, options, std::move(transport)));
  const absl::Status started = store->Start();
  if (started.ok()) return store;
  // The others wait for this worker if it has joined, so they must hear of the failure.
  store->membership_.ReportFailure(started);
  store->AwaitReport();
  return started;
}

DistStore::DistStore(wire::StoreMode mode, const KVStoreOptions& options,
                     std::unique_ptr<Transport> transport)
    : mode_(mode),
      options_(options),
      transport_(std::move(transport)),
      device_(MakeHostDevice()),
      staging_(device_.get(), options.staging_bytes),
      on_out_of_memory_(
          [this](const std::bad_alloc& error) { Fail(StoreFailure(error), Cause::kOurs); }),
      membership_(transport_.get(), MakeMembershipOptions(options, on_out_of_memory_)),
      rpc_(transport_.get(), options.retry_interval, options.clock) {}

DistStore::~DistStore() {
  OrTell(on_out_of_memory_, [this] {
    const absl::Status closed = Close();
    if (!closed.ok()) LOG(WARNING) << "closing the store: " << closed;
  });
  // Close returns at once if it ran before. That was perhaps on the heartbeat's thread, which could
  // not wait for itself.
  membership_.Stop();
}

absl::Status DistStore::Start() {
  SLIMPS_ASSIGN_OR_RETURN(pull_codec_, MakePullCodec(options_.pull_compression));
  SLIMPS_RETURN_IF_ERROR(CheckCombination({.pull_codec = pull_codec_.get(), .mode = mode_}));
  // Before the job's other nodes wait for this worker: a bad option fails here.
  SLIMPS_RETURN_IF_ERROR(MakePlan(options_.compression, options_.fixed_threshold_bytes));
  SLIMPS_RETURN_IF_ERROR(transport_->Start(this));
  SLIMPS_RETURN_IF_ERROR(membership_.Join());
  WarnOfCodec();
  const wire::Roster roster = membership_.roster();
  servers_.resize(options_.num_servers);
  is_here_.resize(options_.num_servers);
  for (const wire::RosterEntry& entry : roster.nodes()) {
    if (entry.node().role() != wire::SERVER || entry.node().rank() >= servers_.size()) continue;
    if (entry.endpoints().empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat("server ", entry.node().rank(), " has no endpoint in the roster"));
    }
    const std::vector<std::string> endpoints(entry.endpoints().begin(), entry.endpoints().end());
    SLIMPS_ASSIGN_OR_RETURN(const std::string endpoint,
                            ChooseEndpoint(endpoints, UsedSameHost(options_)));
    SLIMPS_RETURN_IF_ERROR(CheckReachable(entry, endpoint, options_.scheduler_address));
    SLIMPS_ASSIGN_OR_RETURN(servers_[entry.node().rank()], transport_->Connect(endpoint));
    is_here_[entry.node().rank()] = endpoint.starts_with("ipc://");
    Greet(servers_[entry.node().rank()]);
  }
  courier_ = std::make_unique<Courier>(transport_.get(), &membership_, servers_,
                                       CourierOptions{.timeout = options_.timeout,
                                                      .retry_interval = options_.retry_interval,
                                                      .mode = mode_,
                                                      .staleness = options_.staleness,
                                                      .coalesce = options_.coalesce,
                                                      .clock = options_.clock,
                                                      .on_out_of_memory = on_out_of_memory_});
  pull_ = std::make_unique<PullMerger>(
      courier_.get(),
      PullMergerOptions{
          .timeout = options_.timeout,
          .change_codec = [this](const TensorPlan& tensor,
                                 uint64_t version) { return ChangeCodecFor(tensor, version); },
          .measures = [this](const TensorPlan& tensor,
                             uint64_t version) { return plan()->MeasuresPull(tensor, version); },
          .on_measured =
              [this](const PullMeasurement& measured) {
                plan()->RecordPull(*measured.tensor, measured.version, measured.communication,
                                   measured.coding);
              },
          .clock = options_.clock,
          .on_out_of_memory = on_out_of_memory_});
  StartPipeline();
  ready_.store(true);
  {
    MutexLock lock(&mutex_);  // a Fail before ready_ did not reach the stages
    SLIMPS_RETURN_IF_ERROR(first_error_);
  }
  membership_.SetDownHandler([this](absl::Status why) { Fail(why, Cause::kOthers); });
  return absl::OkStatus();
}

void DistStore::StartPipeline() {
  PushPipelineOptions push;
  push.clock = options_.clock;
  push.payloads = {.grad_scale = options_.grad_scale,
                   .encode_threads = options_.encode_threads,
                   .worker = membership_.rank(),
                   .clock = options_.clock};
  push.timeout = options_.timeout;
  push.checksums = options_.checksums;
  push.on_report = [this](wire::ThresholdReport report) { ReportThresholds(std::move(report)); };
  push.change_codec = [this](const TensorPlan& tensor, uint64_t round) {
    return ChangeCodecFor(tensor, round);
  };
  push.await_measured_pulls = [this] { pull_->AwaitMeasured(options_.timeout); };
  push.on_error = [this](absl::Status why) { Fail(why, Cause::kOurs); };
  push.on_out_of_memory = on_out_of_memory_;
  push_ = std::make_unique<PushPipeline>(courier_.get(), plan(), std::move(push));
}

// ---- what arrives, on the I/O thread ------------------------------------------------------------

void DistStore::OnMessage(PeerId from, Message message) {
  if (membership_.HandleMessage(from, message)) return;
  if (rpc_.HandleMessage(message)) return;
  if (!ready_.load()) return;  // the stages are not there yet
  if (courier_->HandleMessage(from, message)) return;
  const wire::Header& header = message.header;
  if (header.has_codec_map()) {
    if (from != membership_.scheduler()) {
      LOG(WARNING) << "dropped a codec map from " << NodeName(header.sender())
                   << ": expected one from the scheduler only";
      return;
    }
    const absl::Status applied = plan()->OnCodecMap(header.codec_map());
    if (!applied.ok()) Fail(applied, Cause::kOurs);
  } else if (header.has_error()) {
    Fail(FromStatusProto(header.error().status()), Cause::kOurs);
  } else {
    LOG(WARNING) << "dropped a message that a worker does not expect, verb " << header.body_case();
  }
}

void DistStore::OnBadFrame(PeerId from, const absl::Status& why) {
  LOG(WARNING) << "dropped a bad frame from peer " << static_cast<uint64_t>(from) << ": " << why;
}

void DistStore::OnUndeliverable(PeerId to, const absl::Status& why) {
  bool is_news = false;
  {
    MutexLock lock(&mutex_);
    is_news = first_error_.ok() && !closed_ && undeliverable_.insert(to).second;
  }
  if (is_news) {
    LOG(WARNING) << "could not deliver to peer " << static_cast<uint64_t>(to) << ": " << why
                 << " (logged once per peer)";
  }
  if (ready_.load()) courier_->OnUndeliverable(to);
}

void DistStore::OnConnectionLost(PeerId to) {
  if (!ready_.load() || to == membership_.scheduler() || !FirstError().ok()) return;
  Greet(to);
  courier_->OnConnectionLost(to);
}

void DistStore::Greet(PeerId server) {
  Message greeting;
  greeting.header = membership_.MakeHeader();
  greeting.header.mutable_heartbeat();
  const absl::Status sent = transport_->Send(server, std::move(greeting),
                                             {.priority = std::numeric_limits<int64_t>::max()});
  if (!sent.ok()) LOG(WARNING) << "cannot send the first message to a server: " << sent;
}

void DistStore::Fail(const absl::Status& cause, Cause whose) {
  const absl::Status why = AsFailure(cause);
  {
    MutexLock lock(&mutex_);
    if (!first_error_.ok() || closed_) return;
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

void DistStore::Tell(const absl::Status& why, Cause whose) {
  if (whose == Cause::kOurs) {
    membership_.FailWaiting(why);
    membership_.ReportFailure(why);
    MutexLock lock(&mutex_);
    report_due_ = false;
    reported_.NotifyAll();
  }
  rpc_.FailAll(why);
  if (!ready_.load()) return;  // the stages below are not there yet
  plan()->Fail(why);
  staging_.Fail(why);
  push_->Fail(why);
  courier_->FailAll(why);
}

void DistStore::OnOutOfMemory(const std::bad_alloc& error) { on_out_of_memory_(error); }

void DistStore::AwaitReport() {
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

absl::Status DistStore::FirstError() const {
  {
    MutexLock lock(&mutex_);
    if (closed_) return absl::FailedPreconditionError("the store was closed");
    if (!first_error_.ok()) return first_error_;
  }
  // A barrier can return with the job's end before the down handler is called.
  const std::optional<absl::Status> down = membership_.down();
  return down.has_value() ? AsFailure(*down) : absl::OkStatus();
}

void DistStore::AddWait(SteadyTime since) {
  MutexLock lock(&mutex_);
  wait_ += options_.clock->Now() - since;
}

// ---- the job ------------------------------------------------------------------------------------

absl::Status DistStore::TellServers(const wire::Header& message, const std::string& what) {
  for (size_t server = 0; server < servers_.size(); ++server) {
    SLIMPS_RETURN_IF_ERROR(rpc_.Call(servers_[server], message, options_.timeout,
                                     absl::StrCat(what, " at server ", server))
                               .status());
  }
  return absl::OkStatus();
}

std::optional<wire::OptimizerSpec> DistStore::optimizer() const {
  MutexLock lock(&mutex_);
  return optimizer_;
}

absl::Status DistStore::SetOptimizer(const wire::OptimizerSpec& spec) {
  SLIMPS_RETURN_IF_ERROR(FirstError());
  SLIMPS_RETURN_IF_ERROR(CheckTogether(plan()->compressor(), spec));
  {
    MutexLock lock(&mutex_);
    optimizer_ = spec;
  }
  if (rank() != 0) return absl::OkStatus();
  wire::Header message = membership_.MakeHeader();
  wire::OptimizerSpec& sent = *message.mutable_set_optimizer()->mutable_spec();
  sent = spec;
  sent.set_weight_decay(DecayFactor(plan()->compressor(), spec) * spec.weight_decay());
  message.mutable_set_optimizer()->set_mode(mode_);
  return TellServers(message, "setting the optimizer");
}

absl::Status DistStore::SetHyper(const Key& key, std::optional<Hyper> hyper) {
  SLIMPS_RETURN_IF_ERROR(FirstError());
  return keys_.SetHyper(key, hyper);
}

absl::Status DistStore::Barrier() {
  SLIMPS_RETURN_IF_ERROR(FirstError());
  return membership_.Barrier("kvstore/barrier", wire::WORKER, options_.timeout);
}

absl::StatusOr<std::vector<double>> DistStore::AllReduceSum(const std::vector<double>& values) {
  return AllReduceSumFor("a sum over all workers", values);
}

absl::StatusOr<std::vector<double>> DistStore::AllReduceSumFor(const std::string& purpose,
                                                               const std::vector<double>& values) {
  SLIMPS_RETURN_IF_ERROR(FirstError());
  return membership_.BarrierSum(
      {.name = "kvstore/sum", .group = wire::WORKER, .purpose = purpose, .values = values},
      options_.timeout);
}

absl::Status DistStore::Wait() {
  SLIMPS_RETURN_IF_ERROR(FirstError());
  const SteadyTime start = options_.clock->Now();
  const absl::Status drained = push_->Drain(options_.timeout);
  AddWait(start);
  return drained;
}

absl::Status DistStore::Leave() {
  SLIMPS_RETURN_IF_ERROR(Wait());
  left_.store(true);
  push_->FinishProfiling();
  wire::Header message = membership_.MakeHeader();
  message.mutable_leave()->set_from_round(0);  // each partition's first round not pushed yet
  return TellServers(message, "leaving the rounds");
}

void DistStore::Abort(const absl::Status& why) { Fail(why, Cause::kOurs); }

absl::Status DistStore::Close() {
  {
    MutexLock lock(&mutex_);
    if (closed_) return absl::OkStatus();
  }
  absl::Status status;
  if (ready_.load()) {
    status = Wait();
    if (status.ok()) push_->FinishProfiling();
    if (status.ok()) status = membership_.Leave();
    AwaitReport();
  }
  {
    MutexLock lock(&mutex_);
    closed_ = true;
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

StoreTotals DistStore::totals() const {
  const PushTotals pushed = push_->totals();
  const PullTotals pulled = pull_->totals();
  const TransportStats transport = transport_->stats();
  MutexLock lock(&mutex_);
  return {.pushed = pushed.prepared,
          .bytes_pushed = pushed.payload_bytes,
          .bytes_pulled = pulled.payload_bytes + row_bytes_pulled_,
          .changes_pulled = pulled.changes,
          .bytes_shared = transport.bytes_lent + transport.bytes_borrowed,
          .copy = copy_,
          .encode = pushed.encode,
          .send = pushed.send,
          .wait = wait_,
          .decode = pulled.decode};
}

PushCounts DistStore::push_counts(const Key& key) const { return push_->counts(key); }

std::optional<wire::CodecMap> DistStore::codec_map() const { return plan()->decision(); }

}  // namespace slimps
