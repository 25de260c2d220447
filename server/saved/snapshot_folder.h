// SPDX-License-Identifier: Apache-2.0
// The folder in which a server keeps its snapshots, ROOT/JOB/server-RANK:
//
//   owner                        the incarnation that may write here
//   snapshot-SEQUENCE-OWNER      at most two, apart from what a crash has left
//
//   SLIMPS_ASSIGN_OR_RETURN(auto folder, SnapshotFolder::Open(root, job, rank, disk));
//   for (const std::string& path : folder->Newest()) ... read the first whole one ...
//   folder->SetRestored(path);
//   SLIMPS_RETURN_IF_ERROR(folder->TakeOver(incarnation));        // once it is in the job
//   SLIMPS_ASSIGN_OR_RETURN(saved::Prologue prologue, folder->Begin());
//   SnapshotWriter writer(folder->PathOf(prologue), prologue, disk); ...
//   SLIMPS_RETURN_IF_ERROR(folder->Finish(prologue, &writer));
//
// A process that was stopped while another took its place may wake at any moment. It finds another
// owner then, and what it writes is never used: names do not collide, and where two snapshots have
// one number, that of the owner counts.
#ifndef SLIMPS_SERVER_SAVED_SNAPSHOT_FOLDER_H_
#define SLIMPS_SERVER_SAVED_SNAPSHOT_FOLDER_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/base/file.h"
#include "server/saved/image.h"
#include "server/saved/snapshot_file.h"

namespace slimps {

// Thread-compatible.
class SnapshotFolder final {
 public:
  // Makes the folder if it is not there. `disk` outlives it.
  // InvalidArgument: the job's name cannot be that of a folder.
  // Unavailable: there is no folder, or nothing can be written to it; the message says why.
  [[nodiscard]] static absl::StatusOr<std::unique_ptr<SnapshotFolder>> Open(
      const std::string& root, const std::string& job_id, uint32_t rank, const Disk* disk);

  // Returns the paths of the snapshots, the newest first.
  std::vector<std::string> Newest() const;

  // Says which snapshot this process goes on from. It is kept as the older of two.
  void SetRestored(const std::string& path);

  // Makes this process, named `owner`, the one that may write.
  // FailedPrecondition: another process has written a snapshot since SetRestored.
  // Unavailable: the disk's error.
  [[nodiscard]] absl::Status TakeOver(const std::string& owner);

  // Returns the prologue of the next snapshot, but for the fields that the folder does not know.
  // REQUIRES: TakeOver was OK.
  // FailedPrecondition: another process has taken over since.
  // Unavailable: the folder cannot be read, or is gone.
  [[nodiscard]] absl::StatusOr<saved::Prologue> Begin();
  std::string PathOf(const saved::Prologue& prologue) const;

  // Completes the snapshot, and removes all but it and the one before.
  // FailedPrecondition: another process has taken over; the snapshot is not kept.
  // Unavailable: the disk's error; the snapshots before are what they were.
  [[nodiscard]] absl::Status Finish(const saved::Prologue& prologue, SnapshotWriter* writer);

  // Removes the folder with all that is in it, at the job's end. Does nothing if another process
  // has taken over.
  void Remove();

  const std::string& path() const { return path_; }

 private:
  struct Entry {
    uint64_t sequence = 0;
    std::string owner;
    std::string path;
  };

  SnapshotFolder(std::string path, std::string job_id, uint32_t rank, const Disk* disk);

  std::string OwnerPath() const { return path_ + "/owner"; }
  absl::Status CheckOwner() const;
  std::vector<Entry> List() const;  // the newest first
  void RemoveOthers();

  const std::string path_;
  const std::string job_id_;
  const uint32_t rank_;
  const Disk* const disk_;
  std::string owner_;              // empty before TakeOver
  uint64_t sequence_ = 0;          // of the newest snapshot of this process, or the one restored
  std::vector<std::string> kept_;  // the newest two that this process knows to be whole
};

}  // namespace slimps

#endif  // SLIMPS_SERVER_SAVED_SNAPSHOT_FOLDER_H_
