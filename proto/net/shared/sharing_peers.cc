// SPDX-License-Identifier: Apache-2.0
#include "proto/net/shared/sharing_peers.h"

#include <algorithm>
#include <utility>

#include "proto/base/status_macros.h"

namespace slimps {

SharingPeer* SharingPeers::Find(PeerId id) {
  const auto found = peers_.find(id);
  return found == peers_.end() ? nullptr : &found->second;
}

absl::Status SharingPeers::Identify(PeerId id, uint64_t pid) {
  SLIMPS_RETURN_IF_ERROR(watch_.Add(pid));
  SharingPeer& peer = peers_.at(id);
  const uint64_t before = std::exchange(peer.pid, pid);
  // A new process that has taken its place knows nothing of us.
  if (before != 0 && before != pid) peer.offered = peer.accepted = false;
  return absl::OkStatus();
}

std::vector<PeerId> SharingPeers::WaysTo(PeerId id, uint64_t pid) const {
  const auto found = peers_.find(id);
  if (found != peers_.end() && (found->second.pid == pid || !Knows(pid))) return {id};
  std::vector<PeerId> ways;
  for (const auto& [other, peer] : peers_) {
    if (peer.pid == pid) ways.push_back(other);
  }
  return ways;
}

bool SharingPeers::HasPeerOf(uint64_t pid) const {
  return std::ranges::any_of(peers_, [&](const auto& peer) { return peer.second.pid == pid; });
}

std::vector<uint64_t> SharingPeers::TakeEnded() {
  std::vector<uint64_t> ended = watch_.TakeEnded();
  for (const uint64_t pid : ended) {
    for (auto& [id, peer] : peers_) {
      if (peer.pid == pid) peer = SharingPeer{};
    }
  }
  return ended;
}

}  // namespace slimps
