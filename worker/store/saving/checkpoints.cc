// SPDX-License-Identifier: Apache-2.0
#include "worker/store/saving/checkpoints.h"

#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "glog/logging.h"
#include "proto/base/crc32.h"
#include "proto/base/file.h"
#include "proto/base/out_of_memory.h"
#include "proto/base/status_copy.h"
#include "proto/base/status_macros.h"
#include "worker/courier/item_gathering.h"
#include "worker/pull/held_weights.h"
#include "worker/saved/safetensors.h"

namespace slimps {
namespace {

constexpr char kSaving[] = "saving a checkpoint";
constexpr char kWeightsFile[] = "weights.safetensors";
// A disk may be slow. A node that is lost ends every wait.
constexpr absl::Duration kLongest = absl::Hours(24);

std::string_view BytesOf(std::span<const float> values) {
  return {reinterpret_cast<const char*>(values.data()), values.size_bytes()};
}

// Writes a file of the checkpoint, piece by piece.
class CountedFile final {
 public:
  CountedFile(const std::string& folder, const std::string& name)
      : writer_(absl::StrCat(folder, "/", name)) {
    file_.set_name(name);
  }

  void Append(std::string_view bytes) {
    writer_.Append(bytes);
    file_.set_bytes(file_.bytes() + bytes.size());
    file_.set_crc32(Crc32(file_.crc32(), bytes));
  }

  absl::StatusOr<wire::CheckpointFile> Commit() {
    SLIMPS_RETURN_IF_ERROR(writer_.Commit());
    return file_;
  }

 private:
  FileWriter writer_;
  wire::CheckpointFile file_;
};

std::string WorkerFile(uint32_t rank) { return absl::StrCat("worker-", rank, ".state"); }

}  // namespace

// ---- what is copied while nobody pushes ---------------------------------------------------------

absl::Status Checkpoints::MakeFolder(const std::string& folder) const {
  SLIMPS_RETURN_IF_ERROR(slimps::MakeFolder(folder));
  std::error_code error;
  if (!std::filesystem::exists(absl::StrCat(folder, "/", CheckpointManifest::kFile), error)) {
    return absl::OkStatus();
  }
  return absl::FailedPreconditionError(
      absl::StrCat(folder, ": there is a checkpoint already; expected a folder without one"));
}

uint64_t Checkpoints::DrawId() {
  const wire::Header header = parts_.node->membership()->MakeHeader();
  return header.incarnation() ^ (header.incarnation_high() + ++begun_);
}

absl::StatusOr<uint64_t> Checkpoints::IdOfWorker0(uint64_t id) {
  if (parts_.node->rank() != 0) id = 0;
  // Its halves, and how many workers there are: one that is away or has left does not come.
  std::vector<double> sums = {static_cast<double>(id >> 32), static_cast<double>(id & 0xFFFFFFFF),
                              1.0};
  SLIMPS_ASSIGN_OR_RETURN(sums, parts_.node->Sum("the number of a checkpoint", sums));
  if (sums[2] != options_.num_workers) {
    return absl::FailedPreconditionError(
        absl::StrCat("a checkpoint has the state of every worker: expected ", options_.num_workers,
                     " workers, ", sums[2], " are in the job"));
  }
  return (static_cast<uint64_t>(sums[0]) << 32) + static_cast<uint64_t>(sums[1]);
}

CheckpointManifest Checkpoints::DescribeJob(uint64_t id) const {
  CheckpointManifest manifest{.id = id,
                              .rounds = parts_.keys->MaxPushedRounds(),
                              .kvstore = parts_.kvstore,
                              .workers = options_.num_workers,
                              .servers = options_.num_servers,
                              .compression = parts_.codecs->Description()};
  const std::optional<wire::OptimizerSpec> optimizer = parts_.codecs->optimizer();
  manifest.optimizer = optimizer.has_value() ? optimizer->ShortDebugString() : "none";
  for (const TensorPlan* tensor : parts_.keys->InNameOrder()) {
    manifest.tensors.push_back(tensor->info);
  }
  return manifest;
}

absl::StatusOr<WorkerState> Checkpoints::TakeProgress(uint64_t id) const {
  WorkerState state;
  state.progress.set_id(id);
  state.progress.set_rank(parts_.node->rank());
  state.progress.set_compression(parts_.codecs->Description());
  for (const TensorPlan* tensor : parts_.keys->InNameOrder()) {
    const CountedPush progress = parts_.keys->Progress(tensor->key);
    saved::KeyProgress& key = *state.progress.add_keys();
    key.set_name(tensor->key.typed_name());
    key.set_pushed(progress.round);
    key.set_exchanged(parts_.tensors->phases()->exchanged(*tensor));
    if (progress.hyper.has_value()) *key.mutable_hyper() = *progress.hyper;
  }
  const std::optional<wire::OptimizerSpec> optimizer = parts_.codecs->optimizer();
  if (optimizer.has_value()) *state.progress.mutable_optimizer() = *optimizer;
  CompressionPlan* const plan = parts_.codecs->plan();
  if (plan->adapts()) return state;  // its decisions are among the residuals
  SLIMPS_ASSIGN_OR_RETURN(const auto decision, plan->SettledDecision(options_.timeout));
  if (decision.has_value()) *state.progress.mutable_decision() = *decision;
  return state;
}

absl::Status Checkpoints::CopyOwn(std::string_view own_state, Draft* draft) {
  SLIMPS_ASSIGN_OR_RETURN(const std::string residuals, parts_.residuals->Save());
  SLIMPS_ASSIGN_OR_RETURN(WorkerState state, TakeProgress(draft->manifest.id));
  state.own = own_state;
  state.residuals = residuals;
  draft->own_file = BuildWorkerState(state);
  return absl::OkStatus();
}

absl::StatusOr<std::vector<float>> Checkpoints::PullWeights(const TensorPlan& tensor) {
  std::vector<float> weights(tensor.elements);
  HeldWeights held(&tensor);
  held.UseMemory(weights);
  ItemGathering gathering(parts_.node->courier(), {.priority = ItemGathering::kBeforeAll});
  for (size_t i = 0; i < tensor.partitions.size(); ++i) {
    const PartitionPlan& partition = tensor.partitions[i];
    gathering.Add(
        partition.server,
        {.item = parts_.tensors->MakePull(tensor, i, parts_.tensors->NewestPushed(tensor.key)),
         .payload = {},
         .key_name = tensor.key.typed_name(),
         .done = {}},
        partition.elements * sizeof(float));
  }
  SLIMPS_ASSIGN_OR_RETURN(const std::vector<Answer> answers, parts_.node->AwaitAnswers(gathering));
  for (size_t i = 0; i < answers.size(); ++i) {
    SLIMPS_RETURN_IF_ERROR(held.Merge(i, answers[i].pull, answers[i].payload.bytes()));
  }
  return weights;
}

absl::StatusOr<std::vector<wire::Header>> Checkpoints::TellAll(wire::Checkpoint::Step step,
                                                               const CheckpointManifest& manifest,
                                                               const std::string& folder) {
  wire::Header message = parts_.node->membership()->MakeHeader();
  wire::Checkpoint& checkpoint = *message.mutable_checkpoint();
  checkpoint.set_step(step);
  checkpoint.set_id(manifest.id);
  checkpoint.set_folder(folder);
  if (step == wire::Checkpoint::READ) {
    for (uint32_t i = 0; i < manifest.servers; ++i) {
      checkpoint.add_files(absl::StrCat("server-", i, ".images"));
    }
  }
  std::vector<wire::Header> answers;
  for (uint32_t server = 0; server < options_.num_servers; ++server) {
    SLIMPS_ASSIGN_OR_RETURN(
        wire::Header answer,
        parts_.node->AskServer(server, message, kLongest,
                               absl::StrCat("checkpoint: ", wire::Checkpoint::Step_Name(step))));
    answers.push_back(std::move(answer));
  }
  return answers;
}

void Checkpoints::DropAtServers(const CheckpointManifest& manifest) {
  const absl::Status dropped = TellAll(wire::Checkpoint::DROP, manifest, "").status();
  if (!dropped.ok()) LOG(WARNING) << "a server keeps what it has of a checkpoint: " << dropped;
}

absl::Status Checkpoints::CopyAll(Draft* draft) {
  const uint64_t restarts = parts_.node->servers().restarts();
  // A server that was started again answers these pulls after all workers have sent it again what
  // it lacks. So its copy is of this round.
  for (const TensorPlan* tensor : parts_.keys->InNameOrder()) {
    const auto pull = [&] { return PullWeights(*tensor); };
    SLIMPS_ASSIGN_OR_RETURN(std::vector<float> weights,
                            OrOutOfMemory(pull, kSaving, tensor->key.typed_name()));
    draft->weights.push_back(std::move(weights));
  }
  SLIMPS_RETURN_IF_ERROR(TellAll(wire::Checkpoint::COPY, draft->manifest, draft->folder).status());
  if (parts_.node->servers().restarts() == restarts) return absl::OkStatus();
  return absl::UnavailableError(
      absl::StrCat(kSaving, ": a server was started again meanwhile, and may lack some pushes"));
}

absl::Status Checkpoints::Save(const std::string& folder,
                               const absl::StatusOr<std::string_view>& own_state) {
  WorkerNode& node = *parts_.node;
  SLIMPS_RETURN_IF_ERROR(node.CheckOpen());
  AwaitSaved().IgnoreError();  // what went wrong was logged
  {
    MutexLock lock(&mutex_);
    saved_ = absl::AbortedError(absl::StrCat(kSaving, " in ", folder, ": it was not copied"));
  }
  Draft draft{.folder = std::filesystem::absolute(folder).lexically_normal().string()};
  SLIMPS_ASSIGN_OR_RETURN(const uint64_t id, IdOfWorker0(DrawId()));
  draft.manifest = DescribeJob(id);
  // From the first agreement to the second nobody pushes.
  absl::Status mine = own_state.status();
  if (mine.ok() && node.rank() == 0) mine = MakeFolder(draft.folder);
  const auto copy = [&] { return CopyOwn(*own_state, &draft); };
  if (mine.ok()) mine = OrOutOfMemory(copy, kSaving);
  SLIMPS_RETURN_IF_ERROR(node.AgreeOn(mine, kSaving));
  if (node.rank() == 0) mine = CopyAll(&draft);
  const absl::Status copied = node.AgreeOn(mine, kSaving, kLongest);
  if (!copied.ok()) {
    if (node.rank() == 0) DropAtServers(draft.manifest);
    return copied;
  }
  thread_ = Thread("checkpoint", [this, moved = std::make_shared<Draft>(std::move(draft))] {
    OrTell(parts_.node->on_out_of_memory(), [&] {
      const absl::Status finished = Finish(std::move(*moved));
      if (!finished.ok()) LOG(ERROR) << "a checkpoint was not written: " << finished;
      MutexLock lock(&mutex_);
      saved_ = finished;
    });
  });
  return absl::OkStatus();
}

absl::Status Checkpoints::AwaitSaved() {
  if (thread_.joinable()) thread_.Join();
  MutexLock lock(&mutex_);
  return CopyUnshared(saved_);
}

// ---- what is written while training goes on -----------------------------------------------------

absl::StatusOr<wire::CheckpointFile> Checkpoints::WriteOwn(const Draft& draft) const {
  const std::string& folder = draft.folder;
  std::error_code error;
  if (!std::filesystem::is_directory(folder, error)) {
    return absl::FailedPreconditionError(absl::StrCat(
        folder, ": expected the folder that worker 0 has made; this worker does not see it"));
  }
  CountedFile file(folder, WorkerFile(parts_.node->rank()));
  file.Append(draft.own_file);
  return file.Commit();
}

absl::StatusOr<wire::CheckpointFile> Checkpoints::WriteWeights(const Draft& draft) const {
  std::vector<std::string> keys;
  for (const wire::KeyInfo& tensor : draft.manifest.tensors) keys.push_back(tensor.name());
  const std::vector<std::string> names = SafetensorsNames(keys);
  std::vector<SafetensorsEntry> entries;
  for (size_t i = 0; i < draft.weights.size(); ++i) {
    const wire::KeyInfo& tensor = draft.manifest.tensors[i];
    entries.push_back({.name = names[i],
                       .shape = {tensor.shape().begin(), tensor.shape().end()},
                       .elements = draft.weights[i].size()});
  }
  CountedFile file(draft.folder, kWeightsFile);
  file.Append(SafetensorsHead(entries, draft.manifest.rounds));
  for (const std::vector<float>& weights : draft.weights) file.Append(BytesOf(weights));
  return file.Commit();
}

absl::Status Checkpoints::WriteAll(Draft* draft) {
  SLIMPS_ASSIGN_OR_RETURN(wire::CheckpointFile weights, WriteWeights(*draft));
  draft->weights.clear();
  draft->manifest.files.push_back(std::move(weights));
  SLIMPS_ASSIGN_OR_RETURN(const std::vector<wire::Header> answers,
                          TellAll(wire::Checkpoint::WRITTEN, draft->manifest, draft->folder));
  for (const wire::Header& answer : answers) {
    draft->manifest.files.push_back(answer.ack().written());
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<double>> Checkpoints::SumOfWriters(const std::vector<double>& values) {
  return parts_.node->membership()->BarrierSum(
      {.name = "kvstore/checkpoint", .group = wire::WORKER, .purpose = kSaving, .values = values},
      kLongest);
}

absl::Status Checkpoints::CheckFiles(const Draft& draft) const {
  for (const wire::CheckpointFile& file : draft.manifest.files) {
    const std::string path = absl::StrCat(draft.folder, "/", file.name());
    std::error_code error;
    const uint64_t bytes = std::filesystem::file_size(path, error);
    if (!error && bytes == file.bytes()) continue;
    return absl::FailedPreconditionError(absl::StrCat(
        path, ": expected ", file.bytes(), " bytes, which its node has written, got ",
        error ? error.message() : absl::StrCat(bytes), "; every node must see the same folder"));
  }
  return absl::OkStatus();
}

absl::Status Checkpoints::Finish(Draft draft) {
  const size_t rank = parts_.node->rank();
  const absl::StatusOr<wire::CheckpointFile> own = WriteOwn(draft);
  absl::Status mine = own.status();
  if (mine.ok() && rank == 0) mine = WriteAll(&draft);
  // How many failed, then each worker's bytes and CRC-32: doubles hold them exactly.
  std::vector<double> values(1 + 2 * options_.num_workers);
  values[0] = mine.ok() ? 0 : 1;
  if (own.ok()) {
    values[1 + 2 * rank] = static_cast<double>(own->bytes());
    values[2 + 2 * rank] = own->crc32();
  }
  SLIMPS_ASSIGN_OR_RETURN(values, SumOfWriters(values));
  if (rank == 0 && mine.ok() && values[0] == 0) {
    for (uint32_t worker = 0; worker < options_.num_workers; ++worker) {
      wire::CheckpointFile& file = draft.manifest.files.emplace_back();
      file.set_name(WorkerFile(worker));
      file.set_bytes(static_cast<uint64_t>(values[1 + 2 * worker]));
      file.set_crc32(static_cast<uint32_t>(values[2 + 2 * worker]));
    }
    mine = CheckFiles(draft);
    if (mine.ok()) {
      mine = WriteFileDurably(absl::StrCat(draft.folder, "/", CheckpointManifest::kFile),
                              BuildManifest(draft.manifest));
    }
  }
  SLIMPS_ASSIGN_OR_RETURN(const std::vector<double> failed, SumOfWriters({mine.ok() ? 0.0 : 1.0}));
  SLIMPS_RETURN_IF_ERROR(mine);
  if (values[0] + failed[0] == 0) return absl::OkStatus();
  return absl::AbortedError(absl::StrCat(kSaving, " in ", draft.folder, ": another worker failed"));
}

}  // namespace slimps
