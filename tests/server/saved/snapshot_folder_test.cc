// SPDX-License-Identifier: Apache-2.0
// A server's folder keeps two snapshots, and lets one process write.
#include "server/saved/snapshot_folder.h"

#include <algorithm>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/server/saved/snapshot_test_util.h"

namespace slimps {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class SnapshotFolderTest : public ::testing::Test {
 protected:
  std::unique_ptr<SnapshotFolder> Open() {
    return SnapshotFolder::Open(root_.path(), "job", 1, &disk_).value();
  }
  std::unique_ptr<SnapshotFolder> OpenAs(const std::string& owner) {
    std::unique_ptr<SnapshotFolder> folder = Open();
    const std::vector<std::string> newest = folder->Newest();
    if (!newest.empty()) folder->SetRestored(newest[0]);
    EXPECT_TRUE(folder->TakeOver(owner).ok());
    return folder;
  }
  absl::Status Write(SnapshotFolder& folder) {
    const absl::StatusOr<saved::Prologue> prologue = folder.Begin();
    if (!prologue.ok()) return prologue.status();
    SnapshotWriter writer(folder.PathOf(*prologue), *prologue, &disk_);
    return folder.Finish(*prologue, &writer);
  }
  // The names of all files, in order.
  std::vector<std::string> Names() const {
    std::vector<std::string> names;
    for (const auto& one : std::filesystem::directory_iterator(path_)) {
      names.push_back(one.path().filename().string());
    }
    std::sort(names.begin(), names.end());
    return names;
  }

  const TestFolder root_;
  const std::string path_ = root_.path() + "/job/server-1";
  FailingDisk disk_;
};

TEST_F(SnapshotFolderTest, TwoSnapshotsAreKept) {
  const auto folder = OpenAs("me");
  EXPECT_THAT(folder->Newest(), IsEmpty());
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(Write(*folder).ok());
  EXPECT_THAT(Names(),
              ElementsAre("owner", "snapshot-000000000002-me", "snapshot-000000000003-me"));
  EXPECT_THAT(folder->Newest(), ElementsAre(path_ + "/snapshot-000000000003-me",
                                            path_ + "/snapshot-000000000002-me"));
  folder->Remove();
  EXPECT_TRUE(std::filesystem::is_empty(root_.path()));
}

TEST_F(SnapshotFolderTest, TheOneRestoredIsKeptAndDamagedAndTornOnesGo) {
  const auto before = OpenAs("me");
  for (int i = 0; i < 2; ++i) EXPECT_TRUE(Write(*before).ok());
  WriteAll(path_ + "/snapshot-000000000003-me.77.tmp", "torn");
  const auto after = Open();
  after->SetRestored(path_ + "/snapshot-000000000001-me");  // the second is damaged
  ASSERT_TRUE(after->TakeOver("you").ok());
  EXPECT_TRUE(Write(*after).ok());
  EXPECT_THAT(Names(),
              ElementsAre("owner", "snapshot-000000000001-me", "snapshot-000000000003-you"));
}

TEST_F(SnapshotFolderTest, AProcessWhosePlaceWasTakenCannotWrite) {
  const auto stopped = OpenAs("stopped");
  EXPECT_TRUE(Write(*stopped).ok());
  const auto next = OpenAs("next");
  const absl::Status refused = Write(*stopped);
  EXPECT_TRUE(absl::IsFailedPrecondition(refused)) << refused;
  EXPECT_THAT(std::string(refused.message()), HasSubstr("names next, and this process is stopped"));
  EXPECT_TRUE(Write(*next).ok());
  stopped->Remove();
  EXPECT_THAT(Names(),
              ElementsAre("owner", "snapshot-000000000001-stopped", "snapshot-000000000002-next"));
}

TEST_F(SnapshotFolderTest, WhatWasBeingWrittenWhenThePlaceWasTakenIsNotKept) {
  const auto stopped = OpenAs("stopped");
  EXPECT_TRUE(Write(*stopped).ok());
  std::unique_ptr<SnapshotFolder> next;
  disk_.before_rename = [&] {
    next = OpenAs("next");
    EXPECT_TRUE(Write(*next).ok());
  };
  EXPECT_TRUE(absl::IsFailedPrecondition(Write(*stopped)));
  EXPECT_THAT(next->Newest(), ElementsAre(path_ + "/snapshot-000000000002-next",
                                          path_ + "/snapshot-000000000001-stopped"));
}

TEST_F(SnapshotFolderTest, OfTwoWithOneNumberTheOwnersCounts) {
  const auto folder = OpenAs("b");
  EXPECT_TRUE(Write(*folder).ok());
  for (const std::string other : {"a", "c"}) {
    WriteAll(path_ + "/snapshot-000000000001-" + other, "");
  }
  EXPECT_EQ(folder->Newest()[0], path_ + "/snapshot-000000000001-b");
}

TEST_F(SnapshotFolderTest, WhoStartedFromAnOlderSnapshotThanThereIsStartsAgain) {
  const auto alive = OpenAs("alive");
  EXPECT_TRUE(Write(*alive).ok());
  const auto late = Open();
  late->SetRestored(late->Newest()[0]);
  EXPECT_TRUE(Write(*alive).ok());
  const absl::Status refused = late->TakeOver("late");
  EXPECT_TRUE(absl::IsFailedPrecondition(refused)) << refused;
  EXPECT_THAT(std::string(refused.message()), HasSubstr("start this server again"));
  EXPECT_TRUE(Write(*alive).ok());
}

TEST_F(SnapshotFolderTest, AFolderThatIsGoneIsNoOtherProcess) {
  const auto folder = OpenAs("me");
  EXPECT_TRUE(Write(*folder).ok());
  std::filesystem::remove_all(path_);
  const absl::Status gone = Write(*folder);
  EXPECT_TRUE(absl::IsUnavailable(gone)) << gone;
  EXPECT_THAT(std::string(gone.message()), HasSubstr("cannot read " + path_ + "/owner"));
}

TEST_F(SnapshotFolderTest, AFullDiskLeavesTheSnapshotsBefore) {
  const auto folder = OpenAs("me");
  for (int i = 0; i < 2; ++i) EXPECT_TRUE(Write(*folder).ok());
  disk_.error = ENOSPC;
  EXPECT_TRUE(absl::IsUnavailable(Write(*folder)));
  EXPECT_THAT(Names(),
              ElementsAre("owner", "snapshot-000000000001-me", "snapshot-000000000002-me"));
  disk_.error = 0;
  EXPECT_TRUE(Write(*folder).ok());
  EXPECT_THAT(Names(),
              ElementsAre("owner", "snapshot-000000000002-me", "snapshot-000000000003-me"));
}

TEST_F(SnapshotFolderTest, WhatCannotBeAFolderIsRefused) {
  for (const std::string job : {"", ".", "..", "a/b"}) {
    EXPECT_TRUE(
        absl::IsInvalidArgument(SnapshotFolder::Open(root_.path(), job, 1, &disk_).status()))
        << job;
  }
  WriteAll(root_.path() + "/file", "");
  const absl::Status file = SnapshotFolder::Open(root_.path() + "/file", "j", 1, &disk_).status();
  EXPECT_TRUE(absl::IsUnavailable(file));
  EXPECT_THAT(std::string(file.message()), HasSubstr("Not a directory"));
  disk_.error = EROFS;
  EXPECT_THAT(std::string(SnapshotFolder::Open(root_.path(), "j", 1, &disk_).status().message()),
              HasSubstr("Read-only file system"));
}

}  // namespace
}  // namespace slimps
