// SPDX-License-Identifier: Apache-2.0
// What both raw ZeroMQ peers use. Sockets have ZeroMQ's defaults, except that high-water marks are
// off, since a stream's window bounds what is in flight. Messages are sent without a copy from
// memory that stays. The receiver reads every byte.
//
// Messages between the peers, told apart by their size:
//   8 bytes              the number of messages acknowledged
//   up to kControlBytes  a command as text: "VERB name=value ...", answered with "ready"
//   longer               data
#ifndef SLIMPS_TOOLS_BENCH_TRANSPORT_RAW_ZMQ_H_
#define SLIMPS_TOOLS_BENCH_TRANSPORT_RAW_ZMQ_H_

#include <zmq.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "proto/base/buffer.h"
#include "tools/bench/transport/raw_stream.h"

namespace slimps {

inline constexpr size_t kControlBytes = 256;
inline constexpr uint64_t kMaxMessageBytes = uint64_t{1} << 30;
inline constexpr uint64_t kMaxMessages = uint64_t{1} << 32;

struct CloseContext {
  void operator()(void* context) const { zmq_ctx_term(context); }
};
struct CloseSocket {
  void operator()(void* socket) const { zmq_close(socket); }
};
using RawContext = std::unique_ptr<void, CloseContext>;
using RawSocket = std::unique_ptr<void, CloseSocket>;

// ResourceExhausted: ZeroMQ gives no socket.
[[nodiscard]] absl::StatusOr<RawSocket> OpenRawSocket(void* context, int type);

// One received frame. Thread-compatible.
class RawFrame final {
 public:
  RawFrame() { zmq_msg_init(&message_); }
  ~RawFrame() { zmq_msg_close(&message_); }
  RawFrame(const RawFrame&) = delete;
  RawFrame& operator=(const RawFrame&) = delete;

  // Receives a frame without waiting. Returns false if there is none.
  [[nodiscard]] bool Receive(void* socket) {
    return zmq_msg_recv(&message_, socket, ZMQ_DONTWAIT) >= 0;
  }
  std::span<const std::byte> bytes() {
    return {static_cast<const std::byte*>(zmq_msg_data(&message_)), zmq_msg_size(&message_)};
  }
  std::string_view text() {
    return {reinterpret_cast<const char*>(bytes().data()), bytes().size()};
  }

 private:
  zmq_msg_t message_;
};

// As many buffers as may be in flight, sent in turn without a copy. All were written once, so that
// a sender reads as much memory as the gradients in flight of a store's run. Thread-compatible.
// REQUIRES: it outlives the socket's context.
class SendBuffers final {
 public:
  SendBuffers(size_t bytes, size_t count);

  // Sends the next buffer. Returns false if the peer is gone. `routing_id` is empty for a DEALER.
  [[nodiscard]] bool SendNext(void* socket, const std::string& routing_id);
  size_t bytes() const { return bytes_; }
  size_t count() const { return buffers_.size(); }

 private:
  const size_t bytes_;
  std::vector<AlignedBuffer> buffers_;
  size_t next_ = 0;
};

// Send a copy of a small message. Return false if the peer is gone.
[[nodiscard]] bool SendSmall(void* socket, const std::string& routing_id, std::string_view bytes);
[[nodiscard]] bool SendAcknowledgements(void* socket, const std::string& routing_id,
                                        uint32_t count);
// Passes a received acknowledgement to `stream`.
// InvalidArgument: it has another size, or OnAcknowledged refuses it.
[[nodiscard]] absl::Status TakeAcknowledgement(std::span<const std::byte> bytes, RawStream* stream);

// Returns a sum over every byte. The caller must use it, or the compiler drops the reads.
[[nodiscard]] uint64_t ReadEveryByte(std::span<const std::byte> bytes);

}  // namespace slimps

#endif  // SLIMPS_TOOLS_BENCH_TRANSPORT_RAW_ZMQ_H_
