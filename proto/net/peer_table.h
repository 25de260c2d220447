// Which remote socket is which peer, on one bound socket: ZeroMQ's routing ids to our numbers.
// Bounded: the peer that has been silent the longest is forgotten first. Pure.
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
    recent_.splice(recent_.begin(), recent_, found->second);
    return found->second->second;
  }

  // Adds a new peer as the most recent one; returns the peer that had to make room. REQUIRES: Find
  // found none.
  std::optional<PeerId> Add(const std::string& routing_id, PeerId peer) {
    std::optional<PeerId> evicted;
    if (recent_.size() >= max_peers_) {
      evicted = recent_.back().second;
      by_routing_id_.erase(recent_.back().first);
      recent_.pop_back();
    }
    recent_.emplace_front(routing_id, peer);
    by_routing_id_[routing_id] = recent_.begin();
    return evicted;
  }

  void Remove(const std::string& routing_id) {
    const auto found = by_routing_id_.find(routing_id);
    if (found == by_routing_id_.end()) return;
    recent_.erase(found->second);
    by_routing_id_.erase(found);
  }

  size_t size() const { return recent_.size(); }

 private:
  using Recent = std::list<std::pair<std::string, PeerId>>;
  const size_t max_peers_;
  Recent recent_;  // most recent first
  std::unordered_map<std::string, Recent::iterator> by_routing_id_;
};

}  // namespace slimps

#endif  // SLIMPS_PROTO_NET_PEER_TABLE_H_
