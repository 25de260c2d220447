// SPDX-License-Identifier: Apache-2.0
#include "server/saved/snapshot_folder.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <system_error>
#include <tuple>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "proto/base/status_macros.h"

namespace slimps {
namespace {

namespace fs = std::filesystem;

constexpr char kPrefix[] = "snapshot-";

std::string ContentOf(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream content;
  content << in.rdbuf();
  return content.str();
}

}  // namespace

absl::StatusOr<std::unique_ptr<SnapshotFolder>> SnapshotFolder::Open(const std::string& root,
                                                                     const std::string& job_id,
                                                                     uint32_t rank,
                                                                     const Disk* disk) {
  if (job_id.empty() || job_id == "." || job_id == ".." || job_id.find('/') != std::string::npos) {
    return absl::InvalidArgumentError(absl::StrCat(
        "snapshots lie in a folder of the job's name, and \"", job_id, "\" cannot be one"));
  }
  const std::string path = absl::StrCat(root, "/", job_id, "/server-", rank);
  SLIMPS_RETURN_IF_ERROR(MakeFolder(path));
  SLIMPS_RETURN_IF_ERROR(CheckWritable(absl::StrCat(path, "/owner"), disk));
  // The folders themselves must outlast a power cut, too.
  for (const std::string& parent : {absl::StrCat(root, "/", job_id), root}) {
    if (const int error = disk->SyncFolder(parent); error != 0) {
      return absl::UnavailableError(
          absl::StrCat("cannot write ", parent, ": ", std::generic_category().message(error)));
    }
  }
  return std::unique_ptr<SnapshotFolder>(new SnapshotFolder(path, job_id, rank, disk));
}

SnapshotFolder::SnapshotFolder(std::string path, std::string job_id, uint32_t rank,
                               const Disk* disk)
    : path_(std::move(path)), job_id_(std::move(job_id)), rank_(rank), disk_(disk) {}

std::vector<SnapshotFolder::Entry> SnapshotFolder::List() const {
  std::vector<Entry> entries;
  std::error_code error;
  for (const fs::directory_entry& one : fs::directory_iterator(path_, error)) {
    const std::string name = one.path().filename().string();
    const std::vector<std::string> words = absl::StrSplit(name, '-');
    Entry entry{.path = one.path().string()};
    if (words.size() != 3 || !absl::StartsWith(name, kPrefix) || absl::EndsWith(name, ".tmp") ||
        !absl::SimpleAtoi(words[1], &entry.sequence)) {
      continue;
    }
    entry.owner = words[2];
    entries.push_back(std::move(entry));
  }
  const std::string owner = ContentOf(OwnerPath());
  const auto rank_of = [&](const Entry& one) {
    return std::tuple(one.sequence, one.owner == owner, one.path);
  };
  std::sort(entries.begin(), entries.end(),
            [&](const Entry& a, const Entry& b) { return rank_of(a) > rank_of(b); });
  return entries;
}

std::vector<std::string> SnapshotFolder::Newest() const {
  std::vector<std::string> paths;
  for (Entry& entry : List()) paths.push_back(std::move(entry.path));
  return paths;
}

void SnapshotFolder::SetRestored(const std::string& path) {
  kept_ = {path};
  for (const Entry& entry : List()) sequence_ = std::max(sequence_, entry.sequence);
}

absl::Status SnapshotFolder::TakeOver(const std::string& owner) {
  const std::vector<Entry> entries = List();
  if (!entries.empty() && entries[0].sequence > sequence_) {
    return absl::FailedPreconditionError(
        absl::StrCat("another process has written ", entries[0].path,
                     " while this one started: start this server again"));
  }
  SLIMPS_RETURN_IF_ERROR(WriteFileDurably(OwnerPath(), owner, disk_));
  owner_ = owner;
  return absl::OkStatus();
}

absl::Status SnapshotFolder::CheckOwner() const {
  const std::string owner = ContentOf(OwnerPath());
  if (owner == owner_) return absl::OkStatus();
  // That says nothing of another process: somebody has removed the folder, or the disk fails.
  if (owner.empty()) return absl::UnavailableError(absl::StrCat("cannot read ", OwnerPath()));
  return absl::FailedPreconditionError(
      absl::StrCat("another process has taken this server's place: ", OwnerPath(), " names ", owner,
                   ", and this process is ", owner_));
}

absl::StatusOr<saved::Prologue> SnapshotFolder::Begin() {
  SLIMPS_RETURN_IF_ERROR(CheckOwner());
  saved::Prologue prologue;
  prologue.set_job_id(job_id_);
  prologue.set_rank(rank_);
  prologue.set_sequence(sequence_ + 1);
  prologue.set_owner(owner_);
  return prologue;
}

std::string SnapshotFolder::PathOf(const saved::Prologue& prologue) const {
  return absl::StrCat(path_, "/", kPrefix, absl::StrFormat("%012d", prologue.sequence()), "-",
                      prologue.owner());
}

absl::Status SnapshotFolder::Finish(const saved::Prologue& prologue, SnapshotWriter* writer) {
  SLIMPS_RETURN_IF_ERROR(CheckOwner());
  const absl::Status committed = writer->Commit();
  const std::string path = PathOf(prologue);
  // Another process may have taken over while this one was syncing, or was stopped. It may also
  // have removed what this one had written.
  if (const absl::Status owner = CheckOwner(); !owner.ok()) {
    disk_->Remove(path);
    return owner;
  }
  SLIMPS_RETURN_IF_ERROR(committed);
  sequence_ = prologue.sequence();
  kept_.insert(kept_.begin(), path);
  if (kept_.size() > 2) kept_.resize(2);
  RemoveOthers();
  return absl::OkStatus();
}

void SnapshotFolder::RemoveOthers() {
  std::error_code error;
  std::vector<std::string> others;
  for (const fs::directory_entry& one : fs::directory_iterator(path_, error)) {
    const std::string path = one.path().string();
    const bool ours = absl::StartsWith(one.path().filename().string(), kPrefix);
    if (ours && std::find(kept_.begin(), kept_.end(), path) == kept_.end()) others.push_back(path);
  }
  for (const std::string& path : others) disk_->Remove(path);
}

void SnapshotFolder::Remove() {
  if (owner_.empty() || !CheckOwner().ok()) return;
  kept_.clear();
  RemoveOthers();
  disk_->Remove(OwnerPath());
  std::error_code error;
  fs::remove(path_, error);  // fails, and is left, if something else lies there
  fs::remove(fs::path(path_).parent_path(), error);
}

}  // namespace slimps
