// SPDX-License-Identifier: Apache-2.0
// Maps ZeroMQ's routing ids on one bound socket to our PeerIds. Bounded: a full table forgets the
// stranger that has been silent the longest, or, if there is no stranger, the peer that has. Pure.
//
//   if (const std::optional<PeerId> known = table.Find(routing_id)) return *known;
//   const std::optional<PeerId> evicted = table.Add(routing_id, new_peer);
#ifndef SLIMPS_PROTO_NET_ZMQ_PEER_TABLE_H_
#define SLIMPS_PROTO_NET_ZMQ_PEER_TABLE_H_

#include <cstddef>
#include <list>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>

#include "proto/net/transport.h"

namespace slimps {

// Thread-compatible.
class PeerTable final {
 public:
  // REQUIRES: max_peers > 0.
  explicit PeerTable(size_t max_peers) : max_peers_(max_peers) {}

  // Returns the peer with this routing id and makes it the most recent one.
  std::optional<PeerId> Find(const std::string& routing_id) {
    const auto found = by_routing_id_.find(routing_id);
    if (found == by_routing_id_.end()) return std::nullopt;
    Recent& recent = ListOf(*found->second);
    recent.splice(recent.begin(), recent, found->second);
    return found->second->peer;
  }

  // Adds a new peer, a stranger, as the most recent one. Returns the peer that had to make room, if
  // any.
  // REQUIRES: Find returned none for this routing id.
  std::optional<PeerId> Add(const std::string& routing_id, PeerId peer) {
    std::optional<PeerId> evicted;
    if (size() >= max_peers_) {
      Recent& recent = strangers_.empty() ? admitted_ : strangers_;
      evicted = recent.back().peer;
      by_routing_id_.erase(recent.back().routing_id);
      recent.pop_back();
    }
    strangers_.push_front({.routing_id = routing_id, .peer = peer});
    by_routing_id_[routing_id] = strangers_.begin();
    return evicted;
  }

  // Makes the peer no longer a stranger.
  void Admit(const std::string& routing_id) {
    const auto found = by_routing_id_.find(routing_id);
    if (found == by_routing_id_.end() || found->second->is_admitted) return;
    found->second->is_admitted = true;
    admitted_.splice(admitted_.begin(), strangers_, found->second);
  }

  void Remove(const std::string& routing_id) {
    const auto found = by_routing_id_.find(routing_id);
    if (found == by_routing_id_.end()) return;
    ListOf(*found->second).erase(found->second);
    by_routing_id_.erase(found);
  }

  size_t size() const { return by_routing_id_.size(); }

 private:
  struct Peer {
    std::string routing_id;
    PeerId peer;
    bool is_admitted = false;
  };
  using Recent = std::list<Peer>;

  Recent& ListOf(const Peer& peer) { return peer.is_admitted ? admitted_ : strangers_; }

  const size_t max_peers_;
  Recent strangers_, admitted_;  // most recent first
  std::unordered_map<std::string, Recent::iterator> by_routing_id_;
};

}  // namespace slimps

#endif  // SLIMPS_PROTO_NET_ZMQ_PEER_TABLE_H_
