// SPDX-License-Identifier: Apache-2.0
// Short messages that the scheduler sends: request id and body. Thread-safe.
#ifndef SLIMPS_SCHEDULER_REPLIES_H_
#define SLIMPS_SCHEDULER_REPLIES_H_

#include <cstdint>

#include "absl/status/status.h"
#include "proto/slimps.pb.h"

namespace slimps {

// Asks a member to show at once that it lives.
[[nodiscard]] wire::Header Probe();

[[nodiscard]] wire::Header ErrorReply(const absl::Status& status, uint64_t request_id);
[[nodiscard]] wire::Header AckReply(uint64_t request_id);

}  // namespace slimps

#endif  // SLIMPS_SCHEDULER_REPLIES_H_
