// SPDX-License-Identifier: Apache-2.0
#include "compress/codec/state/state_file.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
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
void AppendHeader(T header, std::string& content) {
  header.header_hash = HeaderHash(header);
  content.append(reinterpret_cast<const char*>(&header), sizeof header);
}

void AppendState(const CodecStateId& id, StateKind kind, const AlignedBuffer& values,
                 std::string& content) {
  EntryHeader header;
  header.key = id.first;
  header.partition = id.second;
  header.kind = static_cast<uint32_t>(kind);
  header.elements = values.floats().size();
  header.floats_hash = HashBytes(values.bytes());
  AppendHeader(header, content);
  content.append(reinterpret_cast<const char*>(values.bytes().data()), values.size());
}

// Takes the first `bytes` bytes off `left`.
absl::StatusOr<std::string_view> Take(uint64_t bytes, std::string_view& left) {
  if (bytes > left.size()) {
    return absl::DataLossError(
        absl::StrCat("codec states: cut off, expected ", bytes, " more bytes, got ", left.size()));
  }
  const std::string_view taken = left.substr(0, bytes);
  left.remove_prefix(bytes);
  return taken;
}

template <typename T>
absl::StatusOr<T> TakeHeader(std::string_view& left) {
  SLIMPS_ASSIGN_OR_RETURN(const std::string_view bytes, Take(sizeof(T), left));
  T header;
  std::memcpy(&header, bytes.data(), sizeof header);
  if (HeaderHash(header) == header.header_hash) return header;
  return absl::DataLossError(absl::StrCat("codec states: a header's checksum disagrees, ",
                                          left.size(), " bytes before the end"));
}

std::string Where(const EntryHeader& header) {
  return absl::StrCat("codec states: key ", absl::Hex(header.key), ", partition ", header.partition,
                      ", kind ", header.kind);
}

// Takes an entry's floats off `left` and sets `bound` to their largest magnitude.
absl::StatusOr<AlignedBuffer> TakeFloats(const EntryHeader& header, std::string_view& left,
                                         float* bound) {
  // A declared size meets its limit before anything is allocated.
  if (header.elements == 0 || header.elements > left.size() / sizeof(float)) {
    return absl::DataLossError(absl::StrCat(Where(header), " declares ", header.elements,
                                            " elements, ", left.size(), " bytes are left"));
  }
  AlignedBuffer buffer = AlignedBuffer::OfFloats(header.elements);
  SLIMPS_ASSIGN_OR_RETURN(const std::string_view bytes, Take(buffer.size(), left));
  std::memcpy(buffer.bytes().data(), bytes.data(), bytes.size());
  if (HashBytes(buffer.bytes()) != header.floats_hash) {
    return absl::DataLossError(absl::StrCat(Where(header), ": checksum disagrees"));
  }
  *bound = 0;
  for (float value : buffer.floats()) {
    if (!std::isfinite(value)) {
      return absl::InvalidArgumentError(
          absl::StrCat(Where(header), ": expected finite numbers, got ", value));
    }
    *bound = std::max(*bound, std::fabs(value));
  }
  return buffer;
}

}  // namespace

std::string BuildStates(const CodecStates& states) {
  FileHeader file_header;
  size_t bytes = sizeof file_header;
  for (const auto& [id, state] : states) {
    for (const StateKind kind : kStateKinds) {
      if (!state.part(kind).there()) continue;
      ++file_header.entries;
      bytes += sizeof(EntryHeader) + state.part(kind).values.size();
    }
  }
  std::string content;
  content.reserve(bytes);
  AppendHeader(file_header, content);
  for (const auto& [id, state] : states) {
    for (const StateKind kind : kStateKinds) {
      if (state.part(kind).there()) AppendState(id, kind, state.part(kind).values, content);
    }
  }
  return content;
}

absl::StatusOr<CodecStates> ParseStates(std::string_view content) {
  std::string_view left = content;
  SLIMPS_ASSIGN_OR_RETURN(const FileHeader file_header, TakeHeader<FileHeader>(left));
  if (std::memcmp(file_header.magic, FileHeader().magic, sizeof file_header.magic) != 0 ||
      file_header.version != FileHeader().version || file_header.zero != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("codec states: expected codec states, version ", FileHeader().version));
  }
  CodecStates states;
  std::tuple<KeyId, uint32_t, uint32_t> last;
  for (uint64_t i = 0; i < file_header.entries; ++i) {
    SLIMPS_ASSIGN_OR_RETURN(const EntryHeader header, TakeHeader<EntryHeader>(left));
    const std::tuple id(header.key, header.partition, header.kind);
    if (header.kind > static_cast<uint32_t>(StateKind::kMomentum) || (i > 0 && id <= last)) {
      return absl::InvalidArgumentError(absl::StrCat(Where(header), ": out of order"));
    }
    last = id;
    CodecState& state = states[CodecStateId(header.key, header.partition)];
    // The residual, if there is one, comes first and says how long the momentum must be.
    if (!state.part(StateKind::kResidual).there()) state = CodecState(header.elements);
    if (state.elements() != header.elements) {
      return absl::InvalidArgumentError(absl::StrCat(Where(header), ": expected ", state.elements(),
                                                     " elements, got ", header.elements));
    }
    CodecState::Part& part = state.part(static_cast<StateKind>(header.kind));
    SLIMPS_ASSIGN_OR_RETURN(part.values, TakeFloats(header, left, &part.bound));
  }
  if (!left.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("codec states: ", left.size(), " bytes after the last entry"));
  }
  return states;
}

}  // namespace slimps
