// SPDX-License-Identifier: Apache-2.0
// The disk of one simulated process. Each operation is a choice point, and a write has one in its
// middle, so a crash leaves torn files. A power cut also takes what was not synced: ends of files,
// and names (renamed and removed files) from some moment on.
//
//   SimulatedDisk disk;
//   disk.SetFullUntil(simulation::Now() + absl::Seconds(1));
//   ... a node writes to it and crashes ...
//   disk.CutPower(&random);
//
// The files are real ones, so that readers need no seam. Nothing is synced on the real disk.
#ifndef SLIMPS_TESTS_SIMULATION_SIMULATED_DISK_H_
#define SLIMPS_TESTS_SIMULATION_SIMULATED_DISK_H_

#include <cstdint>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "absl/time/time.h"
#include "proto/base/file.h"

namespace slimps {

// Owned by the run: one thread of it goes on at a time.
class SimulatedDisk final : public Disk {
 public:
  int Create(const std::string& path, int* file) const override;
  int Write(int file, std::string_view bytes) const override;
  int Sync(int file) const override;
  int Close(int file) const override;
  int Rename(const std::string& from, const std::string& to) const override;
  int SyncFolder(const std::string& folder) const override;
  int Remove(const std::string& path) const override;

  // Writes fail until a time of the simulation.
  void SetFullUntil(absl::Duration time) { full_until_ = time; }
  // Returns when writes succeed.
  void AwaitRoom() const;
  // Each half of a write takes so long.
  void SetWriteTakes(absl::Duration duration) { write_takes_ = duration; }

  // True while a process writes a file, and after it has crashed meanwhile.
  bool IsWriting() const { return !open_.empty(); }

  // Closes the files of the process that has crashed.
  void CloseAll();

  // Undoes what was not synced: all of it, or a part. REQUIRES: CloseAll was called.
  void CutPower(std::mt19937_64* random);

  // The last names that files were given by Rename.
  const std::vector<std::string>& named() const { return named_; }

  // Damages a file that was synced: its end is gone.
  static void Tear(const std::string& path, std::mt19937_64* random);

 private:
  struct Extent {
    uint64_t synced = 0, written = 0;  // bytes
  };
  // What lay at a path before its name was changed.
  struct Before {
    std::string path;
    std::optional<std::string> content;
  };

  void Keep(const std::string& path) const;

  absl::Duration full_until_, write_takes_;
  mutable std::map<int, std::string> open_;         // paths
  mutable std::map<std::string, Extent> unsynced_;  // files, by path
  mutable std::vector<std::string> named_;
  mutable std::vector<Before> changes_;  // of names, that no SyncFolder has followed
};

}  // namespace slimps

#endif  // SLIMPS_TESTS_SIMULATION_SIMULATED_DISK_H_
