// SPDX-License-Identifier: Apache-2.0
#include "proto/net/zmq/curve/zmq_curve.h"

#include <zmq.h>

#include <cstdint>

#include "absl/strings/str_cat.h"
#include "proto/base/status_macros.h"
#include "proto/net/identity/node_keys.h"
#include "proto/net/zmq/zmq_socket.h"

// Debian's zmq.h lists it among the drafts, and Debian's library has it.
#ifndef ZMQ_ZAP_ENFORCE_DOMAIN
#define ZMQ_ZAP_ENFORCE_DOMAIN 93
#endif

namespace slimps {
namespace {

constexpr size_t kTextBytes = 41;  // a key in Z85, and its terminating zero

// The error does not show the value, which may be a secret.
absl::Status SetBytes(void* socket, int option, const std::string& value, const char* what) {
  if (zmq_setsockopt(socket, option, value.data(), value.size()) == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("ZeroMQ refuses ", what, ": ", zmq_strerror(zmq_errno())));
}

}  // namespace

absl::Status ServeCurve(void* socket, const std::string& secret_key) {
  SLIMPS_RETURN_IF_ERROR(SetSocketOption(socket, ZMQ_CURVE_SERVER, 1, "CURVE"));
  SLIMPS_RETURN_IF_ERROR(SetBytes(socket, ZMQ_CURVE_SECRETKEY, secret_key, "the secret key"));
  // Without a domain ZeroMQ would ask no handler and let everybody in. Without the second option it
  // would do so where no handler answers.
  SLIMPS_RETURN_IF_ERROR(SetBytes(socket, ZMQ_ZAP_DOMAIN, "slimps", "the ZAP domain"));
  return SetSocketOption(socket, ZMQ_ZAP_ENFORCE_DOMAIN, 1, "enforcing the ZAP domain");
}

absl::Status UseCurve(void* socket, const std::string& secret_key, const std::string& server_key) {
  SLIMPS_ASSIGN_OR_RETURN(const std::string public_key, PublicKeyOf(secret_key));
  SLIMPS_RETURN_IF_ERROR(SetBytes(socket, ZMQ_CURVE_SERVERKEY, server_key, "the server's key"));
  SLIMPS_RETURN_IF_ERROR(SetBytes(socket, ZMQ_CURVE_PUBLICKEY, public_key, "the public key"));
  return SetBytes(socket, ZMQ_CURVE_SECRETKEY, secret_key, "the secret key");
}

absl::StatusOr<std::string> PublicKeyOf(const std::string& secret_key) {
  char secret_text[kTextBytes] = {};
  char public_text[kTextBytes] = {};
  std::string key(kNodeKeyBytes, '\0');
  auto* const bytes = reinterpret_cast<uint8_t*>(key.data());
  const bool derived =
      secret_key.size() == kNodeKeyBytes &&
      zmq_z85_encode(secret_text, reinterpret_cast<const uint8_t*>(secret_key.data()),
                     kNodeKeyBytes) != nullptr &&
      zmq_curve_public(public_text, secret_text) == 0 &&
      zmq_z85_decode(bytes, public_text) != nullptr;
  if (!derived) return absl::InvalidArgumentError("ZeroMQ derives no public key: no CURVE");
  return key;
}

}  // namespace slimps
