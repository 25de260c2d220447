// SPDX-License-Identifier: Apache-2.0
#include "proto/net/zmq/zmq_monitor.h"

#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/base/status_macros.h"

namespace slimps {
namespace {

constexpr int kRefusals = ZMQ_EVENT_HANDSHAKE_FAILED_AUTH | ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL;

}  // namespace

absl::StatusOr<ZmqMonitor> ZmqMonitor::Watch(void* context, void* socket, Side side) {
  static std::atomic<uint64_t> names{0};
  const std::string address = absl::StrCat("inproc://slimps-monitor-", ++names);
  const auto failed = [](const char* what) {
    return absl::ResourceExhaustedError(
        absl::StrCat("ZeroMQ gives no ", what, ": ", zmq_strerror(zmq_errno())));
  };
  ZmqMonitor monitor;
  monitor.events_.reset(zmq_socket(context, ZMQ_PAIR));
  if (monitor.events_ == nullptr) return failed("socket for a monitor");
  // No high-water mark: at a mark ZeroMQ's I/O thread would wait for us.
  SLIMPS_RETURN_IF_ERROR(SetSocketOption(monitor.events_.get(), ZMQ_RCVHWM, 0, "receive mark"));
  SLIMPS_RETURN_IF_ERROR(SetSocketOption(monitor.events_.get(), ZMQ_LINGER, 0, "linger"));
  constexpr int kOfAll = ZMQ_EVENT_ACCEPTED | ZMQ_EVENT_DISCONNECTED;
  const int events = side == Side::kBound ? kOfAll : kOfAll | kRefusals;
  if (zmq_socket_monitor(socket, address.c_str(), events) != 0) return failed("monitor");
  monitor.watched_ = socket;
  if (zmq_connect(monitor.events_.get(), address.c_str()) != 0) return failed("monitor's events");
  return monitor;
}

ZmqMonitor::ZmqMonitor(ZmqMonitor&& other) noexcept
    : watched_(std::exchange(other.watched_, nullptr)), events_(std::move(other.events_)) {}

ZmqMonitor& ZmqMonitor::operator=(ZmqMonitor&& other) noexcept {
  if (this == &other) return *this;
  Stop();
  watched_ = std::exchange(other.watched_, nullptr);
  events_ = std::move(other.events_);
  return *this;
}

void ZmqMonitor::Stop() {
  // The monitor stops before its reader goes, because ZeroMQ would wait for the reader.
  if (watched_ != nullptr) zmq_socket_monitor(watched_, nullptr, 0);
  watched_ = nullptr;
  events_.reset();
}

std::vector<ZmqMonitor::Event> ZmqMonitor::Take() {
  std::vector<Event> events;
  if (events_ == nullptr) return events;
  ZmqPart part;
  while (part.Receive(events_.get())) {
    // The first part is the event (u16) and its value (i32). The second is the endpoint.
    uint16_t event = 0;
    int32_t fd = -1;
    if (part.more() && part.bytes().size() == sizeof(event) + sizeof(fd)) {
      std::memcpy(&event, part.bytes().data(), sizeof(event));
      std::memcpy(&fd, part.bytes().data() + sizeof(event), sizeof(fd));
    }
    while (part.more() && part.Receive(events_.get())) {
    }
    if (event == ZMQ_EVENT_ACCEPTED) events.push_back({Kind::kAccepted, fd});
    if ((event & kRefusals) != 0) events.push_back({Kind::kRefused, fd});
    if (event == ZMQ_EVENT_DISCONNECTED) events.push_back({Kind::kDisconnected, fd});
  }
  return events;
}

std::optional<uint64_t> ArrivedBytes(int fd) {
  tcp_info info{};
  socklen_t size = sizeof(info);
  if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) return std::nullopt;
  constexpr size_t kNeeded = offsetof(tcp_info, tcpi_bytes_received) + sizeof(uint64_t);
  if (size < kNeeded) return std::nullopt;
  return info.tcpi_bytes_received;
}

void CloseConnection(int fd) {
  // ZeroMQ closes the socket when it sees the end. The close resets the connection, because
  // otherwise the other side might wait for room to send on.
  const linger at_once{.l_onoff = 1, .l_linger = 0};
  setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
  shutdown(fd, SHUT_RDWR);
}

}  // namespace slimps
