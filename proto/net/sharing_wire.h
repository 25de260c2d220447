// What two processes of one machine say to each other beside frames, so that payloads pass by reference. Each is one
// message part that no frame begins with. Pure; the bytes are in proto/README.md. All functions are thread-safe.
//
//   OFFER       "here is a segment of mine: can you read it?"
//   ACCEPT      "I can": from now on references may be sent to me
//   REFUSE      "I cannot, for this reason": send payloads in-line
//   RETURN      "I have let go of these leases"
//   REFERENCES  goes before a frame whose payloads it stands for, each on a lease
#ifndef SLIMPS_PROTO_NET_SHARING_WIRE_H_
#define SLIMPS_PROTO_NET_SHARING_WIRE_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/base/buffer.h"
#include "proto/limits.h"
#include "proto/net/shared_memory.h"

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
  SegmentName segment;   // of the sender
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
  std::vector<PayloadReference> references;  // REFERENCES: by payload, each once
};

inline constexpr size_t kMaxLeasesPerReturn = 8192;

// Whether a message's first part is one of these, whole or not.
[[nodiscard]] bool IsSharingPart(std::span<const std::byte> part);
// REQUIRES: pids and lists as ParseSharingPart wants them.
[[nodiscard]] Payload BuildSharingPart(const SharingPart& part);
// Untrusted bytes in. InvalidArgument: malformed, or more than the limits allow.
[[nodiscard]] absl::StatusOr<SharingPart> ParseSharingPart(std::span<const std::byte> part,
                                                           const Limits& limits);

}  // namespace slimps

#endif  // SLIMPS_PROTO_NET_SHARING_WIRE_H_
