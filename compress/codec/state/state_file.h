// SPDX-License-Identifier: Apache-2.0
// The states of a worker's codecs as bytes, little-endian:
//
//   "SLIMPSST"  uint32 version 2  uint32 0  uint64 entries  uint64 XXH3 of the header before it
//   per entry, rising (key, partition, kind):
//     uint64 key  uint32 partition  uint32 kind  uint64 elements
//     uint64 XXH3 of the floats  uint64 XXH3 of the header before it  fp32...
//
// kind: 0 residual, 1 momentum. Pure functions.
#ifndef SLIMPS_COMPRESS_CODEC_STATE_STATE_FILE_H_
#define SLIMPS_COMPRESS_CODEC_STATE_STATE_FILE_H_

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "compress/codec/state/codec_state.h"

namespace slimps {

// Returns all states as bytes. Throws std::bad_alloc.
std::string BuildStates(const CodecStates& states);

// Reads the states that BuildStates wrote.
// InvalidArgument: it is something else, or holds numbers that are not finite.
// DataLoss: it is cut off or changed.
[[nodiscard]] absl::StatusOr<CodecStates> ParseStates(std::string_view content);

}  // namespace slimps

#endif  // SLIMPS_COMPRESS_CODEC_STATE_STATE_FILE_H_
