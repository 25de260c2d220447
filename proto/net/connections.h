// The connections that others have made to the addresses we listen on. Each is a stranger's until it is admitted, and
// strangers are bounded. Pure.
//
//   connections.Accepted(fd);  connections.Received(fd, peer, bytes);  connections.Admit(fd);  connections.Closed(fd);
//   for (const Connections::Excess& excess : connections.TakeExcess(ArrivedBytes)) ...    // close it
//
// ZeroMQ holds a message until its last part is there, however many there are, and tells nothing of it. So what has arrived
// on a connection is compared with what came out of it: the difference is what ZeroMQ holds.
#ifndef SLIMPS_PROTO_NET_CONNECTIONS_H_
#define SLIMPS_PROTO_NET_CONNECTIONS_H_

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
  struct Excess {
    int fd = -1;
    std::optional<PeerId> peer;  // if it has said anything
    std::string why;
  };

  explicit Connections(const StrangerLimits& limits) : limits_(limits) {}

  void Accepted(int fd) { connections_[fd] = {.number = ++last_number_}; }
  // Returns the stranger that spoke there, if it was one's.
  std::optional<PeerId> Closed(int fd);
  bool Knows(int fd) const { return connections_.contains(fd); }
  // Tells the connections apart that have had this descriptor. REQUIRES: Knows(fd).
  uint64_t NumberOf(int fd) const { return connections_.at(fd).number; }

  // A message of so many bytes, with ZeroMQ's framing, came out of it. REQUIRES: Knows(fd).
  void Received(int fd, PeerId peer, size_t bytes);
  void Admit(int fd);
  bool HasStrangers() const;

  // Those of strangers that hold too much unfinished, and the oldest of too many, each once. `arrived` tells how many
  // bytes have come on a connection since it was made, if that can be told.
  std::vector<Excess> TakeExcess(const std::function<std::optional<uint64_t>(int fd)>& arrived);
  // True, once: this one is to be closed, and it was not to be before.
  bool MarkClosing(int fd);

 private:
  struct Connection {
    uint64_t number = 0;  // rising with time
    bool admitted = false;
    bool closing = false;
    uint64_t received = 0;
    std::optional<PeerId> peer;
  };

  const StrangerLimits limits_;
  std::map<int, Connection> connections_;
  uint64_t last_number_ = 0;
};

}  // namespace slimps

#endif  // SLIMPS_PROTO_NET_CONNECTIONS_H_
