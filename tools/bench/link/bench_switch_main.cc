// SPDX-License-Identifier: Apache-2.0
// Connects network interfaces of this network namespace as a switch does, and holds every packet,
// for a kernel without netem:
//
//   bench_switch HOLD_US INTERFACE...
//
// It reads and sends frames by packet sockets, as large as TCP made them (PACKET_VNET_HDR). An
// interface that shapes what it sends (tbf) goes on doing so. For each line on stdin the program
// prints how many frames it has lost, without those that an interface refused, as tbf does when its
// queue is full. The program ends when stdin does.
//
// Exit status: 0 stdin has ended; 1 an interface cannot be used; 2 wrong usage.
#include <arpa/inet.h>
#include <errno.h>
#include <linux/if_packet.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "proto/base/clock.h"
#include "proto/base/status_macros.h"
#include "tools/bench/link/delaying_switch.h"

namespace slimps {
namespace {

constexpr int64_t kMaxHoldUs = 1000000;
// Half of the longest round trip, 150 ms, at 1 Gbit/s is 19 MB for each node that sends.
constexpr size_t kMaxHeldBytes = size_t{1} << 30;
// Holds what the interface's tbf still has to send, 50 ms, or what came while the cores were busy.
constexpr int kSocketBytes = 128 << 20;
constexpr size_t kMaxFrameBytes = 128 << 10;
constexpr int kFramesAtATime = 64;  // of one port, so that a busy port holds no other up

absl::Status Failed(const std::string& what) { return absl::ErrnoToStatus(errno, what); }

absl::StatusOr<int> OpenPort(const std::string& interface) {
  const int port = socket(AF_PACKET, SOCK_RAW | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (port < 0) return Failed("a packet socket");
  const int on = 1;
  if (setsockopt(port, SOL_PACKET, PACKET_VNET_HDR, &on, sizeof(on)) != 0 ||
      setsockopt(port, SOL_PACKET, PACKET_IGNORE_OUTGOING, &on, sizeof(on)) != 0 ||
      setsockopt(port, SOL_SOCKET, SO_RCVBUFFORCE, &kSocketBytes, sizeof(kSocketBytes)) != 0 ||
      setsockopt(port, SOL_SOCKET, SO_SNDBUFFORCE, &kSocketBytes, sizeof(kSocketBytes)) != 0) {
    return Failed("options of a packet socket");
  }
  sockaddr_ll address{};
  address.sll_family = AF_PACKET;
  address.sll_protocol = htons(ETH_P_ALL);
  address.sll_ifindex = static_cast<int>(if_nametoindex(interface.c_str()));
  if (address.sll_ifindex == 0 ||
      bind(port, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
    return Failed(interface);
  }
  return port;
}

// Moves frames between the ports until stdin ends. Owned by the main thread.
class Mover final {
 public:
  Mover(const std::vector<int>& ports, absl::Duration hold)
      : switch_(ports.size(), hold, kMaxHeldBytes), buffer_(kMaxFrameBytes) {
    for (const int port : ports) polled_.push_back({port, POLLIN, 0});
    polled_.push_back({STDIN_FILENO, POLLIN, 0});
  }

  absl::Status Run() {
    while (true) {
      // ppoll refuses a negative timeout; a frame that is late leaves at once.
      const absl::Duration left = switch_.due() - MachineClock()->Now();
      const timespec timeout = absl::ToTimespec(std::max(left, absl::ZeroDuration()));
      const timespec* until = left == absl::InfiniteDuration() ? nullptr : &timeout;
      if (ppoll(polled_.data(), polled_.size(), until, nullptr) < 0) {
        if (errno == EINTR) continue;
        return Failed("ppoll");
      }
      for (size_t port = 0; port + 1 < polled_.size(); ++port) {
        if (polled_[port].revents != 0) SLIMPS_RETURN_IF_ERROR(Receive(port));
      }
      SendDue();
      if (polled_.back().revents != 0 && !Answer()) return absl::OkStatus();
    }
  }

 private:
  absl::Status Receive(size_t port) {
    for (int frames = 0; frames < kFramesAtATime; ++frames) {
      const ssize_t size = recv(polled_[port].fd, buffer_.data(), buffer_.size(), 0);
      if (size >= 0) {
        const std::span<const std::byte> all(buffer_);
        switch_.Receive(port, all.first(static_cast<size_t>(size)), MachineClock()->Now());
      } else if (errno == EAGAIN || errno == ENETDOWN) {  // ENETDOWN: its cable was pulled
        break;
      } else {
        return Failed("recv");
      }
    }
    return absl::OkStatus();
  }

  void SendDue() {
    while (const auto out = switch_.TakeDue(MachineClock()->Now())) {
      if (send(polled_[out->port].fd, out->frame.data(), out->frame.size(), 0) < 0 &&
          errno != ENOBUFS && errno != ENETDOWN) {
        ++unsent_;
      }
    }
  }

  // Returns false if stdin has ended.
  bool Answer() {
    char line[64];
    if (read(STDIN_FILENO, line, sizeof(line)) <= 0) return false;
    for (size_t port = 0; port + 1 < polled_.size(); ++port) {
      tpacket_stats found{};  // since they were read last
      socklen_t size = sizeof(found);
      if (getsockopt(polled_[port].fd, SOL_PACKET, PACKET_STATISTICS, &found, &size) == 0) {
        unreceived_ += found.tp_drops;
      }
    }
    const uint64_t lost = switch_.lost() + unsent_ + unreceived_;
    return std::puts(absl::StrCat(lost).c_str()) >= 0 && std::fflush(stdout) == 0;
  }

  DelayingSwitch switch_;
  std::vector<pollfd> polled_;  // the ports, then stdin
  std::vector<std::byte> buffer_;
  uint64_t unsent_ = 0;
  uint64_t unreceived_ = 0;
};

absl::Status Run(absl::Duration hold, std::span<char* const> interfaces) {
  std::vector<int> ports;
  for (const char* interface : interfaces) {
    SLIMPS_ASSIGN_OR_RETURN(const int port, OpenPort(interface));
    ports.push_back(port);
  }
  // The kernel's own delay would wait for no process, so neither does this.
  const sched_param first{1};
  if (sched_setscheduler(0, SCHED_FIFO, &first) != 0) {
    std::perror("bench_switch: no real-time priority, so busy cores lengthen round trips");
  }
  return Mover(ports, hold).Run();
}

}  // namespace
}  // namespace slimps

int main(int argc, char** argv) {
  int64_t hold_us = 0;
  if (argc < 3 || !absl::SimpleAtoi(argv[1], &hold_us) || hold_us < 0 ||
      hold_us > slimps::kMaxHoldUs) {
    std::fprintf(stderr, "usage: bench_switch HOLD_US INTERFACE..., HOLD_US from 0 to 1000000\n");
    return 2;
  }
  const absl::Status ended = slimps::Run(absl::Microseconds(hold_us),
                                         std::span(argv, static_cast<size_t>(argc)).subspan(2));
  if (ended.ok()) return 0;
  std::fprintf(stderr, "bench_switch: %s\n", std::string(ended.message()).c_str());
  return 1;
}
