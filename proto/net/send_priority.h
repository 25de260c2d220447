// What leaves first when several tensors of several rounds wait.
#ifndef SLIMPS_PROTO_NET_SEND_PRIORITY_H_
#define SLIMPS_PROTO_NET_SEND_PRIORITY_H_

#include <algorithm>
#include <cstdint>

namespace slimps {

// For SendOptions::priority: an earlier round before a later one, within a round the higher priority first. A front
// layer's next version must not delay the last layer's present one: whoever waits for that could not begin the round
// after it, and the link would stand idle then. Below 0, the priority of what carries no tensor, for every round from 1 on.
constexpr int64_t SendPriority(uint64_t round, int32_t priority) {
  constexpr uint64_t kMostRounds = uint64_t{1} << 30;  // those after it count as equal
  return -(static_cast<int64_t>(std::min(round, kMostRounds)) << 32) + priority;
}

}  // namespace slimps

#endif  // SLIMPS_PROTO_NET_SEND_PRIORITY_H_
