// SPDX-License-Identifier: Apache-2.0
#include "proto/net/zmq/zmq_socket.h"

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <new>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/base/out_of_memory.h"

namespace slimps {
namespace {

// ZeroMQ's decoder hands out parts up to its batch size (this many bytes) as slices of one buffer.
constexpr size_t kSharedBufferBytes = 8192;

// Repeats a call that failed because a signal handler ran. That failure says nothing of the peer.
template <typename Call>
int UnlessInterrupted(const Call& call) {
  for (;;) {
    const int result = call();
    if (result >= 0 || errno != EINTR) return result;
  }
}

struct PartOnTheWay {
  Payload payload;
  std::shared_ptr<void> token;
};

void ReleasePart(void* /*data*/, void* hint) { delete static_cast<PartOnTheWay*>(hint); }

// Returns true if ZeroMQ took the part. If not, errno says why.
bool SendPart(void* socket, const Payload& payload, const std::shared_ptr<void>& token, int flags) {
  auto* holder = new PartOnTheWay{payload, token};
  zmq_msg_t message;
  void* data = const_cast<std::byte*>(payload.bytes().data());  // ZeroMQ only reads it
  if (zmq_msg_init_data(&message, data, payload.size(), ReleasePart, holder) != 0) {
    delete holder;
    throw OutOfMemory("a message to be sent", "", std::bad_alloc());
  }
  if (UnlessInterrupted([&] { return zmq_msg_send(&message, socket, flags); }) >= 0) return true;
  const int error = errno;
  zmq_msg_close(&message);  // runs ReleasePart
  errno = error;
  return false;
}

SendResult FirstPartFailed(int error) {
  return error == EAGAIN ? SendResult::kWouldBlock : SendResult::kNoRoute;
}

}  // namespace

Payload ToPayload(std::shared_ptr<ZmqPart> part) {
  const std::span<const std::byte> bytes = part->bytes();
  const bool aligned = reinterpret_cast<uintptr_t>(bytes.data()) % alignof(float) == 0;
  if (aligned && bytes.size() > kSharedBufferBytes) return Payload(std::move(part), bytes);
  AlignedBuffer copy(bytes.size());
  std::copy(bytes.begin(), bytes.end(), copy.bytes().begin());
  return Payload::Adopt(std::move(copy), bytes.size());
}

absl::Status SetSocketOption(void* socket, int option, int value, const char* what) {
  if (zmq_setsockopt(socket, option, &value, sizeof(value)) == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("ZeroMQ refuses ", what, " ", value, ": ", zmq_strerror(errno)));
}

absl::Status SetSocketOption(void* socket, int option, int64_t value, const char* what) {
  if (zmq_setsockopt(socket, option, &value, sizeof(value)) == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("ZeroMQ refuses ", what, " ", value, ": ", zmq_strerror(errno)));
}

std::string LastEndpoint(void* socket) {
  char text[1024] = {};
  size_t size = sizeof(text);
  return zmq_getsockopt(socket, ZMQ_LAST_ENDPOINT, text, &size) == 0 ? std::string(text) : "";
}

bool ZmqPart::Receive(void* socket) {
  return UnlessInterrupted([&] { return zmq_msg_recv(&message_, socket, ZMQ_DONTWAIT); }) >= 0;
}

bool ZmqPart::Await(void* socket) {
  return UnlessInterrupted([&] { return zmq_msg_recv(&message_, socket, 0); }) >= 0;
}

int Events(void* socket) {
  int events = 0;
  size_t size = sizeof(events);
  UnlessInterrupted([&] { return zmq_getsockopt(socket, ZMQ_EVENTS, &events, &size); });
  return events;
}

int EventFd(void* socket) {
  int fd = -1;
  size_t size = sizeof(fd);
  return zmq_getsockopt(socket, ZMQ_FD, &fd, &size) == 0 ? fd : -1;
}

SendResult SendParts(void* socket, const std::string& routing_id, std::span<const Payload> parts,
                     const std::shared_ptr<void>& token) {
  if (!routing_id.empty() && UnlessInterrupted([&] {
                               return zmq_send(socket, routing_id.data(), routing_id.size(),
                                               ZMQ_DONTWAIT | ZMQ_SNDMORE);
                             }) < 0) {
    return FirstPartFailed(errno);
  }
  bool lost = false;
  for (size_t i = 0; i < parts.size(); ++i) {
    const int more = i + 1 < parts.size() ? ZMQ_SNDMORE : 0;
    if (SendPart(socket, parts[i], token, ZMQ_DONTWAIT | more)) continue;
    if (i == 0 && routing_id.empty()) return FirstPartFailed(errno);
    // The connection broke in mid-message. ZeroMQ rolls back what it took and swallows the rest up
    // to the last part, so the rest must still be offered.
    lost = true;
  }
  return lost ? SendResult::kLost : SendResult::kSent;
}

}  // namespace slimps
