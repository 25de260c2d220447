// SPDX-License-Identifier: Apache-2.0
// Decides what leaves first when several tensors of several rounds wait.
#ifndef SLIMPS_PROTO_NET_SEND_PRIORITY_H_
#define SLIMPS_PROTO_NET_SEND_PRIORITY_H_

#include <algorithm>
#include <cstdint>

namespace slimps {

// Returns the value for SendOptions::priority. An earlier round goes before a later one. Within a
// round the higher `priority` goes first. Rounds come first because the next version of a front
// layer must not delay the present version of the last layer: a worker that waits for the last
// layer could not begin the following round, and the link would then stand idle. From round 1 on
// the result is below 0, which is the priority of messages without a tensor.
constexpr int64_t SendPriority(uint64_t round, int32_t priority) {
  constexpr uint64_t kMaxRounds = uint64_t{1} << 30;  // later rounds count as equal
  return -(static_cast<int64_t>(std::min(round, kMaxRounds)) << 32) + priority;
}

}  // namespace slimps

#endif  // SLIMPS_PROTO_NET_SEND_PRIORITY_H_
