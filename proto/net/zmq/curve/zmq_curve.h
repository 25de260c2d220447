// SPDX-License-Identifier: Apache-2.0
// Sets up CURVE on ZeroMQ's sockets: all that passes is encrypted, a server proves to have its key,
// and a client is let in only by a ZapHandler. Thread-compatible, as sockets are.
//
//   SLIMPS_RETURN_IF_ERROR(ServeCurve(router, secret_key));              // before zmq_bind
//   SLIMPS_RETURN_IF_ERROR(UseCurve(dealer, secret_key, server_key));    // before zmq_connect
#ifndef SLIMPS_PROTO_NET_ZMQ_CURVE_ZMQ_CURVE_H_
#define SLIMPS_PROTO_NET_ZMQ_CURVE_ZMQ_CURVE_H_

#include <cstddef>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace slimps {

// What CURVE adds to a part of a message: the command's name, a nonce, flags and a MAC.
inline constexpr size_t kCurvePartBytes = 33;

// Makes `socket` a CURVE server with this secret key. Nobody gets in while the socket's context has
// no ZapHandler.
// InvalidArgument: ZeroMQ refuses a value, or was built without CURVE.
[[nodiscard]] absl::Status ServeCurve(void* socket, const std::string& secret_key);

// Makes `socket` a CURVE client with this secret key, which talks to the owner of `server_key` and
// to nobody else.
// InvalidArgument: as for ServeCurve.
[[nodiscard]] absl::Status UseCurve(void* socket, const std::string& secret_key,
                                    const std::string& server_key);

// Returns the public key of a secret key.
// InvalidArgument: `secret_key` is no key.
[[nodiscard]] absl::StatusOr<std::string> PublicKeyOf(const std::string& secret_key);

}  // namespace slimps

#endif  // SLIMPS_PROTO_NET_ZMQ_CURVE_ZMQ_CURVE_H_
