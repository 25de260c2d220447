// SPDX-License-Identifier: Apache-2.0
// What servers bound of a partition and workers must keep to.
#ifndef SLIMPS_PROTO_PARTITION_LIMITS_H_
#define SLIMPS_PROTO_PARTITION_LIMITS_H_

#include <cstddef>
#include <cstdint>

#include "proto/limits.h"

namespace slimps {

// The largest partition that servers accept, in fp32 bytes: it travels raw in one message, beside a
// header and small items.
inline constexpr auto kMaxPartitionBytes =
    static_cast<int64_t>(kDefaultLimits.max_message_bytes - 2 * kDefaultLimits.max_header_bytes);

// The copies (rows, the optimizer's state) that a shard holds until they are sent. It refuses a new
// pull beyond that.
inline constexpr size_t kMaxCopiedBytes = size_t{64} << 20;

// What a worker asks for at once. A server holds a copy of all that it was asked for, so this stays
// below kMaxCopiedBytes.
inline constexpr size_t kMaxAskedBytes = kMaxCopiedBytes / 2;

// How many rounds of a partition beyond its version are accepted: of workers that run ahead, and by
// a server with snapshots, for workers that send it again what it lacks are not equally far.
inline constexpr uint64_t kRoundsAhead = 2;
inline constexpr uint64_t kReplayedRoundsAhead = 256;

}  // namespace slimps

#endif  // SLIMPS_PROTO_PARTITION_LIMITS_H_
