// SPDX-License-Identifier: Apache-2.0
#include "server/service/checkpointer.h"

#include <filesystem>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/base/out_of_memory.h"
#include "proto/base/status_macros.h"
#include "server/shard/run_on_shard.h"

namespace slimps {
namespace {

constexpr char kManifest[] = "manifest.json";  // worker 0 writes it last

// Checks that the folder is there and has no checkpoint yet.
absl::Status CheckFolder(const std::string& folder) {
  std::error_code error;
  if (folder.empty() || folder[0] != '/' || !std::filesystem::is_directory(folder, error)) {
    return absl::FailedPreconditionError(
        absl::StrCat(folder,
                     ": expected a folder that every node sees, and worker 0 has made; this "
                     "server sees none"));
  }
  if (!std::filesystem::exists(folder + "/" + kManifest, error)) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(folder, ": there is a checkpoint already"));
}

// Tells if a file's name is that of a server's images.
bool IsImages(std::string_view name) {
  constexpr std::string_view kBegin = "server-";
  constexpr std::string_view kEnd = ".images";
  if (name.size() <= kBegin.size() + kEnd.size()) return false;
  if (!name.starts_with(kBegin) || !name.ends_with(kEnd)) return false;
  name.remove_prefix(kBegin.size());
  name.remove_suffix(kEnd.size());
  return name.find_first_not_of("0123456789") == std::string_view::npos;
}

// Returns the same error by another code where its own would mean that this server is gone, and
// make the worker ask again.
absl::Status AsAnswer(const absl::Status& status) {
  if (absl::IsNotFound(status)) return absl::DataLossError(status.message());
  return absl::IsUnavailable(status) ? absl::AbortedError(status.message()) : status;
}

}  // namespace

Checkpointer::Checkpointer(std::vector<Shard*> shards, const ServerOptions& options)
    : shards_(std::move(shards)),
      job_id_(options.job_id),
      num_workers_(options.num_workers),
      disk_(options.checkpoint_disk) {}

Checkpointer::~Checkpointer() { Stop(absl::UnavailableError("the server is stopping")); }

absl::Status Checkpointer::Handle(uint32_t rank, const wire::Checkpoint& request, Done done) {
  return queue_.Put({.rank = rank, .what = request, .done = std::move(done)},
                    [this] { thread_ = Thread("checkpoints", [this] { Run(); }); });
}

void Checkpointer::Stop(const absl::Status& why) {
  queue_.Stop(why);
  // Handle starts no thread any more.
  if (thread_.joinable()) thread_.Join();
  for (const Request& request : queue_.TakeRest()) request.done(why, {});
}

void Checkpointer::Run() {
  while (const auto requests = queue_.Await()) {
    for (const Request& request : *requests) {
      if (queue_.stopped()) {
        request.done(queue_.why(), {});
      } else {
        Do(request);
      }
    }
  }
}

void Checkpointer::Answer(const Request& request, Result result) {
  const wire::Checkpoint& what = request.what;
  request.done(result.status, result.written);
  const bool is_repeatable = what.step() == wire::Checkpoint::DROP;
  if (what.id() == id_ && !is_repeatable) results_[what.step()] = std::move(result);
}

void Checkpointer::Do(const Request& request) {
  const wire::Checkpoint& what = request.what;
  const bool begins =
      what.step() == wire::Checkpoint::COPY || what.step() == wire::Checkpoint::READ;
  if (what.id() != id_ && begins) {
    Forget();
    id_ = what.id();
  }
  if (what.id() == id_) {
    const auto known = results_.find(what.step());
    if (known != results_.end()) return request.done(known->second.status, known->second.written);
  }
  Answer(request, what.id() == id_ || what.step() == wire::Checkpoint::DROP
                      ? DoStep(what)
                      : Result{absl::FailedPreconditionError(
                            "this server knows nothing of that checkpoint: it was started again, "
                            "or another one has begun")});
  // What follows is answered to a later request.
  if (what.step() == wire::Checkpoint::COPY && results_[wire::Checkpoint::COPY].status.ok()) {
    absl::StatusOr<wire::CheckpointFile> written = Write(request);
    results_[wire::Checkpoint::WRITTEN] = {.status = AsAnswer(written.status())};
    if (written.ok()) results_[wire::Checkpoint::WRITTEN].written = *std::move(written);
    copies_.clear();
  }
  if (what.step() == wire::Checkpoint::READ) {
    const absl::Status read = OrOutOfMemory([&] { return Read(what); }, "a checkpoint");
    results_[wire::Checkpoint::CHECKED] = {.status = AsAnswer(read)};
  }
}

Checkpointer::Result Checkpointer::DoStep(const wire::Checkpoint& what) {
  switch (what.step()) {
    case wire::Checkpoint::COPY:
      return {.status = Copy(what)};
    case wire::Checkpoint::READ:
      return {};
    case wire::Checkpoint::APPLY:
      return {.status = Apply()};
    case wire::Checkpoint::DROP:
      if (what.id() == id_) Forget();
      return {};
    default:
      return {.status = absl::FailedPreconditionError(
                  absl::StrCat(wire::Checkpoint::Step_Name(what.step()),
                               " of a checkpoint: expected the step before it first"))};
  }
}

absl::Status Checkpointer::Copy(const wire::Checkpoint& what) {
  SLIMPS_RETURN_IF_ERROR(CheckFolder(what.folder()));
  for (Shard* const shard : shards_) {
    absl::StatusOr<std::vector<PartitionImage>> images;
    SLIMPS_RETURN_IF_ERROR(RunOnShard(shard, [&](ShardState& state) {
      images = state.SaveAll();
      rest_.push_back(state.SaveShard());
    }));
    SLIMPS_RETURN_IF_ERROR(images.status());
    for (PartitionImage& image : *images) copies_.push_back(std::move(image));
  }
  return absl::OkStatus();
}

absl::StatusOr<wire::CheckpointFile> Checkpointer::Write(const Request& request) {
  wire::CheckpointFile file;
  file.set_name(absl::StrCat("server-", request.rank, ".images"));
  saved::Prologue prologue;
  prologue.set_job_id(job_id_);
  prologue.set_rank(request.rank);
  prologue.set_num_workers(num_workers_);
  prologue.set_sequence(id_);
  SnapshotWriter writer(absl::StrCat(request.what.folder(), "/", file.name()), prologue, disk_,
                        FileCrc::kCompute);
  for (PartitionImage& image : copies_) {
    if (queue_.stopped()) return absl::UnavailableError("the server is stopping");
    writer.AddPartition(image);
    image = PartitionImage();  // its memory is free for training
    SLIMPS_RETURN_IF_ERROR(writer.status());
  }
  for (const saved::Shard& fields : rest_) writer.AddShard(fields);
  SLIMPS_RETURN_IF_ERROR(writer.Commit());
  file.set_bytes(writer.bytes());
  file.set_crc32(writer.crc32());
  return file;
}

absl::Status Checkpointer::Read(const wire::Checkpoint& what) {
  absl::Status read;
  for (const std::string& name : what.files()) {
    if (!IsImages(name)) {
      read.Update(absl::InvalidArgumentError(
          absl::StrCat("file \"", name, "\" of a checkpoint: expected a name as server-0.images")));
    }
    if (read.ok()) read = ReadFile(absl::StrCat(what.folder(), "/", name));
  }
  for (Shard* const shard : shards_) {
    absl::Status checked;
    read.Update(RunOnShard(shard, [&](ShardState& state) { checked = state.CheckStaged(); }));
    read.Update(checked);
  }
  if (read.ok() && optimizer_ == nullptr) read = absl::InvalidArgumentError("it has no servers");
  return read;
}

absl::Status Checkpointer::ReadFile(const std::string& path) {
  SLIMPS_ASSIGN_OR_RETURN(const std::unique_ptr<SnapshotReader> reader, SnapshotReader::Open(path));
  const saved::Prologue& prologue = reader->prologue();
  if (prologue.sequence() != id_) {
    return absl::DataLossError(absl::StrCat(path, ": expected a file of checkpoint ",
                                            absl::Hex(id_), ", got one of ",
                                            absl::Hex(prologue.sequence())));
  }
  for (;;) {
    if (queue_.stopped()) return absl::UnavailableError("the server is stopping");
    SLIMPS_ASSIGN_OR_RETURN(const std::optional<PartitionImage> image, reader->Next());
    if (!image.has_value()) break;
    SLIMPS_RETURN_IF_ERROR(Stage(*image));
  }
  for (const saved::Shard& fields : reader->shards()) {
    SLIMPS_ASSIGN_OR_RETURN(optimizer_, Optimizer::Create(fields.optimizer()));
  }
  return absl::OkStatus();
}

absl::Status Checkpointer::Stage(const PartitionImage& image) {
  for (Shard* const shard : shards_) {
    absl::Status staged;
    SLIMPS_RETURN_IF_ERROR(
        RunOnShard(shard, [&](ShardState& state) { staged = state.Stage(image); }));
    SLIMPS_RETURN_IF_ERROR(staged);
  }
  return absl::OkStatus();
}

absl::Status Checkpointer::Apply() {
  const auto checked = results_.find(wire::Checkpoint::CHECKED);
  if (checked == results_.end() || !checked->second.status.ok()) {
    return absl::FailedPreconditionError("a checkpoint was not read whole, so it is not loaded");
  }
  for (Shard* const shard : shards_) {
    SLIMPS_RETURN_IF_ERROR(
        RunOnShard(shard, [this](ShardState& state) { state.ApplyStaged(optimizer_); }));
  }
  return absl::OkStatus();
}

void Checkpointer::Forget() {
  for (Shard* const shard : shards_) {
    shard->PostOwnControl([](ShardState& state) { state.DropStaged(); });
  }
  id_ = 0;
  results_.clear();
  copies_.clear();
  rest_.clear();
  optimizer_.reset();
}

}  // namespace slimps
