// SPDX-License-Identifier: Apache-2.0
// Checks a parsed header without looking at payload bytes. Pure. All functions are thread-safe.
//
//   SLIMPS_RETURN_IF_ERROR(CheckHeader(header, limits));
//   for (const PayloadClaim& claim : PayloadClaims(header)) ...   // claim.bytes, claim.hash
#ifndef SLIMPS_PROTO_HEADER_CHECK_H_
#define SLIMPS_PROTO_HEADER_CHECK_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "proto/limits.h"
#include "proto/slimps.pb.h"

namespace slimps {

// What an item says about its payload part.
struct PayloadClaim {
  uint64_t key = 0;
  uint32_t partition = 0;
  uint64_t bytes = 0;
  uint64_t hash = 0;  // 0: not checked
  wire::Format format = wire::ABSENT;
};

// Checks every field of the header.
// InvalidArgument: an enum value is unknown; a string is not UTF-8; a string, list, count or size
// is over its limit; the bytes of a raw payload are not elements times size; a number is not
// finite; an item has two fields that exclude each other; or there is no body. The message names
// the field.
[[nodiscard]] absl::Status CheckHeader(const wire::Header& header, const Limits& limits);

// Returns one claim for each item with payload_bytes > 0, in order.
// REQUIRES: CheckHeader returned OK.
[[nodiscard]] std::vector<PayloadClaim> PayloadClaims(const wire::Header& header);

// Returns the name of the body's field, such as "push" or "pull_reply"; "no body" if there is none.
[[nodiscard]] std::string VerbName(const wire::Header& header);

}  // namespace slimps

#endif  // SLIMPS_PROTO_HEADER_CHECK_H_
