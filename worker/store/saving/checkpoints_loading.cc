// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/base/out_of_memory.h"
#include "proto/base/status_macros.h"
#include "worker/store/saving/checkpoints.h"

namespace slimps {
namespace {

constexpr char kLoading[] = "loading a checkpoint";
// Servers read large files. A node that is lost ends every wait.
constexpr absl::Duration kLongest = absl::Hours(24);

absl::StatusOr<std::string> ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return absl::NotFoundError(absl::StrCat("cannot read ", path));
  std::string content(std::istreambuf_iterator<char>(file), {});
  if (file.bad()) return absl::DataLossError(absl::StrCat("cannot read all of ", path));
  return content;
}

}  // namespace

absl::StatusOr<Checkpoints::Found> Checkpoints::Find(const std::string& folder) {
  SLIMPS_RETURN_IF_ERROR(parts_.tensors->Wait());
  if (const uint64_t pushed = parts_.keys->MaxPushedRounds(); pushed > 0) {
    return absl::FailedPreconditionError(absl::StrCat(
        kLoading, ": expected to be loaded before the first push, got ", pushed, " rounds pushed"));
  }
  absl::StatusOr<std::string> text = ReadFile(absl::StrCat(folder, "/", CheckpointManifest::kFile));
  if (!text.ok()) {
    return absl::NotFoundError(absl::StrCat(folder, ": expected a checkpoint, got a folder ",
                                            "without a ", CheckpointManifest::kFile));
  }
  Found found;
  SLIMPS_ASSIGN_OR_RETURN(found.manifest, ParseManifest(*text));
  SLIMPS_RETURN_IF_ERROR(
      found.manifest.CheckFits(parts_.kvstore, options_.num_workers, parts_.keys->InNameOrder()));
  const uint32_t rank = parts_.node->rank();
  const std::string path = absl::StrCat(folder, "/worker-", rank, ".state");
  SLIMPS_ASSIGN_OR_RETURN(found.content, ReadFile(path));
  SLIMPS_ASSIGN_OR_RETURN(found.state, ParseWorkerState(found.content, path));
  const saved::WorkerProgress& progress = found.state.progress;
  if (progress.id() != found.manifest.id || progress.rank() != rank) {
    return absl::DataLossError(absl::StrCat(path, ": expected worker ", rank, " of checkpoint ",
                                            absl::Hex(found.manifest.id), ", got worker ",
                                            progress.rank(), " of ", absl::Hex(progress.id())));
  }
  if (const std::string own = parts_.codecs->Description(); progress.compression() != own) {
    return absl::InvalidArgumentError(
        absl::StrCat("checkpoint: compression: expected ", own, ", got ", progress.compression()));
  }
  const std::optional<wire::OptimizerSpec> optimizer = parts_.codecs->optimizer();
  if (optimizer.has_value() && optimizer->kind() != progress.optimizer().kind()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "checkpoint: optimizer: expected ", wire::OptimizerSpec::Kind_Name(optimizer->kind()),
        ", got ", wire::OptimizerSpec::Kind_Name(progress.optimizer().kind())));
  }
  for (const saved::KeyProgress& key : progress.keys()) {
    const auto same = [&](const wire::KeyInfo& one) { return one.name() == key.name(); };
    if (std::ranges::any_of(found.manifest.tensors, same)) continue;
    return absl::DataLossError(absl::StrCat(path, ": key ", key.name(), ": not in the manifest"));
  }
  SLIMPS_ASSIGN_OR_RETURN(found.residuals, parts_.residuals->Parse(found.state.residuals));
  return found;
}

absl::Status Checkpoints::AgreeOnFound(const CheckpointManifest& manifest,
                                       const std::string& folder) {
  SLIMPS_ASSIGN_OR_RETURN(const uint64_t id, IdOfWorker0(manifest.id));
  absl::Status same;
  if (manifest.id != id) {
    same = absl::FailedPreconditionError(
        absl::StrCat("workers found different checkpoints: ", folder, ": expected checkpoint ",
                     absl::Hex(id), ", which worker 0 has there, got ", absl::Hex(manifest.id)));
  }
  return parts_.node->AgreeOn(same, kLoading);
}

absl::Status Checkpoints::Use(Found* found) {
  const saved::WorkerProgress& progress = found->state.progress;
  parts_.tensors->pulls()->ForgetVersions();
  uint64_t rounds = 0;
  for (const saved::KeyProgress& key : progress.keys()) rounds = std::max(rounds, key.pushed());
  SLIMPS_RETURN_IF_ERROR(parts_.residuals->Use(std::move(found->residuals), rounds));
  if (progress.has_decision()) {
    SLIMPS_RETURN_IF_ERROR(parts_.codecs->plan()->ResumeDecision(progress.decision(), rounds));
  }
  if (progress.has_optimizer()) parts_.codecs->UseOptimizer(progress.optimizer());
  std::map<std::string, const saved::KeyProgress*> keys;
  for (const saved::KeyProgress& key : progress.keys()) keys[key.name()] = &key;
  for (const TensorPlan* tensor : parts_.keys->InNameOrder()) {
    const auto key = keys.find(tensor->key.typed_name());
    if (key == keys.end()) continue;
    const saved::KeyProgress& saved = *key->second;
    parts_.keys->Resume(tensor->key,
                        {.round = saved.pushed(),
                         .hyper = saved.has_hyper() ? std::optional(saved.hyper()) : std::nullopt});
    parts_.tensors->phases()->ResumeAt(*tensor, saved.exchanged());
  }
  if (progress.optimizer().kind() != wire::OptimizerSpec::ONEBIT_ADAM) return absl::OkStatus();
  for (const TensorPlan* tensor : parts_.keys->InNameOrder()) {
    constexpr uint32_t kFirst[] = {1};
    SLIMPS_ASSIGN_OR_RETURN(const std::vector<Answer> answers, parts_.states->Ask(*tensor, kFirst));
    // A third tensor says that the variance is frozen.
    if (answers[0].pull.state().tensors() < kMaxStateTensors) continue;
    SLIMPS_RETURN_IF_ERROR(parts_.states->TakeMomentum(*tensor));
  }
  return absl::OkStatus();
}

absl::StatusOr<LoadedCheckpoint> Checkpoints::Load(const std::string& given) {
  WorkerNode& node = *parts_.node;
  SLIMPS_RETURN_IF_ERROR(node.CheckOpen());
  const std::string folder = std::filesystem::absolute(given).lexically_normal().string();
  absl::StatusOr<Found> found = OrOutOfMemory([&] { return Find(folder); }, kLoading);
  SLIMPS_RETURN_IF_ERROR(node.AgreeOn(found.status(), kLoading));
  SLIMPS_RETURN_IF_ERROR(AgreeOnFound(found->manifest, folder));
  absl::Status read;
  if (node.rank() == 0) {
    read = TellAll(wire::Checkpoint::READ, found->manifest, folder).status();
    if (read.ok()) read = TellAll(wire::Checkpoint::CHECKED, found->manifest, folder).status();
    if (!read.ok()) DropAtServers(found->manifest);
  }
  SLIMPS_RETURN_IF_ERROR(node.AgreeOn(read, kLoading, kLongest));
  SLIMPS_RETURN_IF_ERROR(Apply(&*found, folder));
  return LoadedCheckpoint{.rounds = parts_.keys->MaxPushedRounds(),
                          .own_state = std::string(found->state.own),
                          .optimizer = parts_.codecs->optimizer()};
}

absl::Status Checkpoints::Apply(Found* found, const std::string& folder) {
  WorkerNode& node = *parts_.node;
  const uint64_t restarts = node.servers().restarts();
  absl::Status used;
  if (node.rank() == 0) {
    used = TellAll(wire::Checkpoint::APPLY, found->manifest, folder).status();
    // Both snapshots that a server keeps must be of the job as it was loaded.
    for (int i = 0; i < 2 && used.ok(); ++i) used = node.Persist();
    DropAtServers(found->manifest);
  }
  SLIMPS_RETURN_IF_ERROR(AgreeOrFail(used));
  used = Use(found);
  if (used.ok() && node.servers().restarts() != restarts) {
    used = absl::UnavailableError(
        absl::StrCat(kLoading, ": a server was started again meanwhile, and may lack some"));
  }
  return AgreeOrFail(used);
}

absl::Status Checkpoints::AgreeOrFail(const absl::Status& mine) {
  WorkerNode& node = *parts_.node;
  // Before the others hear of it, so that they are told this error.
  if (!mine.ok()) node.Fail(mine, WorkerNode::Cause::kOurs);
  const absl::Status agreed = node.AgreeOn(mine, kLoading, kLongest);
  if (!agreed.ok()) node.Fail(agreed, WorkerNode::Cause::kOurs);
  return agreed;
}

}  // namespace slimps
