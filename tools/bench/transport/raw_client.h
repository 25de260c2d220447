// SPDX-License-Identifier: Apache-2.0
// The client of the raw ZeroMQ measurements: like a worker, it has one DEALER per server.
//
//   SLIMPS_ASSIGN_OR_RETURN(auto client, RawClient::Connect({"tcp://127.0.0.1:40213"}));
//   auto seconds = client->Stream("two_way", {.bytes = 4 << 20, .count = 100, .window = 8});
//
// Owned by one thread.
#ifndef SLIMPS_TOOLS_BENCH_TRANSPORT_RAW_CLIENT_H_
#define SLIMPS_TOOLS_BENCH_TRANSPORT_RAW_CLIENT_H_

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "tools/bench/transport/raw_zmq.h"

namespace slimps {

struct RawRun {
  uint64_t bytes = 0;   // size of a message
  uint64_t count = 0;   // messages in each direction, over all servers
  uint64_t window = 1;  // messages in flight in each direction, over all servers
  // Seconds on CLOCK_MONOTONIC, so that several clients begin together. Starts at once if past.
  double start_at = 0;
};

class RawClient final {
 public:
  [[nodiscard]] static absl::StatusOr<std::unique_ptr<RawClient>> Connect(
      const std::vector<std::string>& endpoints);

  // Streams messages and returns the seconds until everything has arrived, in both directions.
  // `mode` is "one_way" (to the servers) or "two_way".
  [[nodiscard]] absl::StatusOr<double> Stream(std::string_view mode, const RawRun& run);

  // Makes round trips with the first server, one after the other, with `pause` before each.
  // Returns the microseconds of each.
  [[nodiscard]] absl::StatusOr<std::vector<double>> Ping(const RawRun& run, absl::Duration pause);

 private:
  struct Link {
    RawSocket socket;
    RawStream stream;
  };

  RawClient() : context_(zmq_ctx_new()) {}

  absl::Status Arm(std::string_view mode, const RawRun& run);
  absl::Status ArmOne(Link* link, const std::string& command);
  absl::Status SendDue();
  absl::Status Receive();
  absl::Status ReceiveFrom(Link* link);
  absl::Status AwaitAnything();

  std::optional<SendBuffers> buffers_;  // outlives the context, since ZeroMQ reads the buffers
  RawContext context_;
  std::vector<Link> links_;
  uint64_t sum_ = 0;
};

}  // namespace slimps

#endif  // SLIMPS_TOOLS_BENCH_TRANSPORT_RAW_CLIENT_H_
