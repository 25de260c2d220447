// SPDX-License-Identifier: Apache-2.0
#include "proto/net/zmq/connections.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace slimps {
namespace {

// An allowance for ZeroMQ's greeting, its handshake and some heartbeats. They arrive but never come
// out as messages.
constexpr uint64_t kHandshakeBytes = 4096;

}  // namespace

std::optional<Connections::Ended> Connections::Closed(int fd) {
  const auto found = connections_.find(fd);
  if (found == connections_.end()) return std::nullopt;
  const Connection closed = found->second;
  connections_.erase(found);
  if (!closed.peer.has_value()) return std::nullopt;
  return Ended{.peer = *closed.peer, .admitted = closed.admitted};
}

void Connections::Received(int fd, PeerId peer, size_t bytes) {
  Connection& connection = connections_.at(fd);
  connection.peer = peer;
  connection.received += bytes;
}

void Connections::Admit(int fd) {
  const auto found = connections_.find(fd);
  if (found != connections_.end()) found->second.admitted = true;
}

bool Connections::HasStrangers() const {
  return std::ranges::any_of(connections_, [](const auto& one) { return !one.second.admitted; });
}

bool Connections::MarkClosing(int fd) {
  const auto found = connections_.find(fd);
  return found != connections_.end() && !std::exchange(found->second.closing, true);
}

std::vector<Connections::Excess> Connections::TakeExcess(
    const std::function<std::optional<uint64_t>(int fd)>& arrived) {
  std::vector<Excess> excess;
  std::vector<std::pair<uint64_t, int>> strangers;
  for (auto& [fd, connection] : connections_) {
    if (connection.admitted || connection.closing) continue;
    const uint64_t passed = connection.received + kHandshakeBytes;
    const uint64_t came = arrived(fd).value_or(0);
    if (came > passed && came - passed > limits_.max_message_bytes) {
      connection.closing = true;
      excess.push_back({fd, connection.peer,
                        absl::StrCat("sent ", came - passed, " bytes of a message without end")});
      continue;
    }
    strangers.push_back({connection.number, fd});
  }
  if (strangers.size() <= limits_.max_connections) return excess;
  std::ranges::sort(strangers);
  strangers.resize(strangers.size() - limits_.max_connections);
  for (const auto& [number, fd] : strangers) {
    Connection& connection = connections_.at(fd);
    connection.closing = true;
    excess.push_back({fd, connection.peer, "was the oldest of too many"});
  }
  return excess;
}

}  // namespace slimps
