// SPDX-License-Identifier: Apache-2.0
// Tracks the connections that others have made to the addresses we listen on. A connection belongs
// to a stranger until it is admitted. Strangers are bounded in number and in what they make us
// hold. Pure.
//
//   connections.Accepted(fd);
//   connections.Received(fd, peer, bytes);
//   connections.Admit(fd);
//   connections.Closed(fd);
//   for (const Connections::Excess& excess : connections.TakeExcess(ArrivedBytes)) ...  // close it
//
// ZeroMQ holds a message until its last part has arrived. It does not bound the number of parts and
// does not report them. So the bytes that arrived on a connection are compared with the bytes that
// came out of it: the difference is what ZeroMQ holds.
#ifndef SLIMPS_PROTO_NET_ZMQ_CONNECTIONS_H_
#define SLIMPS_PROTO_NET_ZMQ_CONNECTIONS_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "proto/net/transport.h"
#include "proto/net/transport_options.h"

namespace slimps {

// Thread-compatible.
class Connections final {
 public:
  // A connection that must be closed.
  struct Excess {
    int fd = -1;
    std::optional<PeerId> peer;  // if a message came from it
    std::string why;
  };

  explicit Connections(const StrangerLimits& limits) : limits_(limits) {}

  void Accepted(int fd) { connections_[fd] = {.number = ++last_number_}; }

  // A connection that was closed, from which a message had come.
  struct Ended {
    PeerId peer;
    bool admitted;
  };
  // Forgets the connection. Returns nullopt if no message came from it.
  std::optional<Ended> Closed(int fd);

  bool Knows(int fd) const { return connections_.contains(fd); }

  // Returns a number that no other connection with the same descriptor has had.
  // REQUIRES: Knows(fd).
  uint64_t NumberOf(int fd) const { return connections_.at(fd).number; }

  // Counts a message that came out of the connection. `bytes` include ZeroMQ's framing.
  // REQUIRES: Knows(fd).
  void Received(int fd, PeerId peer, size_t bytes);
  // Takes the connection out of the strangers' bounds.
  void Admit(int fd);

  bool HasStrangers() const;

  // Returns each stranger's connection that must be closed, once: those with too many bytes of an
  // unfinished message, and the oldest ones if there are too many. `arrived` returns how many bytes
  // have arrived on a connection since it was made, or nullopt if that is unknown.
  std::vector<Excess> TakeExcess(const std::function<std::optional<uint64_t>(int fd)>& arrived);

  // Marks the connection as one to be closed. Returns true if it is known and was not marked
  // before.
  bool MarkClosing(int fd);

 private:
  struct Connection {
    uint64_t number = 0;  // a later connection has a higher one
    bool admitted = false;
    bool closing = false;
    uint64_t received = 0;  // bytes that came out of it
    std::optional<PeerId> peer;
  };

  const StrangerLimits limits_;
  std::map<int, Connection> connections_;
  uint64_t last_number_ = 0;
};

}  // namespace slimps

#endif  // SLIMPS_PROTO_NET_ZMQ_CONNECTIONS_H_
