// RpcClient: one question, one answer, with repetition until a deadline. For the rare control
// messages (DeclareKeys, SetOptimizer, Leave); tensors go through the Courier.
//
// Every question asked here is idempotent at its receiver. Thread-safe; Call may not be used on the
// I/O thread.
#ifndef SLIMPS_WORKER_RPC_CLIENT_H_
#define SLIMPS_WORKER_RPC_CLIENT_H_

#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "proto/base/mutex.h"
#include "proto/net/transport.h"

namespace slimps {

class RpcClient final {
 public:
  // `transport` and `clock` must outlive the client.
  RpcClient(Transport* transport, absl::Duration retry_interval,
            const Clock* clock = MachineClock())
      : transport_(transport), retry_interval_(retry_interval), clock_(clock) {}

  // Sends `question` (its request_id is set here) until an answer of the same id comes. An answer
  // that is an Error or an Ack with a bad status is returned as that status, as is a failure to send
  // (but for a full queue). All of them, and DeadlineExceeded, name `what`.
  [[nodiscard]] absl::StatusOr<wire::Header> Call(PeerId to, wire::Header question,
                                                  absl::Duration timeout, const std::string& what);
  // True: `message` answered a question of this client.
  bool HandleMessage(const Message& message);
  void FailAll(const absl::Status& why);

 private:
  struct Pending {
    std::optional<wire::Header> answer;
  };

  Transport* const transport_;
  const absl::Duration retry_interval_;
  const Clock* const clock_;
  Mutex mutex_;
  uint64_t next_id_ ABSL_GUARDED_BY(mutex_) = 1;
  std::unordered_map<uint64_t, Pending> pending_ ABSL_GUARDED_BY(mutex_);
  absl::Status failed_ ABSL_GUARDED_BY(mutex_);
  CondVar settled_;
};

}  // namespace slimps

#endif  // SLIMPS_WORKER_RPC_CLIENT_H_
