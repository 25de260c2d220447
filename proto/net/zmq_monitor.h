// What happens to the connections of one ZeroMQ socket, which the socket itself does not tell.
#ifndef SLIMPS_PROTO_NET_ZMQ_MONITOR_H_
#define SLIMPS_PROTO_NET_ZMQ_MONITOR_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/net/zmq_socket.h"

namespace slimps {

// Owned by the I/O thread, as the socket is.
class ZmqMonitor final {
 public:
  enum class Kind { kAccepted, kDisconnected };
  struct Event {
    Kind kind;
    int fd;  // of the connection
  };

  // Watches nothing.
  ZmqMonitor() = default;
  // Watches `socket`, which outlives it. ResourceExhausted: ZeroMQ has no more sockets.
  [[nodiscard]] static absl::StatusOr<ZmqMonitor> Watch(void* context, void* socket);
  ~ZmqMonitor() { Stop(); }
  ZmqMonitor(ZmqMonitor&& other) noexcept;
  ZmqMonitor& operator=(ZmqMonitor&& other) noexcept;

  // Readable when Take may have something; -1 when it watches nothing.
  int fd() const { return events_ == nullptr ? -1 : EventFd(events_.get()); }
  // What has happened since the last call, in order.
  std::vector<Event> Take();

 private:
  void Stop();

  void* watched_ = nullptr;
  ZmqSocket events_;
};

// Returns how many bytes have arrived on a TCP connection since it was made. nullopt: no TCP connection.
[[nodiscard]] std::optional<uint64_t> ArrivedBytes(int fd);

// Ends a connection of ZeroMQ's, which then sees its end and forgets what it held of it. One that is gone already: nothing
// happens.
void CloseConnection(int fd);

}  // namespace slimps

#endif  // SLIMPS_PROTO_NET_ZMQ_MONITOR_H_
