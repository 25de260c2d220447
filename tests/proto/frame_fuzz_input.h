// SPDX-License-Identifier: Apache-2.0
// Turns a fuzzer's bytes into the parts of a frame, and checks what must hold for any frame.
#ifndef SLIMPS_TESTS_PROTO_FRAME_FUZZ_INPUT_H_
#define SLIMPS_TESTS_PROTO_FRAME_FUZZ_INPUT_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <vector>

#include "proto/frame.h"
#include "proto/message_parts.h"

namespace slimps {

// Returns views of the parts in `input`, which has this layout:
//   byte 0: the number of parts, modulo 8
//   then the length of each part but the last, u16 little-endian, cut to what is left
//   then the parts; the last one takes the rest
inline std::vector<std::span<const std::byte>> PartsOfFuzzInput(std::span<const std::byte> input) {
  std::vector<std::span<const std::byte>> parts;
  if (input.empty()) return parts;
  const size_t count = std::to_integer<size_t>(input[0]) % 8;
  input = input.subspan(1);
  std::vector<size_t> lengths;
  for (size_t i = 0; i + 1 < count && input.size() >= 2; ++i) {
    lengths.push_back(std::to_integer<size_t>(input[0]) | std::to_integer<size_t>(input[1]) << 8);
    input = input.subspan(2);
  }
  for (const size_t length : lengths) {
    const size_t taken = std::min(length, input.size());
    parts.push_back(input.first(taken));
    input = input.subspan(taken);
  }
  if (count > 0) parts.push_back(input);
  return parts;
}

// Aborts if ParseFrame breaks its promise: a header that it accepts must build to a frame that it
// accepts again.
inline void CheckFuzzInput(std::span<const std::byte> input) {
  const std::vector<std::span<const std::byte>> parts = PartsOfFuzzInput(input);
  const absl::StatusOr<wire::Header> header = ParseFrame(parts, kDefaultLimits);
  if (!header.ok()) return;
  Message message;
  message.header = *header;
  for (size_t i = 1; i < parts.size(); ++i) message.payloads.push_back(Payload::Copy(parts[i]));
  const absl::StatusOr<Frame> frame = BuildFrame(std::move(message), kDefaultLimits);
  if (!frame.ok()) std::abort();
  std::vector<std::span<const std::byte>> again;
  for (const Payload& part : *frame) again.push_back(part.bytes());
  if (!ParseFrame(again, kDefaultLimits).ok()) std::abort();
  // Any part may come, and what it completes may be anything.
  if (header->has_part()) (void)PartJoiner().Add(*header);
}

}  // namespace slimps

#endif  // SLIMPS_TESTS_PROTO_FRAME_FUZZ_INPUT_H_
