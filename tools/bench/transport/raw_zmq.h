// What both raw ZeroMQ peers use: sockets with ZeroMQ's own defaults but for its marks, which are off (the window of a
// stream bounds what is in flight), messages sent from memory that stays, and a receiver that reads every byte.
//
// Messages between the peers, told apart by their size:
//   8 bytes              so many messages acknowledged
//   up to kControlBytes  control, text: "VERB name=value ...", answered with "ready"
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
inline constexpr uint64_t kMostMessageBytes = uint64_t{1} << 30;
inline constexpr uint64_t kMostMessages = uint64_t{1} << 32;

struct CloseContext {
  void operator()(void* context) const { zmq_ctx_term(context); }
};
struct CloseSocket {
  void operator()(void* socket) const { zmq_close(socket); }
};
using RawContext = std::unique_ptr<void, CloseContext>;
using RawSocket = std::unique_ptr<void, CloseSocket>;

// ResourceExhausted: ZeroMQ gives none.
[[nodiscard]] absl::StatusOr<RawSocket> OpenRawSocket(void* context, int type);

// One received frame. Thread-compatible.
class RawFrame final {
 public:
  RawFrame() { zmq_msg_init(&message_); }
  ~RawFrame() { zmq_msg_close(&message_); }
  RawFrame(const RawFrame&) = delete;
  RawFrame& operator=(const RawFrame&) = delete;

  // False: nothing is there.
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

// As many buffers as may be in flight, all written once, sent in turn without a copy: what a sender reads is as large as
// the gradients that a store's run has in flight. Outlives the socket's context.
class SendBuffers final {
 public:
  SendBuffers(size_t bytes, size_t count);

  // False: the peer is gone. An empty `routing_id`: over a DEALER.
  [[nodiscard]] bool SendNext(void* socket, const std::string& routing_id);
  size_t bytes() const { return bytes_; }
  size_t count() const { return buffers_.size(); }

 private:
  const size_t bytes_;
  std::vector<AlignedBuffer> buffers_;
  size_t next_ = 0;
};

// Copies; for small messages. False: the peer is gone.
[[nodiscard]] bool SendSmall(void* socket, const std::string& routing_id, std::string_view bytes);
[[nodiscard]] bool SendAcknowledgements(void* socket, const std::string& routing_id,
                                        uint32_t count);
// InvalidArgument: not what OnAcknowledged may take.
[[nodiscard]] absl::Status TakeAcknowledgement(std::span<const std::byte> bytes, RawStream* stream);

// A sum over every byte, which the caller must use.
[[nodiscard]] uint64_t ReadEveryByte(std::span<const std::byte> bytes);

}  // namespace slimps

#endif  // SLIMPS_TOOLS_BENCH_TRANSPORT_RAW_ZMQ_H_
