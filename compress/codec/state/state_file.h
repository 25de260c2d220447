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

#include <cstdint>
#include <iosfwd>
#include <string>

#include "absl/status/statusor.h"
#include "compress/codec/state/codec_state.h"

namespace slimps {

// Writes all states. The stream knows of errors.
void WriteStates(const CodecStates& states, std::ostream& file);

// Reads the states that WriteStates wrote, from a stream of `bytes` bytes. `name` is for messages.
// InvalidArgument: it is something else, or holds numbers that are not finite.
// DataLoss: it is cut off or changed.
[[nodiscard]] absl::StatusOr<CodecStates> ReadStates(const std::string& name, std::istream& file,
                                                     uint64_t bytes);

}  // namespace slimps

#endif  // SLIMPS_COMPRESS_CODEC_STATE_STATE_FILE_H_
