// SPDX-License-Identifier: Apache-2.0
// Watches the connections of one ZeroMQ socket come and go. The socket itself does not report this.
//
//   SLIMPS_ASSIGN_OR_RETURN(ZmqMonitor monitor, ZmqMonitor::Watch(context, socket));
//   poll monitor.fd(); when it is readable: for (ZmqMonitor::Event event : monitor.Take()) ...
#ifndef SLIMPS_PROTO_NET_ZMQ_ZMQ_MONITOR_H_
#define SLIMPS_PROTO_NET_ZMQ_ZMQ_MONITOR_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/net/zmq/zmq_socket.h"

namespace slimps {

// Owned by the I/O thread, like the socket.
class ZmqMonitor final {
 public:
  enum class Kind { kAccepted, kDisconnected, kRefused };
  enum class Side { kBound, kConnecting };
  struct Event {
    Kind kind;
    int fd;  // of the connection; of kRefused: ZAP's status, or ZeroMQ's number of what is wrong
  };

  // Makes a monitor that watches nothing.
  ZmqMonitor() = default;

  // Watches `socket`. kRefused comes on the connecting side alone: the other side refuses this
  // node's key, or does not speak as this one does. ZeroMQ does not try again.
  // REQUIRES: `socket` outlives the monitor.
  // ResourceExhausted: ZeroMQ has no more sockets.
  [[nodiscard]] static absl::StatusOr<ZmqMonitor> Watch(void* context, void* socket, Side side);

  ~ZmqMonitor() { Stop(); }
  ZmqMonitor(ZmqMonitor&& other) noexcept;
  ZmqMonitor& operator=(ZmqMonitor&& other) noexcept;

  // A descriptor that is readable when Take may have something; -1 if it watches nothing.
  int fd() const { return events_ == nullptr ? -1 : EventFd(events_.get()); }

  // Returns what has happened since the last call, in order.
  std::vector<Event> Take();

 private:
  void Stop();

  void* watched_ = nullptr;
  ZmqSocket events_;
};

// Returns how many bytes have arrived on a TCP connection since it was made; nullopt if `fd` is no
// TCP connection.
[[nodiscard]] std::optional<uint64_t> ArrivedBytes(int fd);

// Shuts down a connection of ZeroMQ's. ZeroMQ then sees its end and forgets what it held of it.
// Does nothing if the connection is gone already.
void CloseConnection(int fd);

}  // namespace slimps

#endif  // SLIMPS_PROTO_NET_ZMQ_ZMQ_MONITOR_H_
