// SPDX-License-Identifier: Apache-2.0
// The keys by which nodes know each other, as people keep them: files and hexadecimal text. A key
// is 32 bytes of Curve25519, for CURVE (proto/net/zmq/curve). Thread-safe.
//
//   SLIMPS_ASSIGN_OR_RETURN(options.secret_key, ReadKeyFile("worker1.key"));
//   SLIMPS_ASSIGN_OR_RETURN(const std::vector<AllowedNode> nodes, ReadAllowFile("allow"));
#ifndef SLIMPS_PROTO_NET_IDENTITY_NODE_KEYS_H_
#define SLIMPS_PROTO_NET_IDENTITY_NODE_KEYS_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/slimps.pb.h"

namespace slimps {

inline constexpr size_t kNodeKeyBytes = 32;

// What a daemon logs when it starts with --insecure and without keys.
inline constexpr char kInsecureWarning[] =
    "--insecure: this job has no keys, so whoever reaches it can read it, join it and end it";

// The node whose key this is, and no other.
struct AllowedNode {
  wire::Role role = wire::ROLE_UNSPECIFIED;
  uint32_t rank = 0;
  std::string public_key;  // kNodeKeyBytes
};

// Returns the 32 bytes of a key that is written as 64 hexadecimal digits.
// InvalidArgument: the text is anything else. The message does not quote it: it may be a secret.
[[nodiscard]] absl::StatusOr<std::string> ParseNodeKey(std::string_view text);

// Returns the secret key in a file: a line "secret HEX" beside comments ("# ...").
// InvalidArgument: the file has other lines, or other users can read it.
// NotFound: there is no such file.
[[nodiscard]] absl::StatusOr<std::string> ReadKeyFile(const std::string& path);

// Returns the nodes of a file with a line "ROLE RANK HEX" for each node, beside comments. The
// scheduler's line, "scheduler 0 HEX", is for people and is left out.
// InvalidArgument: a line is anything else, or a node or a key has two lines.
// NotFound: there is no such file.
[[nodiscard]] absl::StatusOr<std::vector<AllowedNode>> ReadAllowFile(const std::string& path);

}  // namespace slimps

#endif  // SLIMPS_PROTO_NET_IDENTITY_NODE_KEYS_H_
