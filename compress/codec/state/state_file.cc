// SPDX-License-Identifier: Apache-2.0
// A StateStore's content on disk and in memory, little-endian:
//
//   "SLIMPSST"  uint32 version 2  uint32 0  uint64 entries  uint64 XXH3 of the header before it
//   per entry, rising (key, partition, kind):
//     uint64 key  uint32 partition  uint32 kind  uint64 elements
//     uint64 XXH3 of the floats  uint64 XXH3 of the header before it  fp32...
//
// kind: 0 residual, 1 momentum.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <sstream>
#include <streambuf>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "compress/codec/state/state_store.h"
#include "proto/base/file.h"
#include "proto/base/hash.h"
#include "proto/base/status_macros.h"

namespace slimps {
namespace {

enum Kind : uint32_t { kResidual = 0, kMomentum = 1 };

struct FileHeader {
  char magic[8] = {'S', 'L', 'I', 'M', 'P', 'S', 'S', 'T'};
  uint32_t version = 2;
  uint32_t zero = 0;
  uint64_t entries = 0;
  uint64_t header_hash = 0;
};
static_assert(sizeof(FileHeader) == 32);

struct EntryHeader {
  uint64_t key = 0;
  uint32_t partition = 0;
  uint32_t kind = kResidual;
  uint64_t elements = 0;
  uint64_t floats_hash = 0;
  uint64_t header_hash = 0;
};
static_assert(sizeof(EntryHeader) == 40);

// Returns the hash of all fields before the last one, which holds it.
template <typename T>
uint64_t HeaderHash(const T& header) {
  return HashBytes(std::as_bytes(std::span(&header, 1)).first(sizeof header - sizeof(uint64_t)));
}

template <typename T>
void Write(std::ostream& file, T header) {
  header.header_hash = HeaderHash(header);
  file.write(reinterpret_cast<const char*>(&header), sizeof header);
}

void WriteState(std::ostream& file, KeyId key, uint32_t partition, Kind kind,
                const AlignedBuffer& values) {
  EntryHeader header;
  header.key = key;
  header.partition = partition;
  header.kind = kind;
  header.elements = values.floats().size();
  header.floats_hash = HashBytes(values.bytes());
  Write(file, header);
  file.write(reinterpret_cast<const char*>(values.bytes().data()),
             static_cast<std::streamsize>(values.size()));
}

// Lets a stream read from memory without a copy. Thread-compatible. The memory outlives it.
class MemoryBuffer final : public std::streambuf {
 public:
  explicit MemoryBuffer(std::string_view content) {
    char* const begin = const_cast<char*>(content.data());  // never written to
    setg(begin, begin, begin + content.size());
  }
};

// Reads a stream of `bytes` bytes and counts how many are left, so that a declared size meets its
// limit before anything is allocated. Thread-compatible. The stream outlives it.
class Reader final {
 public:
  Reader(const std::string& name, std::istream& file, uint64_t bytes)
      : name_(name), file_(file), left_(bytes) {}

  uint64_t left() const { return left_; }

  absl::Status Read(void* to, uint64_t bytes) {
    if (bytes > left_ || !file_.read(static_cast<char*>(to), static_cast<std::streamsize>(bytes))) {
      return absl::DataLossError(
          absl::StrCat(name_, ": cut off, expected ", bytes, " more bytes, got ", left_));
    }
    left_ -= bytes;
    return absl::OkStatus();
  }

 private:
  const std::string name_;
  std::istream& file_;
  uint64_t left_ = 0;
};

template <typename T>
absl::Status ReadHeader(const std::string& path, Reader& reader, T* header) {
  SLIMPS_RETURN_IF_ERROR(reader.Read(header, sizeof *header));
  if (HeaderHash(*header) == header->header_hash) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat(path, ": a header's checksum disagrees, ", reader.left(),
                                          " bytes before the end"));
}

std::string Where(const std::string& path, const EntryHeader& header) {
  return absl::StrCat(path, ": key ", absl::Hex(header.key), ", partition ", header.partition,
                      ", kind ", header.kind);
}

// Reads an entry's floats and sets `bound` to their largest magnitude.
absl::StatusOr<AlignedBuffer> ReadFloats(const std::string& path, const EntryHeader& header,
                                         Reader& reader, float* bound) {
  if (header.elements > reader.left() / sizeof(float)) {
    return absl::DataLossError(absl::StrCat(Where(path, header), " declares ", header.elements,
                                            " elements, only ", reader.left(), " bytes are left"));
  }
  AlignedBuffer buffer = AlignedBuffer::OfFloats(header.elements);
  SLIMPS_RETURN_IF_ERROR(reader.Read(buffer.bytes().data(), buffer.size()));
  if (HashBytes(buffer.bytes()) != header.floats_hash) {
    return absl::DataLossError(absl::StrCat(Where(path, header), ": checksum disagrees"));
  }
  *bound = 0;
  for (float value : buffer.floats()) {
    if (!std::isfinite(value)) {
      return absl::InvalidArgumentError(
          absl::StrCat(Where(path, header), ": expected finite numbers, got ", value));
    }
    *bound = std::max(*bound, std::fabs(value));
  }
  return buffer;
}

}  // namespace

void StateStore::WriteTo(std::ostream& file) const {
  FileHeader file_header;
  for (const auto& [id, state] : states_) {
    file_header.entries +=
        (state.residual_.there() ? 1u : 0u) + (state.momentum_.there() ? 1u : 0u);
  }
  Write(file, file_header);
  for (const auto& [id, state] : states_) {
    if (state.residual_.there()) {
      WriteState(file, id.first, id.second, kResidual, state.residual_.values);
    }
    if (state.momentum_.there()) {
      WriteState(file, id.first, id.second, kMomentum, state.momentum_.values);
    }
  }
}

absl::Status StateStore::Save(const std::string& path) const {
  MutexLock lock(&mutex_);
  FileWriter writer(path);
  FileStreamBuffer buffer(&writer);
  std::ostream file(&buffer);
  WriteTo(file);
  file.flush();
  const absl::Status written = writer.Commit();
  if (written.ok()) return written;
  return absl::Status(written.code(), absl::StrCat("codec states: ", written.message()));
}

std::string StateStore::Serialize() const {
  MutexLock lock(&mutex_);
  std::ostringstream file;
  // Else the stream swallows a std::bad_alloc that is thrown while it grows, and cuts off its
  // output.
  file.exceptions(std::ios::badbit);
  WriteTo(file);
  return std::move(file).str();
}

absl::Status StateStore::Load(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  file.seekg(0, std::ios::end);
  if (!file.good()) {
    return absl::NotFoundError(absl::StrCat("codec states: cannot open ", path));
  }
  const auto bytes = static_cast<uint64_t>(file.tellg());
  file.seekg(0);
  return ReadFrom(path, file, bytes);
}

absl::Status StateStore::Parse(std::string_view content) {
  MemoryBuffer buffer(content);
  std::istream file(&buffer);
  return ReadFrom("codec states", file, content.size());
}

absl::Status StateStore::ReadFrom(const std::string& path, std::istream& file, uint64_t bytes) {
  Reader reader(path, file, bytes);
  FileHeader file_header;
  SLIMPS_RETURN_IF_ERROR(ReadHeader(path, reader, &file_header));
  if (std::memcmp(file_header.magic, FileHeader().magic, sizeof file_header.magic) != 0 ||
      file_header.version != FileHeader().version || file_header.zero != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": expected codec states, version ", FileHeader().version));
  }
  States loaded;
  std::tuple<KeyId, uint32_t, uint32_t> last;
  for (uint64_t i = 0; i < file_header.entries; ++i) {
    EntryHeader header;
    SLIMPS_RETURN_IF_ERROR(ReadHeader(path, reader, &header));
    const std::tuple id(header.key, header.partition, header.kind);
    if (header.kind > kMomentum || (i > 0 && id <= last)) {
      return absl::InvalidArgumentError(absl::StrCat(Where(path, header), ": out of order"));
    }
    last = id;
    CodecState& state = loaded[Id(header.key, header.partition)];
    if (header.kind == kMomentum && state.residual_.there() && state.elements_ != header.elements) {
      return absl::InvalidArgumentError(absl::StrCat(
          Where(path, header), ": expected ", state.elements_, " elements, got ", header.elements));
    }
    state.elements_ = header.elements;
    CodecState::Part& part = header.kind == kResidual ? state.residual_ : state.momentum_;
    SLIMPS_ASSIGN_OR_RETURN(part.values, ReadFloats(path, header, reader, &part.bound));
  }
  if (reader.left() != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": ", reader.left(), " bytes after the last entry"));
  }
  MutexLock lock(&mutex_);
  states_ = std::move(loaded);
  return absl::OkStatus();
}

}  // namespace slimps
