// SPDX-License-Identifier: Apache-2.0
// A ZeroMQ peer written byte by byte (ZMTP 3.0, NULL, DEALER). It does what no library would: it
// chooses any routing id, never ends a message, never reads. Source: https://rfc.zeromq.org/spec/23
#ifndef SLIMPS_TESTS_STRANGERS_ZMTP_CLIENT_H_
#define SLIMPS_TESTS_STRANGERS_ZMTP_CLIENT_H_

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/time/time.h"
#include "proto/base/clock.h"

namespace slimps {

// Thread-compatible.
class ZmtpClient final {
 public:
  using Parts = std::vector<std::string>;

  ZmtpClient() = default;
  ~ZmtpClient() { Close(); }
  ZmtpClient(const ZmtpClient&) = delete;
  ZmtpClient& operator=(const ZmtpClient&) = delete;

  // Connects to "tcp://127.0.0.1:PORT". Returns true once the other side has said READY too. With a
  // `user_id` it claims to be that user, as only a ZAP handler may say.
  bool Connect(const std::string& address, const std::string& routing_id = "",
               const std::string& user_id = "");
  void Close();

  // Returns false if the connection is broken.
  bool Send(const Parts& parts);

  // Sends one part of a message that it does not end.
  bool SendUnfinished(std::string_view part) { return WritePart(part, kMore); }

  // Returns the next message, or nullopt if none comes within `patience` or the connection breaks.
  std::optional<Parts> Receive(absl::Duration patience);

  // Returns true if the other side closes the connection within `patience`. Drops what it receives.
  bool IsClosedWithin(absl::Duration patience);

  // These count messages with their framing, but not the handshake.
  size_t bytes_sent() const { return bytes_sent_; }
  size_t bytes_received() const { return bytes_received_; }

 private:
  static constexpr int kMore = 1, kLong = 2, kCommand = 4;

  bool Write(std::string_view bytes);
  bool WritePart(std::string_view part, int flags);

  // Reads `size` bytes into unread_. Returns false if they do not come by the deadline.
  bool Read(size_t size, SteadyTime deadline);
  struct Part {
    int flags = 0;
    std::string body;
  };
  std::optional<Part> ReadPart(SteadyTime deadline);

  int fd_ = -1;
  std::string unread_;
  size_t bytes_sent_ = 0;
  size_t bytes_received_ = 0;
};

}  // namespace slimps

#endif  // SLIMPS_TESTS_STRANGERS_ZMTP_CLIENT_H_
