// SPDX-License-Identifier: Apache-2.0
// The limits of a message. Every socket is set to them. Every header is checked against them before
// anything is allocated by what it declares. A sender is refused by the same numbers.
#ifndef SLIMPS_PROTO_LIMITS_H_
#define SLIMPS_PROTO_LIMITS_H_

#include <cstddef>
#include <cstdint>

namespace slimps {

// Must be raised whenever an older peer would misread a frame.
inline constexpr uint16_t kProtocolVersion = 1;

// Both ends of a connection should have the same limits: the tighter end refuses what the other
// accepts.
struct Limits {
  size_t max_message_bytes = size_t{64} << 20;  // all parts together, prelude included
  size_t max_header_bytes = size_t{1} << 20;    // the header part, prelude included
  size_t max_payload_frames = 4096;
  size_t max_items = 16384;          // entries of any repeated field without a limit of its own
  size_t max_key_name_bytes = 1024;  // of a typed name
  size_t max_row_bytes = size_t{256} << 10;     // of PullItem.rows
  size_t max_state_bytes = size_t{512} << 10;   // of CodecMap.policy_state
  size_t max_report_bytes = size_t{256} << 10;  // of Heartbeat.report
  size_t max_part_bytes = size_t{64} << 10;     // of Part.piece
  size_t max_text_bytes = 16384;                // of any other string
  size_t max_shape_dims = 16;
  size_t max_partitions = 65536;              // of one key
  uint64_t max_elements = uint64_t{1} << 32;  // of one key, and so of one partition
};

inline constexpr Limits kDefaultLimits{};

// The limits of a message that travels in parts (proto/message_parts.h). What a header says of each
// tensor of the largest model that the scheduler accepts is within them.
inline constexpr Limits kWholeLimits{.max_header_bytes = size_t{32} << 20,
                                     .max_items = size_t{1} << 18,
                                     .max_state_bytes = size_t{16} << 20};

// Bounds the update count of an optimizer's state that is put back, so that counting on from there
// cannot wrap around.
inline constexpr uint64_t kMaxUpdates = uint64_t{1} << 62;

}  // namespace slimps

#endif  // SLIMPS_PROTO_LIMITS_H_
