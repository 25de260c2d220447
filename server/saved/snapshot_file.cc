// SPDX-License-Identifier: Apache-2.0
#include "server/saved/snapshot_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <bit>
#include <cerrno>
#include <cstring>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/base/crc32.h"
#include "proto/base/hash.h"
#include "proto/base/status_macros.h"

namespace slimps {
namespace {

static_assert(std::endian::native == std::endian::little, "numbers are copied as they are");

constexpr std::string_view kMagic("SLPSSNAP\1\0\0\0\0\0\0\0", 16);
constexpr size_t kHeadBytes = 32;
constexpr size_t kHashedBytes = 24;  // of a head

using HeadBytes = std::array<std::byte, kHeadBytes>;

template <typename T>
void Store(T value, size_t at, HeadBytes& head) {
  std::memcpy(head.data() + at, &value, sizeof value);
}

template <typename T>
T Load(const HeadBytes& head, size_t at) {
  T value;
  std::memcpy(&value, head.data() + at, sizeof value);
  return value;
}

uint64_t HashOfHead(const HeadBytes& head) {
  return HashBytes(std::span<const std::byte>(head).first(kHashedBytes));
}

std::span<const std::byte> BytesOf(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

}  // namespace

SnapshotWriter::SnapshotWriter(const std::string& path, const saved::Prologue& prologue,
                               const Disk* disk, FileCrc crc)
    : file_(path, disk), crc_(crc) {
  Append(BytesOf(kMagic));
  AddMessage(SnapshotRecord::kPrologue, prologue);
}

void SnapshotWriter::Append(std::span<const std::byte> bytes) {
  file_.Append({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  bytes_ += bytes.size();
  if (crc_ == FileCrc::kCompute) crc32_ = Crc32(crc32_, bytes);
}

void SnapshotWriter::AddRecord(SnapshotRecord kind, std::span<const std::byte> content) {
  HeadBytes head = {};
  Store(static_cast<uint32_t>(kind), 0, head);
  Store(records_++, 4, head);
  Store(uint64_t{content.size()}, 8, head);
  Store(HashBytes(content), 16, head);
  Store(HashOfHead(head), kHashedBytes, head);
  Append(head);
  Append(content);
}

void SnapshotWriter::AddMessage(SnapshotRecord kind, const google::protobuf::MessageLite& message) {
  AddRecord(kind, BytesOf(message.SerializeAsString()));
}

void SnapshotWriter::AddPartition(const PartitionImage& image) {
  saved::Partition fields = image.fields;
  fields.set_parts(static_cast<uint32_t>(image.parts.size()));
  AddMessage(SnapshotRecord::kPartition, fields);
  for (const Payload& part : image.parts) AddRecord(SnapshotRecord::kPart, part.bytes());
  ++partitions_;
}

void SnapshotWriter::AddShard(const saved::Shard& shard) {
  AddMessage(SnapshotRecord::kShard, shard);
}

absl::Status SnapshotWriter::Commit() {
  saved::Epilogue epilogue;
  epilogue.set_partitions(partitions_);
  AddMessage(SnapshotRecord::kEpilogue, epilogue);
  return file_.Commit();
}

absl::StatusOr<std::unique_ptr<SnapshotReader>> SnapshotReader::Open(const std::string& path) {
  // To open a pipe would wait for its writer.
  const int opened = open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  std::FILE* const file = opened < 0 ? nullptr : fdopen(opened, "rb");
  if (file == nullptr) {
    const int error = errno;
    if (opened >= 0) close(opened);
    const std::string why = absl::StrCat("cannot read ", path, ": ", strerror(error));
    return error == ENOENT ? absl::NotFoundError(why) : absl::DataLossError(why);
  }
  struct stat about = {};
  const bool is_file = fstat(opened, &about) == 0 && S_ISREG(about.st_mode);
  const uint64_t bytes = is_file ? static_cast<uint64_t>(about.st_size) : 0;
  std::unique_ptr<SnapshotReader> reader(new SnapshotReader(path, file, bytes));
  if (!is_file) return reader->Damaged("expected a regular file");
  SLIMPS_RETURN_IF_ERROR(reader->ReadMagic());
  SLIMPS_ASSIGN_OR_RETURN(const Head head, reader->ReadHead());
  if (head.kind != SnapshotRecord::kPrologue) return reader->Damaged("its prologue is missing");
  SLIMPS_RETURN_IF_ERROR(reader->ReadMessage(head, &reader->prologue_));
  return reader;
}

absl::Status SnapshotReader::Damaged(absl::string_view what) const {
  return absl::DataLossError(absl::StrCat("snapshot ", path_, ", before byte ", at_, ": ", what));
}

absl::Status SnapshotReader::Read(std::span<std::byte> out) {
  if (out.size() > left_) {
    return Damaged(
        absl::StrCat("it ends early: expected ", out.size(), " more bytes, got ", left_));
  }
  if (std::fread(out.data(), 1, out.size(), file_.get()) != out.size()) {
    return Damaged(absl::StrCat("cannot read ", out.size(), " bytes"));
  }
  left_ -= out.size();
  at_ += out.size();
  return absl::OkStatus();
}

absl::Status SnapshotReader::ReadMagic() {
  std::array<std::byte, kMagic.size()> magic;
  SLIMPS_RETURN_IF_ERROR(Read(magic));
  if (std::memcmp(magic.data(), kMagic.data(), kMagic.size()) == 0) return absl::OkStatus();
  return Damaged("it does not begin as a snapshot of version 1 does");
}

absl::StatusOr<SnapshotReader::Head> SnapshotReader::ReadHead() {
  HeadBytes bytes;
  SLIMPS_RETURN_IF_ERROR(Read(bytes));
  if (Load<uint64_t>(bytes, kHashedBytes) != HashOfHead(bytes)) {
    return Damaged("the head of a record has another hash than it says");
  }
  const auto index = Load<uint32_t>(bytes, 4);
  if (index != records_) {
    return Damaged(absl::StrCat("expected record ", records_, ", got ", index));
  }
  ++records_;
  return Head{.kind = static_cast<SnapshotRecord>(Load<uint32_t>(bytes, 0)),
              .length = Load<uint64_t>(bytes, 8),
              .hash = Load<uint64_t>(bytes, 16)};
}

absl::StatusOr<Payload> SnapshotReader::ReadContent(const Head& head, uint64_t most) {
  if (head.length > most || head.length > left_) {
    return Damaged(absl::StrCat("a record of ", head.length, " bytes, at most ", most,
                                " are allowed and ", left_, " are left"));
  }
  const auto length = static_cast<size_t>(head.length);
  AlignedBuffer content(length);
  SLIMPS_RETURN_IF_ERROR(Read(content.bytes()));
  if (HashBytes(std::as_const(content).bytes()) != head.hash) {
    return Damaged(absl::StrCat("a record of ", length, " bytes has another hash than it says"));
  }
  return Payload::Adopt(std::move(content), length);
}

absl::Status SnapshotReader::ReadMessage(const Head& head, google::protobuf::MessageLite* message) {
  SLIMPS_ASSIGN_OR_RETURN(const Payload content, ReadContent(head, kMaxMessageBytes));
  if (message->ParseFromArray(content.bytes().data(), static_cast<int>(content.size()))) {
    return absl::OkStatus();
  }
  return Damaged(
      absl::StrCat("a record of ", content.size(), " bytes is no ", message->GetTypeName()));
}

absl::StatusOr<PartitionImage> SnapshotReader::ReadPartition(const Head& head) {
  PartitionImage image;
  SLIMPS_RETURN_IF_ERROR(ReadMessage(head, &image.fields));
  for (uint32_t i = 0; i < image.fields.parts(); ++i) {
    SLIMPS_ASSIGN_OR_RETURN(const Head part, ReadHead());
    if (part.kind != SnapshotRecord::kPart || part.length == 0) {
      return Damaged(absl::StrCat("part ", i + 1, " of ", image.fields.parts(), " is missing"));
    }
    SLIMPS_ASSIGN_OR_RETURN(Payload content, ReadContent(part, kMaxPartBytes));
    image.Add(std::move(content));
  }
  ++partitions_;
  return image;
}

absl::Status SnapshotReader::ReadEnd(const Head& head) {
  saved::Epilogue epilogue;
  SLIMPS_RETURN_IF_ERROR(ReadMessage(head, &epilogue));
  if (epilogue.partitions() != partitions_) {
    return Damaged(
        absl::StrCat("expected ", epilogue.partitions(), " partitions, got ", partitions_));
  }
  if (left_ == 0) return absl::OkStatus();
  return Damaged(absl::StrCat(left_, " bytes follow its end"));
}

absl::StatusOr<std::optional<PartitionImage>> SnapshotReader::Next() {
  for (;;) {
    SLIMPS_ASSIGN_OR_RETURN(const Head head, ReadHead());
    switch (head.kind) {
      case SnapshotRecord::kPartition: {
        if (!shards_.empty()) return Damaged("a partition after a shard");
        SLIMPS_ASSIGN_OR_RETURN(PartitionImage image, ReadPartition(head));
        return std::optional(std::move(image));
      }
      case SnapshotRecord::kShard:
        SLIMPS_RETURN_IF_ERROR(ReadMessage(head, &shards_.emplace_back()));
        break;
      case SnapshotRecord::kEpilogue:
        SLIMPS_RETURN_IF_ERROR(ReadEnd(head));
        return std::nullopt;
      default:
        return Damaged(absl::StrCat("a record of kind ", static_cast<uint32_t>(head.kind)));
    }
  }
}

}  // namespace slimps
