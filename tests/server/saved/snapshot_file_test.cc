// SPDX-License-Identifier: Apache-2.0
// A snapshot file is read as it was written, or the reader says where it is damaged.
#include "server/saved/snapshot_file.h"

#include <cstring>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/base/hash.h"
#include "tests/server/saved/snapshot_test_util.h"

namespace slimps {
namespace {

using ::testing::HasSubstr;

constexpr size_t kHeadBytes = 32;

PartitionImage Image(const std::string& name, const std::vector<size_t>& part_bytes) {
  PartitionImage image;
  image.fields.mutable_spec()->mutable_item()->mutable_info()->set_name(name);
  std::mt19937_64 random(part_bytes.size());
  for (const size_t bytes : part_bytes) {
    AlignedBuffer part(bytes);
    for (std::byte& byte : part.bytes()) byte = static_cast<std::byte>(random());
    image.Add(Payload::Adopt(std::move(part), bytes));
  }
  return image;
}

// What a file says, in one text; or what is wrong with it.
absl::StatusOr<std::string> Read(const std::string& path) {
  absl::StatusOr<std::unique_ptr<SnapshotReader>> reader = SnapshotReader::Open(path);
  if (!reader.ok()) return reader.status();
  std::string text = (*reader)->prologue().SerializeAsString();
  for (;;) {
    absl::StatusOr<std::optional<PartitionImage>> image = (*reader)->Next();
    if (!image.ok()) return image.status();
    if (!image->has_value()) break;
    text += (*image)->fields.SerializeAsString();
    for (const Payload& part : (*image)->parts) {
      text.append(reinterpret_cast<const char*>(part.bytes().data()), part.size());
    }
  }
  for (const saved::Shard& shard : (*reader)->shards()) text += shard.SerializeAsString();
  return text;
}

class SnapshotFileTest : public ::testing::Test {
 protected:
  SnapshotFileTest() {
    saved::Prologue prologue;
    prologue.set_job_id("job");
    prologue.set_sequence(7);
    prologue.set_owner("me");
    SnapshotWriter writer(path_, prologue, MachineDisk());
    writer.AddPartition(Image("s:a", {40, 1, 70}));
    writer.AddPartition(Image("s:none", {}));
    writer.AddPartition(Image("s:b", {12}));
    saved::Shard shard;
    shard.mutable_optimizer()->set_learning_rate(0.5);
    shard.add_left()->set_worker(3);
    writer.AddShard(shard);
    EXPECT_TRUE(writer.Commit().ok());
    content_ = ReadAll(path_);
    EXPECT_EQ(content_.size(), writer.bytes());
    whole_ = Read(path_).value();
  }

  // Makes the file `content`; with the head of its record at `head` hashed anew, if given.
  absl::StatusOr<std::string> ReadChanged(std::string content, std::optional<size_t> head = {}) {
    if (head.has_value()) {
      const uint64_t hash = HashBytes(std::as_bytes(std::span(content)).subspan(*head, 24));
      std::memcpy(content.data() + *head + 24, &hash, sizeof hash);
    }
    WriteAll(path_, content);
    return Read(path_);
  }

  const TestFolder folder_;
  const std::string path_ = folder_.path() + "/snapshot";
  std::string content_, whole_;
};

TEST_F(SnapshotFileTest, WhatWasWrittenIsRead) {
  std::unique_ptr<SnapshotReader> reader = SnapshotReader::Open(path_).value();
  EXPECT_EQ(reader->prologue().job_id(), "job");
  EXPECT_EQ(reader->prologue().sequence(), 7u);
  const PartitionImage expected = Image("s:a", {40, 1, 70});
  const PartitionImage image = reader->Next().value().value();
  EXPECT_EQ(image.fields.spec().item().info().name(), "s:a");
  ASSERT_EQ(image.parts.size(), 3u);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_TRUE(std::ranges::equal(image.parts[i].bytes(), expected.parts[i].bytes()));
  }
  EXPECT_TRUE(reader->Next().value()->parts.empty());
  EXPECT_EQ(reader->Next().value()->parts[0].size(), 12u);
  EXPECT_FALSE(reader->Next().value().has_value());
  ASSERT_EQ(reader->shards().size(), 1u);
  EXPECT_EQ(reader->shards()[0].left(0).worker(), 3u);
}

TEST_F(SnapshotFileTest, EachFlippedBitIsSeen) {
  for (size_t at = 0; at < content_.size(); ++at) {
    std::string flipped = content_;
    flipped[at] = static_cast<char>(flipped[at] ^ (1 << (at % 8)));
    EXPECT_TRUE(absl::IsDataLoss(ReadChanged(flipped).status())) << "byte " << at;
  }
}

TEST_F(SnapshotFileTest, EachTornFileIsSeen) {
  for (size_t bytes = 0; bytes < content_.size(); ++bytes) {
    EXPECT_TRUE(absl::IsDataLoss(ReadChanged(content_.substr(0, bytes)).status())) << bytes;
  }
  EXPECT_THAT(std::string(ReadChanged(content_ + "x").status().message()),
              HasSubstr("1 bytes follow its end"));
  EXPECT_EQ(ReadChanged(content_).value(), whole_);
}

TEST_F(SnapshotFileTest, BytesThatAreOutOfPlaceAreSeen) {
  std::mt19937_64 random(1);
  for (int i = 0; i < 300; ++i) {
    const size_t at = random() % content_.size(), bytes = 1 + random() % 64;
    std::string without = content_, twice = content_;
    without.erase(at, bytes);
    twice.insert(at, content_.substr(at, bytes));
    EXPECT_TRUE(absl::IsDataLoss(ReadChanged(without).status())) << at << " " << bytes;
    EXPECT_TRUE(absl::IsDataLoss(ReadChanged(twice).status())) << at << " " << bytes;
  }
}

TEST_F(SnapshotFileTest, ARecordThatIsMissingIsSeen) {
  // The record after the prologue is the first partition.
  uint64_t length = 0;
  std::memcpy(&length, content_.data() + 16 + 8, sizeof length);
  const size_t partition = 16 + kHeadBytes + length;
  std::string without = content_;
  std::memcpy(&length, content_.data() + partition + 8, sizeof length);
  without.erase(partition, kHeadBytes + length);
  EXPECT_THAT(std::string(ReadChanged(without).status().message()),
              HasSubstr("expected record 1, got 2"));
}

TEST_F(SnapshotFileTest, ALengthBeyondTheFileTakesNoMemory) {
  for (const uint64_t length : {uint64_t{1} << 20, uint64_t{1} << 40, ~uint64_t{0}}) {
    std::string changed = content_;
    std::memcpy(changed.data() + 16 + 8, &length, sizeof length);
    EXPECT_THAT(std::string(ReadChanged(changed, 16).status().message()),
                HasSubstr(std::to_string(length) + " bytes, at most"));
  }
}

TEST_F(SnapshotFileTest, AFileThatIsNotThereIsNotFound) {
  EXPECT_TRUE(absl::IsNotFound(Read(path_ + "2").status()));
  EXPECT_THAT(std::string(ReadChanged("not a snapshot at all").status().message()),
              HasSubstr("it does not begin as a snapshot of version 1 does"));
}

TEST_F(SnapshotFileTest, AFullDiskLeavesTheOldFile) {
  FailingDisk disk;
  SnapshotWriter writer(path_, saved::Prologue(), &disk);
  disk.error = ENOSPC;
  writer.AddPartition(Image("s:a", {40}));
  EXPECT_THAT(std::string(writer.Commit().message()), HasSubstr("No space left"));
  EXPECT_EQ(Read(path_).value(), whole_);
}

}  // namespace
}  // namespace slimps
