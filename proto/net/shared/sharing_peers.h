// SPDX-License-Identifier: Apache-2.0
// Knows which process each peer is, what was agreed with it, and which of these processes still
// live. A process may be several peers, and a peer may become another process.
//
//   peers.Add(peer).offer_due = true;
//   SLIMPS_RETURN_IF_ERROR(peers.Identify(peer, pid));      // the peer said its pid
//   for (const uint64_t pid : peers.TakeEnded()) ...        // forget what is known of it
#ifndef SLIMPS_PROTO_NET_SHARED_SHARING_PEERS_H_
#define SLIMPS_PROTO_NET_SHARED_SHARING_PEERS_H_

#include <cstdint>
#include <map>
#include <vector>

#include "absl/status/status.h"
#include "proto/base/buffer.h"
#include "proto/net/shared/process_watch.h"
#include "proto/net/transport.h"

namespace slimps {

struct SharingPeer {
  uint64_t pid = 0;       // 0: not known
  bool offered = false;   // we have offered to that process
  bool accepted = false;  // it can read our memory
  // What is to be sent.
  bool offer_due = false;
  Payload answer_due;  // the latest one; empty if none
};

// Thread-compatible. Owned by a PayloadSharing.
class SharingPeers final {
 public:
  // True if it can watch processes at all.
  bool ok() const { return watch_.ok(); }

  // A descriptor that is readable when TakeEnded has something.
  int process_fd() const { return watch_.fd(); }

  // Returns the peer, a new one if it is not known.
  SharingPeer& Add(PeerId id) { return peers_[id]; }

  // Returns the peer; nullptr if it is not known.
  SharingPeer* Find(PeerId id);

  void Remove(PeerId id) { peers_.erase(id); }

  // All peers.
  std::map<PeerId, SharingPeer>& all() { return peers_; }

  // Records that the peer is this process, which is watched from now on. If the peer was another
  // process, nothing is agreed with the new one.
  // REQUIRES: the peer is known.
  // Any error of ProcessWatch::Add; then nothing has changed.
  [[nodiscard]] absl::Status Identify(PeerId id, uint64_t pid);

  // Returns the peers through which the lender `id` of process `pid` can be told something: itself
  // or, if it is gone, all other peers of its process. Those that belong to another transport do
  // not know what they are told and ignore it.
  std::vector<PeerId> WaysTo(PeerId id, uint64_t pid) const;

  // Watches the process. Errors are those of ProcessWatch::Add.
  [[nodiscard]] absl::Status Watch(uint64_t pid) { return watch_.Add(pid); }
  void Unwatch(uint64_t pid) { watch_.Remove(pid); }

  // True if the process is watched: it has been met, and its end was not taken yet.
  bool Knows(uint64_t pid) const { return watch_.Watches(pid); }

  // True if a peer is this process.
  bool HasPeerOf(uint64_t pid) const;

  // Returns the watched processes that have ended. Their peers are strangers again: their
  // successors offer, and we offer to them again.
  std::vector<uint64_t> TakeEnded();

 private:
  ProcessWatch watch_;
  std::map<PeerId, SharingPeer> peers_;
};

}  // namespace slimps

#endif  // SLIMPS_PROTO_NET_SHARED_SHARING_PEERS_H_
