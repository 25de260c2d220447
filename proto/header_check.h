// Checks of a parsed header that need no payload bytes. Pure; thread-safe.
#ifndef SLIMPS_PROTO_HEADER_CHECK_H_
#define SLIMPS_PROTO_HEADER_CHECK_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "proto/limits.h"
#include "proto/slimps.pb.h"

namespace slimps {

// What an item says of the payload part that it takes.
struct PayloadClaim {
  uint64_t key = 0;
  uint32_t partition = 0;
  uint64_t bytes = 0;
  uint64_t hash = 0;  // 0: not checked
  wire::Format format = wire::ABSENT;
};

// InvalidArgument, naming the field: an unknown enum value, a string that is not UTF-8, a string,
// list, count or size over its limit, a raw payload whose bytes are not elements times size, a
// number that is not finite, no body.
[[nodiscard]] absl::Status CheckHeader(const wire::Header& header, const Limits& limits);

// One claim per item with payload_bytes > 0, in order. REQUIRES: CheckHeader was OK.
[[nodiscard]] std::vector<PayloadClaim> PayloadClaims(const wire::Header& header);

// "push", "pull_reply"; "no body" when unset.
[[nodiscard]] std::string VerbName(const wire::Header& header);

}  // namespace slimps

#endif  // SLIMPS_PROTO_HEADER_CHECK_H_
