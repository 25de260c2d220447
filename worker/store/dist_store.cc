// SPDX-License-Identifier: Apache-2.0
#include "worker/store/dist_store.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "glog/logging.h"
#include "proto/base/out_of_memory.h"
#include "proto/base/status_copy.h"
#include "proto/base/status_macros.h"
#include "proto/base/trace/trace.h"
#include "worker/phases/clip_round.h"
#include "worker/store/auxiliary_tensors.h"
#include "worker/store/store_init.h"
#include "worker/store_metrics.h"
#include "worker/tensor/host_tensors.h"

namespace slimps {
namespace {

constexpr absl::Duration kPatienceOfReturn = absl::Seconds(30);

}  // namespace

absl::StatusOr<std::unique_ptr<DistStore>> DistStore::Create(wire::StoreMode mode,
                                                             const KVStoreOptions& options,
                                                             std::unique_ptr<Transport> transport) {
  auto store = std::unique_ptr<DistStore>(new DistStore(mode, options, std::move(transport)));
  const absl::Status started = store->Start();
  if (started.ok()) return store;
  store->node_.GiveUp(started);
  return started;
}

DistStore::DistStore(wire::StoreMode mode, const KVStoreOptions& options,
                     std::unique_ptr<Transport> transport)
    : mode_(mode),
      options_(options),
      activity_(options_.clock),
      node_(mode, &options_, std::move(transport), &activity_),
      codecs_(mode, options_, &keys_, &node_) {}

DistStore::~DistStore() {
  OrTell(node_.on_out_of_memory(), [this] {
    const absl::Status closed = Close();
    if (!closed.ok()) LOG(WARNING) << "closing the store: " << closed;
  });
  // Close returns at once if it ran before. That was perhaps on the heartbeat's thread, which could
  // not wait for itself.
  node_.membership()->Stop();
}

absl::Status DistStore::Start() {
  // Before the job's other nodes wait for this worker: a bad option fails here.
  SLIMPS_RETURN_IF_ERROR(codecs_.Start());
  SLIMPS_RETURN_IF_ERROR(node_.Join());
  codecs_.WarnOfCodec();
  tensors_ = std::make_unique<TensorTraffic>(mode_, options_, &keys_, &node_, &codecs_);
  rank_return_ = std::make_unique<RankReturn>(
      &node_, &keys_,
      RankReturn::Options{.patience = std::min(options_.timeout / 2, kPatienceOfReturn),
                          .clock = options_.clock});
  rows_ = std::make_unique<RowTraffic>(options_, &keys_, &node_, &codecs_, tensors_.get());
  states_ = std::make_unique<StateTransfer>(options_, &keys_, &node_, &codecs_, tensors_.get());
  residuals_ = std::make_unique<ResidualTransfer>(options_, &keys_, &codecs_, tensors_.get());
  checkpoints_ =
      std::make_unique<Checkpoints>(options_, CheckpointParts{.kvstore = type(),
                                                              .keys = &keys_,
                                                              .node = &node_,
                                                              .codecs = &codecs_,
                                                              .tensors = tensors_.get(),
                                                              .states = states_.get(),
                                                              .residuals = residuals_.get()});
  warm_up_ = std::make_unique<WarmUpEnd>(
      &keys_, &node_, &codecs_, states_.get(),
      [this](const wire::OptimizerSpec& spec) { return SetOptimizer(spec); });
  SLIMPS_RETURN_IF_ERROR(node_.Serve(
      {.on_failed =
           [this](const absl::Status& why) {
             codecs_.Fail(why);
             tensors_->Fail(why);
           },
       .on_codec_map = [this](const wire::CodecMap& map) { return codecs_.OnCodecMap(map); }}));
  node_.membership()->SetReporter([this](bool details) {
    if (rank() == 0 && details) TraceLog::Global().Watch();
    if (rank() == 0 && !details) TraceLog::Global().EndWatch();
    return Report(details);
  });
  const wire::Welcome welcome = node_.membership()->welcome();
  if (welcome.has_codec_map()) SLIMPS_RETURN_IF_ERROR(codecs_.OnCodecMap(welcome.codec_map()));
  if (options_.metrics_port < 0) return absl::OkStatus();
  MutexLock lock(&mutex_);
  SLIMPS_ASSIGN_OR_RETURN(metrics_, ServeStoreMetrics(options_, this));
  return absl::OkStatus();
}

// ---- keys and what holds for all of them --------------------------------------------------------

absl::Status DistStore::Init(const std::vector<InitTensor>& tensors) {
  SLIMPS_RETURN_IF_ERROR(node_.CheckOpen());
  SLIMPS_RETURN_IF_ERROR(keys_.CheckNew(tensors));
  const std::vector<InitTensor> none;  // other workers' values are not read
  SLIMPS_ASSIGN_OR_RETURN(const HostTensors on_host,
                          HostTensors::Of(tensors_->devices(), rank() == 0 ? tensors : none));
  SLIMPS_RETURN_IF_ERROR(codecs_.BeginPolicy(tensors));
  const Codec& codec = codecs_.plan()->compressor();
  SLIMPS_ASSIGN_OR_RETURN(const auto possible, codecs_.PossibleCodecs(tensors));
  const DeclareOptions declare = {.partition_bytes = options_.partition_bytes,
                                  .num_servers = options_.num_servers,
                                  .timeout = options_.timeout,
                                  .compression = codecs_.Description(),
                                  .number = ++declarations_};
  const AuxiliaryTensors auxiliary(possible, tensors, declare);
  SLIMPS_ASSIGN_OR_RETURN(
      DeclaredTensors declared,
      DeclareTensors(auxiliary.all(), declare, node_.membership(), node_.rpc()));
  if (codecs_.plan()->takes_phases() && !declared.differing_compression.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(codecs_.PhasesName(),
                     ": expected the same compression on all workers, each of which takes part "
                     "in every phase; got ",
                     declared.differing_compression));
  }
  codecs_.WarnOfDifference(declared.differing_compression);
  std::vector<std::vector<PhaseKey>> keys = auxiliary.Take(&declared.plans);
  std::vector<TensorPlan>& plans = declared.plans;
  SLIMPS_ASSIGN_OR_RETURN(const bool goes_on, TakeUp(plans, codec.combine()));
  if (rank() == 0 && !goes_on) {
    const InitialValueOptions values = {
        .combine = codec.combine(),
        .hashing = options_.checksums ? PayloadHashing::kXxh3 : PayloadHashing::kOff};
    const absl::Status sent = SendInitialValues(on_host.all(), plans, values, node_.courier());
    if (absl::IsAlreadyExists(sent) && node_.returning()) {
      return Prefixed(sent,
                      "worker 0 was started again during init, and its first values must be those "
                      "of before");
    }
    SLIMPS_RETURN_IF_ERROR(sent);
    SLIMPS_RETURN_IF_ERROR(auxiliary.SendValues(keys, values, node_.courier()));
  }
  for (const TensorPlan& plan : plans) tensors_->staging()->AddKeys(plan.bytes());
  keys_.Add(std::move(plans));
  rank_return_->AddRounds();
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (keys[i].empty()) continue;
    tensors_->phases()->AddTensor(keys_.Find(tensors[i].key).value(), std::move(keys[i]));
  }
  // No worker goes on before the servers have rank 0's values.
  return node_.Barrier("kvstore/init");
}

absl::StatusOr<bool> DistStore::TakeUp(const std::vector<TensorPlan>& plans, Combine combine) {
  if (!node_.returning()) return false;
  const char* const hindrance = codecs_.plan()->takes_phases()
                                    ? "its compression takes several phases per round"
                                : codecs_.plan()->adapts() ? "its compression follows a policy"
                                                           : nullptr;
  const absl::Status taken = rank_return_->TakeUp(plans, combine, hindrance);
  const bool at_start = absl::IsNotFound(taken);  // nobody has pushed anything
  if (!at_start) SLIMPS_RETURN_IF_ERROR(taken);
  node_.NoteFormerSaved();
  if (at_start && rank() == 0 && codecs_.optimizer().has_value()) {
    SLIMPS_RETURN_IF_ERROR(SendOptimizer(*codecs_.optimizer()));
  }
  return !at_start;
}

absl::Status DistStore::SetOptimizer(const wire::OptimizerSpec& spec) {
  SLIMPS_RETURN_IF_ERROR(node_.CheckOpen());
  SLIMPS_RETURN_IF_ERROR(codecs_.CheckOptimizer(spec));
  // The servers of a job that goes on have it, and perhaps a newer one. Init finds if it goes on.
  const bool goes_on = node_.returning() && (keys_.empty() || rank_return_->rounds() > 0);
  if (rank() == 0 && !goes_on) SLIMPS_RETURN_IF_ERROR(SendOptimizer(spec));
  codecs_.UseOptimizer(spec);
  codecs_.WarnOfCodec();
  return absl::OkStatus();
}

absl::Status DistStore::SendOptimizer(const wire::OptimizerSpec& spec) {
  wire::Header message = node_.membership()->MakeHeader();
  wire::OptimizerSpec& sent = *message.mutable_set_optimizer()->mutable_spec();
  sent = spec;
  sent.set_weight_decay(DecayFactor(codecs_.plan()->compressor(), spec) * spec.weight_decay());
  message.mutable_set_optimizer()->set_mode(mode_);
  return node_.TellServers(message, "setting the optimizer");
}

absl::Status DistStore::SetHyper(const Key& key, std::optional<Hyper> hyper) {
  SLIMPS_RETURN_IF_ERROR(node_.CheckOpen());
  return keys_.SetHyper(key, hyper);
}

absl::Status DistStore::SetClipped(const Key& key, bool clipped) {
  SLIMPS_RETURN_IF_ERROR(node_.CheckOpen());
  if (mode_ != wire::DIST_SYNC) return KVStore::SetClipped(key, clipped);
  return keys_.SetClipped(key, clipped);
}

void DistStore::ClipRound(std::span<const Key> keys, double max_norm, ClippedNorm* out,
                          std::function<void(absl::Status)> done) {
  absl::Status found = node_.CheckOpen();
  std::vector<ClippedTensor> tensors;
  for (const Key& key : keys) {
    const absl::StatusOr<const TensorPlan*> plan = keys_.Find(key);
    found.Update(plan.status());
    if (!found.ok()) return done(found);
    // A former process of this worker may have ended before it pushed all keys of round 1.
    const uint64_t round = keys_.PushedRounds(key);
    if (round > 0) tensors.push_back({.plan = *plan, .round = round});
  }
  slimps::ClipRound(
      node_.courier(), tensors,
      {.max_norm = max_norm,
       .timeout = options_.timeout,
       .out = out,
       .done = [this, done = std::move(done)](
                   const absl::Status& clipped) { done(node_.InOwnWords(clipped)); },
       .on_refused =
           [this](const absl::Status& refused) { node_.Fail(refused, WorkerNode::Cause::kOurs); },
       .on_out_of_memory = node_.on_out_of_memory()});
}

absl::Status DistStore::ChangeCompression(std::string_view codec_spec, CompressedKeys keys) {
  SLIMPS_RETURN_IF_ERROR(node_.CheckOpen());
  if (HasPushed()) {
    return absl::FailedPreconditionError("gradient compression must be set before the first push");
  }
  const std::optional<wire::OptimizerSpec> set = codecs_.optimizer();
  const double before = DecayFactor(codecs_.plan()->compressor(), set);
  SLIMPS_RETURN_IF_ERROR(
      codecs_.Use(codec_spec, keys == CompressedKeys::kAll ? 0 : options_.fixed_threshold_bytes,
                  tensors_->pushes()));
  codecs_.WarnOfCodec();
  if (!set.has_value() || DecayFactor(codecs_.plan()->compressor(), set) == before)
    return absl::OkStatus();
  return SetOptimizer(*set);  // the servers must now use another weight decay
}

absl::Status DistStore::SetPolicy(std::string_view policy) {
  SLIMPS_RETURN_IF_ERROR(node_.CheckOpen());
  if (HasPushed()) {
    return absl::FailedPreconditionError("the policy must be set before the first push");
  }
  return codecs_.UsePolicy(policy, tensors_->pushes());
}

// ---- tensors and rows ---------------------------------------------------------------------------

absl::Status DistStore::Push(const Key& key, std::span<const float> gradient, int priority) {
  SLIMPS_RETURN_IF_ERROR(warm_up_->BeforePush(key));
  return tensors_->Push(key, gradient, priority);
}

absl::Status DistStore::PushLent(const Key& key, std::vector<LentGradient> gradients,
                                 int priority) {
  SLIMPS_RETURN_IF_ERROR(warm_up_->BeforePush(key));
  return tensors_->PushLent(key, std::move(gradients), priority);
}

absl::Status DistStore::PushNothing(const Key& key) {
  SLIMPS_RETURN_IF_ERROR(warm_up_->BeforePush(key));
  return tensors_->PushNothing(key);
}

absl::Status DistStore::Pull(const Key& key, std::span<float> out, int priority) {
  return tensors_->Pull(key, out, priority);
}

absl::Status DistStore::PushPull(const Key& key, std::span<const float> gradient,
                                 std::span<float> out, int priority) {
  SLIMPS_RETURN_IF_ERROR(warm_up_->BeforePush(key));
  return tensors_->PushPull(key, gradient, out, priority);
}

void DistStore::PullAsync(const Key& key, std::span<float> out, int priority,
                          std::function<void(absl::Status)> done) {
  tensors_->SubmitPull(
      key, {.priority = priority, .out = out, .kind = PullKind::kPlain, .done = std::move(done)});
}

void DistStore::PullTo(const Key& key, LentTarget out, int priority) {
  tensors_->PullTo(key, std::move(out), priority);
}

void DistStore::PullOnto(const Key& key, std::span<float> weights, int priority,
                         std::function<void(absl::Status)> done) {
  tensors_->SubmitPull(
      key,
      {.priority = priority, .out = weights, .kind = PullKind::kOnto, .done = std::move(done)});
}

absl::Status DistStore::PushRowSparse(const Key& key, std::span<const int64_t> rows,
                                      std::span<const float> values, int priority) {
  return rows_->Push(key, rows, values, priority);
}

absl::Status DistStore::PullRows(const Key& key, std::span<const int64_t> row_ids,
                                 std::vector<int64_t>* rows, std::vector<float>* values,
                                 int priority) {
  return rows_->Pull(key, row_ids, rows, values, priority);
}

// ---- what a job saves ---------------------------------------------------------------------------

absl::StatusOr<std::string> DistStore::SaveOptimizerStates() { return states_->Save(); }

absl::Status DistStore::LoadOptimizerStates(std::string_view content) {
  return states_->Load(content);
}

absl::Status DistStore::PullOptimizerStates(std::span<const Key> keys,
                                            std::span<LentOptimizerState> states) {
  return states_->Pull(keys, states);
}

absl::Status DistStore::PutOptimizerStates(std::span<const Key> keys,
                                           std::span<const LentOptimizerState> states,
                                           absl::Status mine) {
  return states_->Put(keys, states, std::move(mine));
}

absl::StatusOr<std::string> DistStore::SaveResiduals() { return residuals_->Save(); }

absl::Status DistStore::LoadResiduals(std::string_view content) {
  SLIMPS_ASSIGN_OR_RETURN(ResidualTransfer::Loaded loaded, residuals_->Parse(content));
  return residuals_->Use(std::move(loaded), /*rounds_pushed=*/0);
}

absl::Status DistStore::Save(const std::string& folder,
                             absl::StatusOr<std::string_view> own_state) {
  if (tensors_->left()) {
    own_state = absl::FailedPreconditionError(
        "saving a checkpoint: expected a worker that takes part in the rounds, got one that left");
  }
  return checkpoints_->Save(folder, own_state);
}

absl::Status DistStore::AwaitSaved() { return checkpoints_->AwaitSaved(); }

absl::StatusOr<LoadedCheckpoint> DistStore::Load(const std::string& folder) {
  return checkpoints_->Load(folder);
}

// ---- the job ------------------------------------------------------------------------------------

absl::Status DistStore::Explained(absl::Status status) const {
  if (!absl::IsDeadlineExceeded(status)) return status;
  std::string text = absl::StrCat(
      status.message(), "; timeout_s is ", absl::ToDoubleSeconds(options_.timeout),
      ", which must be longer than a worker evaluates or saves while others wait for it");
  const std::string waits = node_.waits();
  if (!waits.empty()) absl::StrAppend(&text, "; the scheduler sees: ", waits);
  return absl::DeadlineExceededError(text);
}

absl::Status DistStore::Barrier() {
  SLIMPS_RETURN_IF_ERROR(node_.CheckOpen());
  return node_.Barrier("kvstore/barrier");
}

absl::StatusOr<std::vector<double>> DistStore::AllReduceSumFor(std::string_view purpose,
                                                               const std::vector<double>& values) {
  return node_.Sum(std::string(purpose), values);
}

absl::Status DistStore::Wait() { return tensors_->Wait(); }

absl::Status DistStore::Leave() {
  SLIMPS_RETURN_IF_ERROR(tensors_->Leave());
  wire::Header message = node_.membership()->MakeHeader();
  message.mutable_leave()->set_from_round(0);  // each partition's first round not pushed yet
  return node_.TellServers(message, "leaving the rounds");
}

absl::Status DistStore::Close() {
  if (options_.metrics_port >= 0) {
    MutexLock lock(&mutex_);
    metrics_ = nullptr;
  }
  // The others wait for this worker's part of a checkpoint under way.
  if (checkpoints_ != nullptr) checkpoints_->AwaitSaved().IgnoreError();
  const absl::Status closed = node_.Close([this] { return tensors_->Finish(); });
  // No report asks for spans any more.
  if (rank() == 0) TraceLog::Global().EndWatch();
  return closed;
}

void DistStore::Abort(const absl::Status& why) { node_.Fail(why, WorkerNode::Cause::kOurs); }

StoreTotals DistStore::totals() const {
  StoreTotals totals = tensors_->totals();
  rows_->AddTo(&totals);
  const TransportStats transport = node_.transport_stats();
  totals.bytes_shared = transport.bytes_lent + transport.bytes_borrowed;
  return totals;
}

PushCounts DistStore::push_counts(const Key& key) const { return tensors_->pushes()->counts(key); }

std::optional<wire::CodecMap> DistStore::codec_map() const { return codecs_.plan()->decision(); }

std::vector<wire::CodecMap> DistStore::policy_decisions() const {
  return codecs_.plan()->decisions();
}

std::vector<KeyCodec> DistStore::key_codecs() const {
  const std::optional<wire::CodecMap> map = codec_map();
  std::vector<KeyCodec> codecs;
  if (!map.has_value() || map->policy().empty()) return codecs;
  std::map<KeyId, const wire::CodecEntry*> entries;
  for (const wire::CodecEntry& entry : map->entries()) entries[entry.key()] = &entry;
  for (const TensorPlan* tensor : keys_.InNameOrder()) {
    const auto entry = entries.find(tensor->key.id());
    KeyCodec& out = codecs.emplace_back(KeyCodec{.key = tensor->key, .codec = "none"});
    if (entry == entries.end()) continue;
    out.codec = entry->second->codec();
    out.reason = entry->second->reason();
    if (entry->second->steps_size() > 0) out.codec.clear();
    for (const wire::CodecStep& step : entry->second->steps()) {
      absl::StrAppend(&out.codec, out.codec.empty() ? "" : " > ", step.codec());
    }
  }
  return codecs;
}

}  // namespace slimps
