// Which remote socket is which peer, on one bound socket: ZeroMQ's routing ids to our numbers.
// Bounded: the stranger that has been silent the longest is forgotten first, where there is none the peer. Pure.
#ifndef SLIMPS_PROTO_NET_PEER_TABLE_H_
#define SLIMPS_PROTO_NET_PEER_TABLE_H_

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

  // The peer with this routing id, which becomes the most recent one.
  std::optional<PeerId> Find(const std::string& routing_id) {
    const auto found = by_routing_id_.find(routing_id);
    if (found == by_routing_id_.end()) return std::nullopt;
    Recent& recent = ListOf(*found->second);
    recent.splice(recent.begin(), recent, found->second);
    return found->second->peer;
  }

  // Adds a new peer, a stranger, as the most recent one; returns the peer that had to make room. REQUIRES: Find found none.
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

#endif  // SLIMPS_PROTO_NET_PEER_TABLE_H_
