// SPDX-License-Identifier: Apache-2.0
// What two processes of one machine say to each other beside frames, so that payloads pass by
// reference. Each kind is one message part. No frame begins with these bytes. proto/README.md gives
// their layout. Pure. All functions are thread-safe.
//
//   OFFER       "Here is a segment of mine: can you read it?"
//   ACCEPT      "I can." References may be sent to me from now on.
//   REFUSE      "I cannot, for this reason." Send payloads in-line.
//   RETURN      "I have let go of these leases."
//   REFERENCES  goes before a frame. Each reference stands for one of its payloads, on a lease.
#ifndef SLIMPS_PROTO_NET_SHARED_SHARING_WIRE_H_
#define SLIMPS_PROTO_NET_SHARED_SHARING_WIRE_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/base/buffer.h"
#include "proto/limits.h"
#include "proto/net/shared/shared_memory.h"

namespace slimps {

enum class SharingKind : uint16_t {
  kOffer = 1,
  kAccept = 2,
  kRefuse = 3,
  kReturn = 4,
  kReferences = 5,
};

struct PayloadReference {
  uint32_t payload = 0;  // its number among the frame's payloads
  SegmentName segment;   // the sender's
  uint64_t offset = 0;
  uint64_t bytes = 0;
  uint64_t lease = 0;
};

struct SharingPart {
  SharingKind kind = SharingKind::kOffer;
  uint64_t pid = 0;                          // the sender's
  SegmentName segment;                       // OFFER
  std::string reason;                        // REFUSE
  std::vector<uint64_t> leases;              // RETURN
  std::vector<PayloadReference> references;  // REFERENCES: in order of payload, each at most once
};

inline constexpr size_t kMaxLeasesPerReturn = 8192;

// True if a message's first part begins as one of these. It may still be malformed.
[[nodiscard]] bool IsSharingPart(std::span<const std::byte> part);

// Returns the part as bytes.
// REQUIRES: the pid and the lists satisfy what ParseSharingPart checks.
[[nodiscard]] Payload BuildSharingPart(const SharingPart& part);

// Parses untrusted bytes.
// InvalidArgument: the part is malformed, or holds more than the limits allow.
[[nodiscard]] absl::StatusOr<SharingPart> ParseSharingPart(std::span<const std::byte> part,
                                                           const Limits& limits);

}  // namespace slimps

#endif  // SLIMPS_PROTO_NET_SHARED_SHARING_WIRE_H_
