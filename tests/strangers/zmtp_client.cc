// SPDX-License-Identifier: Apache-2.0
#include "tests/strangers/zmtp_client.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "proto/base/clock.h"

namespace slimps {
namespace {

constexpr size_t kGreetingBytes = 64;
// Generous: only a failing test waits this long.
constexpr absl::Duration kHandshake = absl::Seconds(30);

std::string Greeting() {
  std::string greeting(kGreetingBytes, '\0');
  greeting[0] = '\xff';
  greeting[9] = '\x7f';
  greeting[10] = 3;  // version 3.0
  std::memcpy(greeting.data() + 12, "NULL", 4);
  return greeting;
}

std::string Property(const std::string& name, const std::string& value) {
  std::string property(1, static_cast<char>(name.size()));
  property += name;
  property += std::string(3, '\0') + static_cast<char>(value.size());
  return property + value;
}

bool Await(int fd, short events, SteadyTime deadline) {
  pollfd one{.fd = fd, .events = events, .revents = 0};
  const int64_t left = absl::ToInt64Milliseconds(deadline - MachineClock()->Now());
  return poll(&one, 1, static_cast<int>(std::clamp<int64_t>(left, 0, 60'000))) > 0;
}

}  // namespace

bool ZmtpClient::Connect(const std::string& address, const std::string& routing_id,
                         const std::string& user_id) {
  Close();
  unread_.clear();
  fd_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(static_cast<uint16_t>(std::atoi(address.c_str() + address.rfind(':') + 1)));
  inet_pton(AF_INET, "127.0.0.1", &to.sin_addr);
  if (connect(fd_, reinterpret_cast<const sockaddr*>(&to), sizeof(to)) != 0) return false;
  std::string ready =
      std::string("\5READY") + Property("Socket-Type", "DEALER") + Property("Identity", routing_id);
  if (!user_id.empty()) ready += Property("User-Id", user_id);
  if (!Write(Greeting()) || !WritePart(ready, kCommand)) return false;
  const SteadyTime deadline = MachineClock()->Now() + kHandshake;
  if (!Read(kGreetingBytes, deadline)) return false;
  unread_.erase(0, kGreetingBytes);
  const std::optional<Part> answer = ReadPart(deadline);
  bytes_sent_ = bytes_received_ = 0;
  return answer.has_value() && answer->body.starts_with("\5READY");
}

void ZmtpClient::Close() {
  if (fd_ >= 0) close(fd_);
  fd_ = -1;
}

bool ZmtpClient::Write(std::string_view bytes) {
  while (!bytes.empty()) {
    if (!Await(fd_, POLLOUT, MachineClock()->Now() + kHandshake)) return false;
    const ssize_t sent = send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 && (errno == EAGAIN || errno == EINTR)) continue;
    if (sent < 0) return false;
    bytes.remove_prefix(static_cast<size_t>(sent));
    bytes_sent_ += static_cast<size_t>(sent);
  }
  return true;
}

bool ZmtpClient::WritePart(std::string_view part, int flags) {
  std::string head;
  if (part.size() < 256) {
    head = {static_cast<char>(flags), static_cast<char>(part.size())};
  } else {
    head = {static_cast<char>(flags | kLong)};
    for (int byte = 7; byte >= 0; --byte) head += static_cast<char>(part.size() >> (8 * byte));
  }
  return Write(head + std::string(part));
}

bool ZmtpClient::Send(const Parts& parts) {
  for (size_t i = 0; i < parts.size(); ++i) {
    if (!WritePart(parts[i], i + 1 < parts.size() ? kMore : 0)) return false;
  }
  return true;
}

bool ZmtpClient::Read(size_t size, SteadyTime deadline) {
  while (unread_.size() < size) {
    char buffer[65536];
    if (!Await(fd_, POLLIN, deadline)) return false;
    const ssize_t got = recv(fd_, buffer, sizeof(buffer), MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) continue;
    if (got <= 0) return false;
    unread_.append(buffer, static_cast<size_t>(got));
  }
  return true;
}

std::optional<ZmtpClient::Part> ZmtpClient::ReadPart(SteadyTime deadline) {
  if (!Read(2, deadline)) return std::nullopt;
  Part part{.flags = unread_[0], .body = {}};
  const size_t head = (part.flags & kLong) != 0 ? 9 : 2;
  if (!Read(head, deadline)) return std::nullopt;
  size_t size = 0;
  for (size_t i = 1; i < head; ++i) size = size << 8 | static_cast<uint8_t>(unread_[i]);
  if (!Read(head + size, deadline)) return std::nullopt;
  part.body = unread_.substr(head, size);
  unread_.erase(0, head + size);
  if ((part.flags & kCommand) == 0) bytes_received_ += head + size;
  return part;
}

std::optional<ZmtpClient::Parts> ZmtpClient::Receive(absl::Duration patience) {
  const SteadyTime deadline = MachineClock()->Now() + patience;
  Parts parts;
  while (std::optional<Part> part = ReadPart(deadline)) {
    if ((part->flags & kCommand) != 0) continue;  // a heartbeat of ZeroMQ itself
    parts.push_back(std::move(part->body));
    if ((part->flags & kMore) == 0) return parts;
  }
  return std::nullopt;
}

bool ZmtpClient::IsClosedWithin(absl::Duration patience) {
  const SteadyTime deadline = MachineClock()->Now() + patience;
  for (;;) {
    char buffer[65536];
    if (!Await(fd_, POLLIN, deadline)) return false;
    const ssize_t got = recv(fd_, buffer, sizeof(buffer), MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) continue;
    if (got <= 0) return true;
  }
}

}  // namespace slimps
