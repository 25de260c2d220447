// SPDX-License-Identifier: Apache-2.0
#include "tools/bench/transport/raw_zmq.h"

#include <cstring>

#include "absl/strings/str_cat.h"

namespace slimps {

absl::StatusOr<RawSocket> OpenRawSocket(void* context, int type) {
  RawSocket socket(zmq_socket(context, type));
  const int off = 0;
  if (socket == nullptr || zmq_setsockopt(socket.get(), ZMQ_SNDHWM, &off, sizeof(off)) != 0 ||
      zmq_setsockopt(socket.get(), ZMQ_RCVHWM, &off, sizeof(off)) != 0 ||
      zmq_setsockopt(socket.get(), ZMQ_LINGER, &off, sizeof(off)) != 0) {
    return absl::ResourceExhaustedError(absl::StrCat("no socket: ", zmq_strerror(zmq_errno())));
  }
  return socket;
}

SendBuffers::SendBuffers(size_t bytes, size_t count) : bytes_(bytes) {
  for (size_t i = 0; i < count; ++i) {
    buffers_.emplace_back(bytes);
    std::memset(buffers_.back().bytes().data(), static_cast<int>(1 + i % 255), bytes);
  }
}

bool SendBuffers::SendNext(void* socket, const std::string& routing_id) {
  if (!routing_id.empty() &&
      zmq_send(socket, routing_id.data(), routing_id.size(), ZMQ_SNDMORE) < 0) {
    return false;
  }
  std::byte* const data = buffers_[next_].bytes().data();
  next_ = (next_ + 1) % buffers_.size();
  zmq_msg_t message;
  zmq_msg_init_data(
      &message, data, bytes_, [](void*, void*) {}, nullptr);
  if (zmq_msg_send(&message, socket, 0) >= 0) return true;
  zmq_msg_close(&message);
  return false;
}

bool SendSmall(void* socket, const std::string& routing_id, std::string_view bytes) {
  if (!routing_id.empty() &&
      zmq_send(socket, routing_id.data(), routing_id.size(), ZMQ_SNDMORE) < 0) {
    return false;
  }
  return zmq_send(socket, bytes.data(), bytes.size(), 0) >= 0;
}

bool SendAcknowledgements(void* socket, const std::string& routing_id, uint32_t count) {
  const uint64_t wide = count;
  return SendSmall(socket, routing_id, {reinterpret_cast<const char*>(&wide), sizeof(wide)});
}

absl::Status TakeAcknowledgement(std::span<const std::byte> bytes, RawStream* stream) {
  uint64_t count = 0;
  if (bytes.size() == sizeof(count)) std::memcpy(&count, bytes.data(), sizeof(count));
  if (count == 0 || count > UINT32_MAX || !stream->OnAcknowledged(static_cast<uint32_t>(count))) {
    return absl::InvalidArgumentError(
        absl::StrCat("a peer acknowledged ", count, " messages, more than were under way"));
  }
  return absl::OkStatus();
}

uint64_t ReadEveryByte(std::span<const std::byte> bytes) {
  uint64_t sum = 0;
  size_t i = 0;
  for (; bytes.size() - i >= sizeof(uint64_t); i += sizeof(uint64_t)) {
    uint64_t word = 0;
    std::memcpy(&word, bytes.data() + i, sizeof(word));
    sum += word;
  }
  for (; i < bytes.size(); ++i) sum += static_cast<uint64_t>(bytes[i]);
  return sum;
}

}  // namespace slimps
