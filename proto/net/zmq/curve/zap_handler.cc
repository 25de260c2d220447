// SPDX-License-Identifier: Apache-2.0
#include "proto/net/zmq/curve/zap_handler.h"

#include <zmq.h>

#include <optional>
#include <string>
#include <system_error>
#include <vector>

#include "absl/strings/str_cat.h"
#include "proto/base/status_macros.h"

namespace slimps {
namespace {

constexpr char kAddress[] = "inproc://zeromq.zap.01";
constexpr char kVersion[] = "1.0";
// version, request id, domain, address, routing id, mechanism, credentials
constexpr size_t kRequestParts = 7;

using Parts = std::vector<std::string>;

// Waits for a request. Returns nullopt once the context ends.
std::optional<Parts> ReceiveParts(void* socket) {
  Parts parts;
  for (bool more = true; more;) {
    ZmqPart part;
    if (!part.Await(socket)) return std::nullopt;
    more = part.more();
    parts.emplace_back(reinterpret_cast<const char*>(part.bytes().data()), part.bytes().size());
  }
  return parts;
}

Parts AnswerTo(const Parts& request, AllowedKeys& allowed) {
  const std::string id = request.size() > 1 ? request[1] : "";
  if (request.size() != kRequestParts || request[0] != kVersion || request[5] != "CURVE") {
    return {kVersion, id, "400", "expected CURVE", "", ""};
  }
  const std::optional<std::string> owner = allowed.OwnerOf(request[6]);
  // The client is told nothing, and tries again once this node's socket is closed.
  if (!owner.has_value()) return {kVersion, id, "300", "this node stops", "", ""};
  if (owner->empty()) return {kVersion, id, "400", "this key may not connect", "", ""};
  return {kVersion, id, "200", "", *owner, ""};
}

}  // namespace

ZapHandler::~ZapHandler() {
  if (thread_.joinable()) thread_.Join();
}

absl::Status ZapHandler::Start(void* context) {
  ZmqSocket socket(zmq_socket(context, ZMQ_REP));
  if (socket == nullptr || zmq_bind(socket.get(), kAddress) != 0) {
    return absl::ResourceExhaustedError(
        absl::StrCat("ZeroMQ gives no socket to check keys by: ", zmq_strerror(zmq_errno())));
  }
  SLIMPS_RETURN_IF_ERROR(SetSocketOption(socket.get(), ZMQ_LINGER, 0, "linger"));
  try {
    auto run = [this, shared = std::make_shared<ZmqSocket>(std::move(socket))] {
      Run(std::move(*shared));
    };
    thread_ = Thread("slimps-zap", std::move(run));
  } catch (const std::system_error& error) {
    return absl::ResourceExhaustedError(absl::StrCat("no thread to check keys: ", error.what()));
  }
  return absl::OkStatus();
}

void ZapHandler::Run(ZmqSocket socket) const {
  while (const std::optional<Parts> request = ReceiveParts(socket.get())) {
    const Parts answer = AnswerTo(*request, *allowed_);
    for (size_t i = 0; i < answer.size(); ++i) {
      // An answer that cannot be sent is to a client that has gone.
      const int more = i + 1 < answer.size() ? ZMQ_SNDMORE : 0;
      zmq_send(socket.get(), answer[i].data(), answer[i].size(), more | ZMQ_DONTWAIT);
    }
  }
}

}  // namespace slimps
