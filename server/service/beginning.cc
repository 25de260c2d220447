// SPDX-License-Identifier: Apache-2.0
#include "server/service/beginning.h"

#include <glog/logging.h>

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/base/out_of_memory.h"
#include "proto/base/simulation/mutant.h"
#include "proto/base/status_macros.h"
#include "server/saved/snapshot_file.h"

namespace slimps {
namespace {

absl::Status CheckPrologue(const saved::Prologue& prologue, const ServerOptions& options) {
  if (prologue.job_id() == options.job_id && prologue.rank() == options.snapshots->rank &&
      prologue.num_workers() == options.num_workers) {
    return absl::OkStatus();
  }
  return absl::DataLossError(absl::StrCat("a snapshot of another server: expected job \"",
                                          options.job_id, "\", server ", options.snapshots->rank,
                                          " and ", options.num_workers, " workers, got job \"",
                                          prologue.job_id(), "\", server ", prologue.rank(),
                                          " and ", prologue.num_workers(), " workers"));
}

absl::Status RestorePartition(const PartitionImage& image, Beginning* beginning) {
  const saved::Spec& spec = image.fields.spec();
  // All partitions of a server have one mode and one staleness.
  if (beginning->mode.value_or(spec.mode()) != spec.mode() ||
      beginning->staleness.value_or(spec.staleness()) != spec.staleness()) {
    return BadImage("its mode or staleness differs from that of others");
  }
  beginning->mode = spec.mode();
  beginning->staleness = spec.staleness();
  PartitionSpec declared;
  SLIMPS_ASSIGN_OR_RETURN(const size_t shard, beginning->directory.Declare(spec.item(), &declared));
  return beginning->shards[shard]->Restore(image, beginning->waiting);
}

// Restores one snapshot.
absl::StatusOr<Beginning> RestoreFile(const std::string& path, const ServerOptions& options,
                                      const Clock* clock) {
  SLIMPS_ASSIGN_OR_RETURN(const std::unique_ptr<SnapshotReader> reader, SnapshotReader::Open(path));
  SLIMPS_RETURN_IF_ERROR(CheckPrologue(reader->prologue(), options));
  Beginning beginning = BeginEmpty(options, clock);
  beginning.restored = true;
  for (;;) {
    absl::StatusOr<std::optional<PartitionImage>> image = reader->Next();
    if (!image.ok() && simulation::Is(Mutant::kTornSnapshotUsed)) break;
    SLIMPS_RETURN_IF_ERROR(image.status());
    if (!image->has_value()) break;
    const PartitionImage& one = **image;
    SLIMPS_RETURN_IF_ERROR(OrOutOfMemory([&] { return RestorePartition(one, &beginning); },
                                         "a snapshot", one.fields.spec().item().info().name()));
  }
  for (const saved::Shard& fields : reader->shards()) {
    for (const auto& shard : beginning.shards) {
      SLIMPS_RETURN_IF_ERROR(shard->RestoreShard(fields));
    }
  }
  return beginning;
}

}  // namespace

Beginning BeginEmpty(const ServerOptions& options, const Clock* clock) {
  const size_t shards = std::max<size_t>(1, options.shard_threads);
  Beginning beginning{.waiting = std::make_shared<WaitingBytes>(options.max_waiting_bytes),
                      .directory = Directory(shards, options.directory),
                      .shards = {},
                      .mode = std::nullopt,
                      .staleness = std::nullopt,
                      .folder = nullptr};
  const auto keep_sum = Optimizer::Create(wire::OptimizerSpec()).value();
  for (size_t i = 0; i < shards; ++i) {
    beginning.shards.push_back(std::make_unique<ShardState>(keep_sum, clock));
  }
  return beginning;
}

absl::StatusOr<Beginning> BeginFromSnapshot(const ServerOptions& options, const Clock* clock) {
  if (!options.snapshots.has_value()) return BeginEmpty(options, clock);
  const SnapshotOptions& snapshots = *options.snapshots;
  SLIMPS_ASSIGN_OR_RETURN(
      std::unique_ptr<SnapshotFolder> folder,
      SnapshotFolder::Open(snapshots.root, options.job_id, snapshots.rank, snapshots.disk));
  const auto begin = [&](Beginning beginning) {
    for (const auto& shard : beginning.shards) shard->TellDurable();
    beginning.folder = std::move(folder);
    return beginning;
  };
  absl::Status newest_is;
  for (const std::string& path : folder->Newest()) {
    absl::StatusOr<Beginning> restored = RestoreFile(path, options, clock);
    if (restored.ok()) {
      LOG(INFO) << "goes on from snapshot " << path;
      folder->SetRestored(path);
      return begin(*std::move(restored));
    }
    LOG(ERROR) << "cannot go on from snapshot " << path << ": " << restored.status();
    newest_is.Update(restored.status());
  }
  if (newest_is.ok()) return begin(BeginEmpty(options, clock));
  return absl::DataLossError(absl::StrCat("no snapshot in ", folder->path(),
                                          " is whole: ", newest_is.message(),
                                          "; remove that folder to begin the job anew"));
}

}  // namespace slimps
