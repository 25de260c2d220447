// SPDX-License-Identifier: Apache-2.0
// A file is written whole or not at all, and reaches the disk. The tests use the machine's disk,
// and one that records the calls and fails where the test says.
#include "proto/base/file.h"

#include <errno.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <ostream>
#include <string>
#include <vector>

namespace slimps {
namespace {

using ::testing::ElementsAre;

std::string ReadAll(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

// Records its calls, with DRAFT for draft names. Fails once, at the call named `fails_at`.
class RecordingDisk final : public Disk {
 public:
  int Create(const std::string& path, int* file) const override {
    return Do("create " + Name(path), [&] { return MachineDisk()->Create(path, file); });
  }
  int Write(int file, std::string_view bytes) const override {
    return Do("write", [&] { return MachineDisk()->Write(file, bytes); });
  }
  int Sync(int file) const override {
    return Do("sync", [&] { return MachineDisk()->Sync(file); });
  }
  int Close(int file) const override {
    const int closed = MachineDisk()->Close(file);
    return Do("close", [&] { return closed; });
  }
  int Rename(const std::string& from, const std::string& to) const override {
    return Do("rename " + Name(from) + " " + Name(to),
              [&] { return MachineDisk()->Rename(from, to); });
  }
  int SyncFolder(const std::string& folder) const override {
    return Do("sync folder", [&] { return MachineDisk()->SyncFolder(folder); });
  }
  int Remove(const std::string& path) const override {
    return Do("remove " + Name(path), [&] { return MachineDisk()->Remove(path); });
  }

  std::string fails_at;
  int error = ENOSPC;
  mutable std::vector<std::string> calls;

 private:
  static std::string Name(const std::string& path) {
    return path.ends_with(".tmp") ? "DRAFT" : std::filesystem::path(path).filename().string();
  }
  template <typename Call>
  int Do(const std::string& what, Call call) const {
    calls.push_back(what);
    return what == fails_at ? error : call();
  }
};

class FileTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = testing::TempDir() + "/slimps-file-XXXXXX";
    ASSERT_NE(nullptr, mkdtemp(pattern.data()));
    folder_ = pattern;
    path_ = folder_ + "/kept";
    std::ofstream(path_) << "old";
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  size_t FilesThere() const {
    return static_cast<size_t>(std::distance(std::filesystem::directory_iterator(folder_), {}));
  }

  std::string folder_, path_;
  RecordingDisk disk_;
};

TEST_F(FileTest, ReplacesTheFileAndLeavesNoDraft) {
  ASSERT_TRUE(WriteFileDurably(path_, "one").ok());
  ASSERT_TRUE(WriteFileDurably(path_, std::string("tw\0", 3)).ok());
  EXPECT_EQ(std::string("tw\0", 3), ReadAll(path_));
  EXPECT_EQ(1u, FilesThere());
}

TEST_F(FileTest, IsSyncedBeforeItHasItsNameAndTheFolderAfterwards) {
  ASSERT_TRUE(WriteFileDurably(path_, "new", &disk_).ok());
  EXPECT_THAT(disk_.calls, ElementsAre("create DRAFT", "write", "sync", "close",
                                       "rename DRAFT kept", "sync folder"));
}

TEST_F(FileTest, WhateverFailsBeforeItHasItsNameLeavesTheOldFileAndNoDraft) {
  for (const char* const call : {"create DRAFT", "write", "sync", "close", "rename DRAFT kept"}) {
    disk_.fails_at = call;
    const absl::Status status = WriteFileDurably(path_, "new", &disk_);
    EXPECT_EQ(absl::StatusCode::kUnavailable, status.code()) << call;
    EXPECT_EQ("cannot write " + path_ + ": No space left on device", status.message()) << call;
    EXPECT_EQ("old", ReadAll(path_)) << call;
    EXPECT_EQ(1u, FilesThere()) << call;
  }
}

TEST_F(FileTest, AFolderThatCannotBeSyncedIsAnErrorThoughTheFileIsThere) {
  disk_.fails_at = "sync folder";
  disk_.error = EIO;
  const absl::Status status = WriteFileDurably(path_, "new", &disk_);
  EXPECT_EQ("cannot write " + path_ + ": Input/output error", status.message());
  EXPECT_EQ("new", ReadAll(path_));
  EXPECT_EQ(1u, FilesThere());
}

TEST_F(FileTest, AfterAnErrorNothingMoreIsWritten) {
  disk_.fails_at = "write";
  FileWriter writer(path_, &disk_);
  writer.Append("a");
  writer.Append("b");
  EXPECT_FALSE(writer.status().ok());
  EXPECT_FALSE(writer.Commit().ok());
  EXPECT_THAT(disk_.calls, ElementsAre("create DRAFT", "write", "close", "remove DRAFT"));
}

TEST_F(FileTest, WithoutCommitTheFileStaysWhatItWas) {
  {
    FileWriter writer(path_);
    writer.Append("new");
    EXPECT_EQ(2u, FilesThere());
  }
  EXPECT_EQ("old", ReadAll(path_));
  EXPECT_EQ(1u, FilesThere());
}

TEST_F(FileTest, AStreamOverItIsWrittenWholeHoweverLarge) {
  std::string expected;
  FileWriter writer(path_);
  FileStreamBuffer buffer(&writer);
  std::ostream out(&buffer);
  for (int i = 0; i < 50'000; ++i) {
    out << i << '\n';
    expected += std::to_string(i) + "\n";
  }
  EXPECT_TRUE(out.flush().good());
  ASSERT_TRUE(writer.Commit().ok());
  EXPECT_EQ(expected, ReadAll(path_));
}

TEST_F(FileTest, AStreamOverAFullDiskGoesBad) {
  disk_.fails_at = "write";
  FileWriter writer(path_, &disk_);
  FileStreamBuffer buffer(&writer);
  std::ostream out(&buffer);
  EXPECT_FALSE((out << std::string(1 << 20, 'x')).flush().good());
  EXPECT_FALSE(writer.Commit().ok());
  EXPECT_EQ("old", ReadAll(path_));
}

// Here the kernel itself refuses to write on in the middle of a file.
TEST_F(FileTest, AFileLargerThanTheProcessMayWriteLeavesTheOldOne) {
  rlimit before{};
  ASSERT_EQ(0, getrlimit(RLIMIT_FSIZE, &before));
  const auto handler = signal(SIGXFSZ, SIG_IGN);
  const rlimit small{.rlim_cur = 64 << 10, .rlim_max = before.rlim_max};
  ASSERT_EQ(0, setrlimit(RLIMIT_FSIZE, &small));
  const absl::Status status = WriteFileDurably(path_, std::string(1 << 20, 'x'));
  setrlimit(RLIMIT_FSIZE, &before);
  signal(SIGXFSZ, handler);
  EXPECT_EQ("cannot write " + path_ + ": File too large", status.message());
  EXPECT_EQ("old", ReadAll(path_));
  EXPECT_EQ(1u, FilesThere());
}

TEST_F(FileTest, ADeviceIsWrittenDirectlyAndStaysADevice) {
  EXPECT_TRUE(WriteFileDurably("/dev/null", "gone").ok());
  EXPECT_TRUE(std::filesystem::is_character_file("/dev/null"));
  const absl::Status full = WriteFileDurably("/dev/full", "no room");
  EXPECT_EQ("cannot write /dev/full: No space left on device", full.message());
}

TEST_F(FileTest, ErrorsNameTheFileAndTheReason) {
  EXPECT_EQ("cannot write /no/such/file: No such file or directory",
            WriteFileDurably("/no/such/file", "x").message());
  EXPECT_EQ("cannot write " + folder_ + ": Is a directory",
            WriteFileDurably(folder_, "x").message());
}

TEST_F(FileTest, WhatCannotBeWrittenIsToldBeforehandAndNothingIsTouched) {
  EXPECT_TRUE(CheckWritable(path_).ok());
  EXPECT_TRUE(CheckWritable(folder_ + "/not-yet").ok());
  EXPECT_EQ("old", ReadAll(path_));
  EXPECT_EQ(1u, FilesThere());
  for (const std::string& bad :
       {std::string("/no/such/file"), std::string(), folder_, folder_ + "/"}) {
    EXPECT_EQ(absl::StatusCode::kUnavailable, CheckWritable(bad).code()) << bad;
  }
}

TEST(FileMode, OnlyTheOwnerMayReadWhatIsWritten) {
  const mode_t before = umask(0);
  const std::string folder = testing::TempDir() + "/modes";
  const auto mode_of = [&](const std::string& path) {
    return std::filesystem::status(path).permissions();
  };
  EXPECT_TRUE(MakeFolder(folder + "/new").ok());
  EXPECT_EQ(mode_of(folder + "/new"), std::filesystem::perms::owner_all);
  const std::string path = folder + "/file";
  std::ofstream(path) << "another mode";
  EXPECT_TRUE(WriteFileDurably(path, "content").ok());
  const auto expected = std::filesystem::perms::owner_read | std::filesystem::perms::owner_write;
  EXPECT_EQ(mode_of(path), expected);
  std::ofstream(folder + "/draft") << "left from before";
  int file = -1;
  ASSERT_EQ(MachineDisk()->Create(folder + "/draft", &file), 0);
  MachineDisk()->Close(file);
  EXPECT_EQ(mode_of(folder + "/draft"), expected);
  const auto device = mode_of("/dev/null");
  EXPECT_TRUE(WriteFileDurably("/dev/null", "content").ok());
  EXPECT_EQ(mode_of("/dev/null"), device);
  EXPECT_TRUE(MakeFolder(folder).ok()) << "it is there already";
  umask(before);
}

}  // namespace
}  // namespace slimps
