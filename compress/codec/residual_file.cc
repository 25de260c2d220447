// ResidualStore on disk, little-endian:
//   "SLIMPSRE"  uint32 version 1  uint32 0  uint64 entries
//   per entry, rising (key, partition): uint64 key  uint32 partition  uint32 0  uint64 elements  uint64 XXH3  fp32...
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "compress/codec/residual.h"
#include "proto/base/hash.h"
#include "proto/base/status_macros.h"

namespace slimps {
namespace {

struct FileHeader {
  char magic[8] = {'S', 'L', 'I', 'M', 'P', 'S', 'R', 'E'};
  uint32_t version = 1;
  uint32_t zero = 0;
  uint64_t entries = 0;
};
static_assert(sizeof(FileHeader) == 24);

struct EntryHeader {
  uint64_t key = 0;
  uint32_t partition = 0;
  uint32_t zero = 0;
  uint64_t elements = 0;
  uint64_t hash = 0;
};
static_assert(sizeof(EntryHeader) == 32);

template <typename T>
void Write(std::ofstream& file, const T& header) {
  file.write(reinterpret_cast<const char*>(&header), sizeof header);
}

// What is left of a file; a read that does not fit is refused before anything is allocated.
// Thread-compatible.
class Reader final {
 public:
  explicit Reader(const std::string& path) : path_(path), file_(path, std::ios::binary) {
    file_.seekg(0, std::ios::end);
    left_ = file_ ? static_cast<uint64_t>(file_.tellg()) : 0;
    file_.seekg(0);
  }

  bool is_open() const { return file_.is_open() && file_.good(); }
  uint64_t left() const { return left_; }

  absl::Status Read(void* to, uint64_t bytes) {
    if (bytes > left_ || !file_.read(static_cast<char*>(to), static_cast<std::streamsize>(bytes))) {
      return absl::DataLossError(
          absl::StrCat(path_, ": cut off, expected ", bytes, " more bytes, got ", left_));
    }
    left_ -= bytes;
    return absl::OkStatus();
  }

 private:
  const std::string path_;
  std::ifstream file_;
  uint64_t left_ = 0;
};

absl::StatusOr<AlignedBuffer> ReadFloats(const std::string& path, const EntryHeader& header,
                                         Reader& reader) {
  if (header.elements > reader.left() / sizeof(float)) {
    return absl::DataLossError(absl::StrCat(path, ": key ", absl::Hex(header.key), " declares ",
                                            header.elements, " elements, only ", reader.left(),
                                            " bytes are left"));
  }
  AlignedBuffer buffer = AlignedBuffer::OfFloats(header.elements);
  SLIMPS_RETURN_IF_ERROR(reader.Read(buffer.bytes().data(), buffer.size()));
  if (HashBytes(buffer.bytes()) != header.hash) {
    return absl::DataLossError(
        absl::StrCat(path, ": key ", absl::Hex(header.key), ": checksum disagrees"));
  }
  for (float value : buffer.floats()) {
    if (!std::isfinite(value)) {
      return absl::InvalidArgumentError(absl::StrCat(path, ": key ", absl::Hex(header.key),
                                                     ": expected finite numbers, got ", value));
    }
  }
  return buffer;
}

}  // namespace

absl::Status ResidualStore::Save(const std::string& path) const {
  MutexLock lock(&mutex_);
  const std::string unfinished = absl::StrCat(path, ".unfinished");
  std::ofstream file(unfinished, std::ios::binary | std::ios::trunc);
  FileHeader file_header;
  file_header.entries = residuals_.size();
  Write(file, file_header);
  for (const auto& [id, buffer] : residuals_) {
    EntryHeader header;
    header.key = id.first;
    header.partition = id.second;
    header.elements = buffer.floats().size();
    header.hash = HashBytes(buffer.bytes());
    Write(file, header);
    file.write(reinterpret_cast<const char*>(buffer.bytes().data()),
               static_cast<std::streamsize>(buffer.size()));
  }
  file.close();
  if (!file || std::rename(unfinished.c_str(), path.c_str()) != 0) {
    return absl::UnavailableError(
        absl::StrCat("residuals: cannot write ", path, ": ", std::strerror(errno)));
  }
  return absl::OkStatus();
}

absl::Status ResidualStore::Load(const std::string& path) {
  Reader reader(path);
  if (!reader.is_open()) return absl::NotFoundError(absl::StrCat("residuals: cannot open ", path));
  FileHeader file_header;
  SLIMPS_RETURN_IF_ERROR(reader.Read(&file_header, sizeof file_header));
  if (std::memcmp(file_header.magic, FileHeader().magic, sizeof file_header.magic) != 0 ||
      file_header.version != FileHeader().version || file_header.zero != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": expected a residual file, version ", FileHeader().version));
  }
  std::map<Id, AlignedBuffer> loaded;
  for (uint64_t i = 0; i < file_header.entries; ++i) {
    EntryHeader header;
    SLIMPS_RETURN_IF_ERROR(reader.Read(&header, sizeof header));
    const Id id(header.key, header.partition);
    if (header.zero != 0 || (!loaded.empty() && id <= loaded.rbegin()->first)) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, ": entry ", i, ", key ", absl::Hex(header.key), ": out of order"));
    }
    SLIMPS_ASSIGN_OR_RETURN(loaded[id], ReadFloats(path, header, reader));
  }
  if (reader.left() != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": ", reader.left(), " bytes after the last entry"));
  }
  MutexLock lock(&mutex_);
  residuals_ = std::move(loaded);
  return absl::OkStatus();
}

}  // namespace slimps
