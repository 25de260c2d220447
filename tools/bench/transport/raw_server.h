// SPDX-License-Identifier: Apache-2.0
// The server of the raw ZeroMQ measurements: one ROUTER that serves any number of clients. Each
// client asks for one of three things: the server receives its stream, or also sends a stream back,
// or answers each message with one of the same size. Owned by one thread.
//
//   SLIMPS_ASSIGN_OR_RETURN(auto server, RawServer::Bind("tcp://127.0.0.1:*"));
//   server->endpoint();   // "tcp://127.0.0.1:40213"
//   server->Serve();      // until it fails
#ifndef SLIMPS_TOOLS_BENCH_TRANSPORT_RAW_SERVER_H_
#define SLIMPS_TOOLS_BENCH_TRANSPORT_RAW_SERVER_H_

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tools/bench/transport/command.h"
#include "tools/bench/transport/raw_zmq.h"

namespace slimps {

class RawServer final {
 public:
  [[nodiscard]] static absl::StatusOr<std::unique_ptr<RawServer>> Bind(const std::string& address);

  const std::string& endpoint() const { return endpoint_; }

  // Serves until an error, which it returns.
  [[nodiscard]] absl::Status Serve();

 private:
  struct Client {
    bool echo = false;
    bool started = false;  // its first message has arrived, so the stream back may begin
    RawStream stream;
    std::optional<SendBuffers> buffers;
  };

  RawServer() : context_(zmq_ctx_new()) {}

  absl::Status HandleMessages();
  absl::Status HandleOne(const std::string& routing_id, RawFrame* frame);
  absl::Status Arm(const std::string& routing_id, const Command& command);
  absl::Status SendDue();

  std::map<std::string, Client> clients_;  // outlives the context: ZeroMQ reads their buffers
  RawContext context_;
  RawSocket socket_;
  std::string endpoint_;
  uint64_t sum_ = 0;
};

}  // namespace slimps

#endif  // SLIMPS_TOOLS_BENCH_TRANSPORT_RAW_SERVER_H_
