// SPDX-License-Identifier: Apache-2.0
// The file of a snapshot: the images of a server's partitions.
//
//   file    = magic "SLPSSNAP" | version u32, 1 | 0 u32 | record*
//   record  = kind u32 | index u32 | length u64 | hash of the content u64 | hash of the 24 bytes
//             before u64 | content
//   records = prologue (partition part*)* shard* epilogue
//
// Numbers are little-endian; hashes are XXH3-64. `index` counts the records of the file, from 0, so
// one that is lost, doubled or out of its place is seen. The content of a part is raw bytes. The
// others are messages of image.proto. A partition says how many parts follow it, and the epilogue
// how many partitions there are. For example, a server with one partition of 3 floats:
//
//   0  magic, version                          16 bytes
//   1  prologue: job, rank, sequence, owner    32 + some 40
//   2  partition: its small fields             32 + some 100
//   3  part: 3 floats                          32 + 12
//   4  shard: optimizer, who has left          32 + some 10
//   5  epilogue: 1 partition                   32 + 2
//
// A file without its epilogue, or with bytes after it, is not whole. Known weaknesses: a hash tells
// damage, not malice; a reader knows that the last record is whole only after it has read all.
#ifndef SLIMPS_SERVER_SAVED_SNAPSHOT_FILE_H_
#define SLIMPS_SERVER_SAVED_SNAPSHOT_FILE_H_

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/base/file.h"
#include "server/saved/image.h"

namespace slimps {

enum class SnapshotRecord : uint32_t {
  kPrologue = 1,
  kPartition = 2,
  kPart = 3,
  kShard = 4,
  kEpilogue = 5,
};

// Says if a writer computes the CRC-32 of its whole file.
enum class FileCrc { kNone, kCompute };

// Writes a snapshot piece by piece. Remembers the first error, and writes nothing after it.
// Thread-compatible.
class SnapshotWriter final {
 public:
  SnapshotWriter(const std::string& path, const saved::Prologue& prologue, const Disk* disk,
                 FileCrc crc = FileCrc::kNone);

  void AddPartition(const PartitionImage& image);

  // REQUIRES: all partitions were added.
  void AddShard(const saved::Shard& shard);

  // Completes the file. It is on the disk then. Called once.
  // Unavailable: the first error of the disk.
  [[nodiscard]] absl::Status Commit();

  const absl::Status& status() const { return file_.status(); }
  uint64_t bytes() const { return bytes_; }
  uint32_t crc32() const { return crc32_; }  // of the bytes so far; 0 with FileCrc::kNone

 private:
  void Append(std::span<const std::byte> bytes);
  void AddRecord(SnapshotRecord kind, std::span<const std::byte> content);
  void AddMessage(SnapshotRecord kind, const google::protobuf::MessageLite& message);

  FileWriter file_;
  uint32_t records_ = 0;
  uint64_t partitions_ = 0;
  uint64_t bytes_ = 0;
  const FileCrc crc_;
  uint32_t crc32_ = 0;
};

// Reads a snapshot piece by piece. What the file says of sizes is compared with the limits and with
// the file before memory is taken. Thread-compatible.
class SnapshotReader final {
 public:
  static constexpr uint64_t kMaxMessageBytes = uint64_t{64} << 20;
  static constexpr uint64_t kMaxPartBytes = uint64_t{128} << 20;

  // NotFound: there is no such file.
  // DataLoss: it is no snapshot, or it is damaged; the message says where.
  [[nodiscard]] static absl::StatusOr<std::unique_ptr<SnapshotReader>> Open(
      const std::string& path);

  const saved::Prologue& prologue() const { return prologue_; }

  // Returns the next partition. Returns nullopt after the last one: the file is whole then.
  // DataLoss: the file is damaged; the message says where.
  [[nodiscard]] absl::StatusOr<std::optional<PartitionImage>> Next();

  // Returns what the shards had. REQUIRES: Next has returned nullopt.
  const std::vector<saved::Shard>& shards() const { return shards_; }

 private:
  struct CloseFile {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  struct Head {
    SnapshotRecord kind = SnapshotRecord::kPrologue;
    uint64_t length = 0;
    uint64_t hash = 0;
  };

  SnapshotReader(std::string path, std::FILE* file, uint64_t bytes)
      : path_(std::move(path)), file_(file), left_(bytes) {}

  absl::Status ReadMagic();
  absl::Status Read(std::span<std::byte> out);
  absl::StatusOr<Head> ReadHead();
  absl::StatusOr<Payload> ReadContent(const Head& head, uint64_t most);
  absl::Status ReadMessage(const Head& head, google::protobuf::MessageLite* message);
  absl::StatusOr<PartitionImage> ReadPartition(const Head& head);
  absl::Status ReadEnd(const Head& head);
  absl::Status Damaged(absl::string_view what) const;

  const std::string path_;
  const std::unique_ptr<std::FILE, CloseFile> file_;
  uint64_t left_;  // bytes of the file that were not read yet
  uint64_t at_ = 0;
  uint32_t records_ = 0;
  uint64_t partitions_ = 0;
  saved::Prologue prologue_;
  std::vector<saved::Shard> shards_;
};

}  // namespace slimps

#endif  // SLIMPS_SERVER_SAVED_SNAPSHOT_FILE_H_
