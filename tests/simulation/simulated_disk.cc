// SPDX-License-Identifier: Apache-2.0
#include "tests/simulation/simulated_disk.h"

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <utility>

#include "proto/base/simulation/simulation.h"

namespace slimps {
namespace {

namespace fs = std::filesystem;

std::optional<std::string> ContentOf(const std::string& path) {
  if (!fs::exists(path)) return std::nullopt;
  std::ifstream in(path, std::ios::binary);
  return std::string{std::istreambuf_iterator<char>(in), {}};
}

void PutBack(const std::string& path, const std::optional<std::string>& content) {
  MachineDisk()->Remove(path);
  int file = -1;
  if (!content.has_value() || MachineDisk()->Create(path, &file) != 0) return;
  MachineDisk()->Write(file, *content);
  MachineDisk()->Close(file);
}

}  // namespace

void SimulatedDisk::AwaitRoom() const {
  if (simulation::Now() < full_until_) simulation::Sleep(full_until_ - simulation::Now());
}

int SimulatedDisk::Create(const std::string& path, int* file) const {
  simulation::Choose("creates a file");
  const int error = MachineDisk()->Create(path, file);
  if (error != 0) return error;
  open_[*file] = path;
  unsynced_[path] = {};
  return 0;
}

int SimulatedDisk::Write(int file, std::string_view bytes) const {
  for (const std::string_view half :
       {bytes.substr(0, bytes.size() / 2), bytes.substr(bytes.size() / 2)}) {
    simulation::Choose("writes to a file");
    if (write_takes_ > absl::ZeroDuration()) simulation::Sleep(write_takes_);
    if (simulation::Now() < full_until_) return ENOSPC;
    if (const int error = MachineDisk()->Write(file, half); error != 0) return error;
    unsynced_[open_.at(file)].written += half.size();
  }
  return 0;
}

int SimulatedDisk::Sync(int file) const {
  simulation::Choose("syncs a file");
  Extent& extent = unsynced_[open_.at(file)];
  extent.synced = extent.written;
  return 0;
}

int SimulatedDisk::Close(int file) const {
  open_.erase(file);
  return MachineDisk()->Close(file);
}

void SimulatedDisk::Keep(const std::string& path) const {
  changes_.push_back({path, ContentOf(path)});
}

int SimulatedDisk::Rename(const std::string& from, const std::string& to) const {
  simulation::Choose("renames a file");
  Keep(to);
  Keep(from);
  unsynced_[to] = std::exchange(unsynced_[from], {});
  unsynced_.erase(from);
  for (auto& [file, path] : open_) {
    if (path == from) path = to;
  }
  named_.push_back(to);
  return MachineDisk()->Rename(from, to);
}

int SimulatedDisk::SyncFolder(const std::string& folder) const {
  simulation::Choose("syncs a folder");
  std::erase_if(changes_, [&](const Before& one) {
    return fs::path(one.path).parent_path() == fs::path(folder);
  });
  return 0;
}

int SimulatedDisk::Remove(const std::string& path) const {
  simulation::Choose("removes a file");
  Keep(path);
  unsynced_.erase(path);
  return MachineDisk()->Remove(path);
}

void SimulatedDisk::CloseAll() {
  for (const auto& [file, path] : open_) MachineDisk()->Close(file);
  open_.clear();
}

void SimulatedDisk::Tear(const std::string& path, std::mt19937_64* random) {
  std::error_code gone;
  const uint64_t bytes = fs::file_size(path, gone);
  if (!gone) fs::resize_file(path, (*random)() % bytes, gone);
}

void SimulatedDisk::CutPower(std::mt19937_64* random) {
  for (const auto& [path, extent] : unsynced_) {
    std::error_code gone;
    const uint64_t kept = extent.synced + (*random)() % (extent.written - extent.synced + 1);
    fs::resize_file(path, kept, gone);
  }
  unsynced_.clear();
  // Names come to the disk in their order.
  const size_t last = (*random)() % (changes_.size() + 1);
  for (; changes_.size() > last; changes_.pop_back()) {
    PutBack(changes_.back().path, changes_.back().content);
  }
  changes_.clear();
}

}  // namespace slimps
