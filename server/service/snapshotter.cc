// SPDX-License-Identifier: Apache-2.0
#include "server/service/snapshotter.h"

#include <glog/logging.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/base/status_macros.h"
#include "server/saved/snapshot_file.h"
#include "server/shard/run_on_shard.h"

namespace slimps {

Snapshotter::Snapshotter(std::unique_ptr<SnapshotFolder> folder, std::vector<Shard*> shards,
                         const ServerOptions& options, const Clock* clock)
    : folder_(std::move(folder)),
      shards_(std::move(shards)),
      options_(*options.snapshots),
      num_workers_(options.num_workers),
      clock_(clock) {}

Snapshotter::~Snapshotter() { Stop(absl::UnavailableError("the server is stopping")); }

absl::Status Snapshotter::Start(const std::string& owner, Done on_replaced) {
  SLIMPS_RETURN_IF_ERROR(folder_->TakeOver(owner));
  on_replaced_ = std::move(on_replaced);
  next_ = clock_->Now() + options_.every;
  thread_ = Thread("snapshots", [this] { Run(); });
  return absl::OkStatus();
}

absl::Status Snapshotter::Persist(Done done) { return queue_.Put(std::move(done)); }

void Snapshotter::PersistAtLast(std::function<void()> saved) {
  Persist([this, saved = std::move(saved)](const absl::Status& written) {
    written.ok() ? saved() : unsaved_.push_back(saved);
  }).IgnoreError();
}

void Snapshotter::Stop(const absl::Status& why) {
  queue_.Stop(why);
  if (thread_.joinable()) thread_.Join();
  for (const Done& done : queue_.TakeRest()) done(why);
}

SnapshotCounters Snapshotter::counters() const {
  MutexLock lock(&mutex_);
  return counters_;
}

void Snapshotter::Run() {
  while (const auto waiting = queue_.AwaitUntil(next_, clock_)) {
    const absl::Status written = WriteOne();
    Note(written);
    if (written.ok()) {
      for (const auto& saved : std::exchange(unsaved_, {})) saved();
    }
    for (const Done& done : *waiting) done(written);
    if (absl::IsFailedPrecondition(written)) {
      on_replaced_(written);
      next_ = SteadyTime::InfiniteFuture();  // Persist goes on to be refused
    } else {
      next_ = clock_->Now() + options_.every;
    }
  }
}

void Snapshotter::Note(const absl::Status& written) {
  if (queue_.stopped() && !written.ok()) return;  // given up
  const bool failed_before = std::exchange(failed_, !written.ok());
  {
    MutexLock lock(&mutex_);
    ++(written.ok() ? counters_.written : counters_.failed);
    if (written.ok()) counters_.newest = clock_->Now();
  }
  if (!written.ok()) {
    LOG(ERROR) << "no snapshot was written: " << written.message()
               << (absl::IsFailedPrecondition(written)
                       ? ""
                       : "; training goes on, and the next one is tried later");
    return;
  }
  if (failed_before) LOG(INFO) << "snapshots are written again to " << folder_->path();
}

absl::Status Snapshotter::WriteOne() {
  SLIMPS_ASSIGN_OR_RETURN(saved::Prologue prologue, folder_->Begin());
  prologue.set_num_workers(num_workers_);
  SnapshotWriter writer(folder_->PathOf(prologue), prologue, options_.disk);
  std::vector<saved::Shard> rest(shards_.size());
  for (size_t i = 0; i < shards_.size(); ++i) {
    SLIMPS_RETURN_IF_ERROR(WriteShard(shards_[i], &writer, &rest[i]));
  }
  for (const saved::Shard& fields : rest) writer.AddShard(fields);
  SLIMPS_RETURN_IF_ERROR(folder_->Finish(prologue, &writer));
  for (Shard* const shard : shards_) {
    shard->PostOwnControl([](ShardState& state) { state.NoteSnapshot(); });
  }
  return absl::OkStatus();
}

absl::Status Snapshotter::WriteShard(Shard* shard, SnapshotWriter* writer, saved::Shard* rest) {
  std::vector<PartitionId> ids;
  SLIMPS_RETURN_IF_ERROR(RunOnShard(shard, [&](ShardState& state) {
    ids = state.Partitions();
    *rest = state.SaveShard();
  }));
  for (size_t next = 0; next < ids.size();) {
    SLIMPS_RETURN_IF_ERROR(WriteBatch(shard, ids, &next, writer));
    if (queue_.stopped()) return absl::UnavailableError("the server is stopping");
  }
  return absl::OkStatus();
}

absl::Status Snapshotter::WriteBatch(Shard* shard, const std::vector<PartitionId>& ids,
                                     size_t* next, SnapshotWriter* writer) {
  std::vector<PartitionImage> images;
  absl::Status saved;
  SLIMPS_RETURN_IF_ERROR(RunOnShard(shard, [&](ShardState& state) {
    for (size_t bytes = 0; *next < ids.size() && bytes < kBatchBytes; ++*next) {
      absl::StatusOr<PartitionImage> image = state.Save(ids[*next]);
      saved = image.status();
      if (!image.ok()) return;
      bytes += image->PartBytes();
      images.push_back(*std::move(image));
    }
  }));
  SLIMPS_RETURN_IF_ERROR(saved);
  for (const PartitionImage& image : images) writer->AddPartition(image);
  return writer->status();
}

}  // namespace slimps
