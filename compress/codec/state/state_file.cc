// SPDX-License-Identifier: Apache-2.0
#include "compress/codec/state/state_file.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <istream>
#include <ostream>
#include <span>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/base/buffer.h"
#include "proto/base/hash.h"
#include "proto/base/status_macros.h"

namespace slimps {
namespace {

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
  uint32_t kind = 0;  // StateKind
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

void WriteState(std::ostream& file, const CodecStateId& id, StateKind kind,
                const AlignedBuffer& values) {
  EntryHeader header;
  header.key = id.first;
  header.partition = id.second;
  header.kind = static_cast<uint32_t>(kind);
  header.elements = values.floats().size();
  header.floats_hash = HashBytes(values.bytes());
  Write(file, header);
  file.write(reinterpret_cast<const char*>(values.bytes().data()),
             static_cast<std::streamsize>(values.size()));
}

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
absl::Status ReadHeader(const std::string& name, Reader& reader, T* header) {
  SLIMPS_RETURN_IF_ERROR(reader.Read(header, sizeof *header));
  if (HeaderHash(*header) == header->header_hash) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat(name, ": a header's checksum disagrees, ", reader.left(),
                                          " bytes before the end"));
}

std::string Where(const std::string& name, const EntryHeader& header) {
  return absl::StrCat(name, ": key ", absl::Hex(header.key), ", partition ", header.partition,
                      ", kind ", header.kind);
}

// Reads an entry's floats and sets `bound` to their largest magnitude.
absl::StatusOr<AlignedBuffer> ReadFloats(const std::string& name, const EntryHeader& header,
                                         Reader& reader, float* bound) {
  if (header.elements == 0 || header.elements > reader.left() / sizeof(float)) {
    return absl::DataLossError(absl::StrCat(Where(name, header), " declares ", header.elements,
                                            " elements, ", reader.left(), " bytes are left"));
  }
  AlignedBuffer buffer = AlignedBuffer::OfFloats(header.elements);
  SLIMPS_RETURN_IF_ERROR(reader.Read(buffer.bytes().data(), buffer.size()));
  if (HashBytes(buffer.bytes()) != header.floats_hash) {
    return absl::DataLossError(absl::StrCat(Where(name, header), ": checksum disagrees"));
  }
  *bound = 0;
  for (float value : buffer.floats()) {
    if (!std::isfinite(value)) {
      return absl::InvalidArgumentError(
          absl::StrCat(Where(name, header), ": expected finite numbers, got ", value));
    }
    *bound = std::max(*bound, std::fabs(value));
  }
  return buffer;
}

}  // namespace

void WriteStates(const CodecStates& states, std::ostream& file) {
  FileHeader file_header;
  for (const auto& [id, state] : states) {
    for (const StateKind kind : kStateKinds) file_header.entries += state.part(kind).there();
  }
  Write(file, file_header);
  for (const auto& [id, state] : states) {
    for (const StateKind kind : kStateKinds) {
      if (state.part(kind).there()) WriteState(file, id, kind, state.part(kind).values);
    }
  }
}

absl::StatusOr<CodecStates> ReadStates(const std::string& name, std::istream& file,
                                       uint64_t bytes) {
  Reader reader(name, file, bytes);
  FileHeader file_header;
  SLIMPS_RETURN_IF_ERROR(ReadHeader(name, reader, &file_header));
  if (std::memcmp(file_header.magic, FileHeader().magic, sizeof file_header.magic) != 0 ||
      file_header.version != FileHeader().version || file_header.zero != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, ": expected codec states, version ", FileHeader().version));
  }
  CodecStates states;
  std::tuple<KeyId, uint32_t, uint32_t> last;
  for (uint64_t i = 0; i < file_header.entries; ++i) {
    EntryHeader header;
    SLIMPS_RETURN_IF_ERROR(ReadHeader(name, reader, &header));
    const std::tuple id(header.key, header.partition, header.kind);
    if (header.kind > static_cast<uint32_t>(StateKind::kMomentum) || (i > 0 && id <= last)) {
      return absl::InvalidArgumentError(absl::StrCat(Where(name, header), ": out of order"));
    }
    last = id;
    CodecState& state = states[CodecStateId(header.key, header.partition)];
    // The residual, if there is one, comes first and says how long the momentum must be.
    if (!state.part(StateKind::kResidual).there()) state = CodecState(header.elements);
    if (state.elements() != header.elements) {
      return absl::InvalidArgumentError(absl::StrCat(Where(name, header), ": expected ",
                                                     state.elements(), " elements, got ",
                                                     header.elements));
    }
    CodecState::Part& part = state.part(static_cast<StateKind>(header.kind));
    SLIMPS_ASSIGN_OR_RETURN(part.values, ReadFloats(name, header, reader, &part.bound));
  }
  if (reader.left() != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, ": ", reader.left(), " bytes after the last entry"));
  }
  return states;
}

}  // namespace slimps
