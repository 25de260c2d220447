// SPDX-License-Identifier: Apache-2.0
// What tests of snapshots share: a folder of their own, and a disk that fails when it is told to.
#ifndef SLIMPS_TESTS_SERVER_SAVED_SNAPSHOT_TEST_UTIL_H_
#define SLIMPS_TESTS_SERVER_SAVED_SNAPSHOT_TEST_UTIL_H_

#include <errno.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <string>
#include <utility>

#include "gtest/gtest.h"
#include "proto/base/file.h"

namespace slimps {

inline std::string ReadAll(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

inline void WriteAll(const std::string& path, const std::string& content) {
  std::ofstream(path, std::ios::binary) << content;
}

// Is removed with all that is in it.
class TestFolder final {
 public:
  TestFolder() {
    std::string pattern = ::testing::TempDir() + "/slimps-snapshots-XXXXXX";
    EXPECT_NE(nullptr, mkdtemp(pattern.data()));
    path_ = pattern;
  }
  ~TestFolder() { std::filesystem::remove_all(path_); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// The machine's disk, until `error` is set; then every write fails with it. Thread-safe, except
// before_rename.
class FailingDisk final : public Disk {
 public:
  int Create(const std::string& path, int* file) const override {
    return error != 0 ? error.load() : MachineDisk()->Create(path, file);
  }
  int Write(int file, std::string_view bytes) const override {
    return error != 0 ? error.load() : MachineDisk()->Write(file, bytes);
  }
  int Sync(int file) const override { return MachineDisk()->Sync(file); }
  int Close(int file) const override { return MachineDisk()->Close(file); }
  int Rename(const std::string& from, const std::string& to) const override {
    if (const auto act = std::exchange(before_rename, nullptr)) act();
    return MachineDisk()->Rename(from, to);
  }
  int SyncFolder(const std::string& folder) const override {
    return MachineDisk()->SyncFolder(folder);
  }
  int Remove(const std::string& path) const override { return MachineDisk()->Remove(path); }

  std::atomic<int> error{0};
  mutable std::function<void()> before_rename;  // acts once
};

}  // namespace slimps

#endif  // SLIMPS_TESTS_SERVER_SAVED_SNAPSHOT_TEST_UTIL_H_
