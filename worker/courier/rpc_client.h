// SPDX-License-Identifier: Apache-2.0
// RpcClient: asks one question and waits for its answer, repeating the question until a deadline.
// It is for the rare control messages (DeclareKeys, SetOptimizer, Leave). Tensors go through the
// Courier.
//
//   RpcClient rpc(transport, absl::Seconds(1));
//   SLIMPS_ASSIGN_OR_RETURN(wire::Header answer,
//                           rpc.Call(scheduler, question, timeout, "leaving"));
//
// Every question asked here is idempotent at its receiver, so it may be repeated. Thread-safe. The
// I/O thread, which brings the answers, must not use Call.
#ifndef SLIMPS_WORKER_COURIER_RPC_CLIENT_H_
#define SLIMPS_WORKER_COURIER_RPC_CLIENT_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "proto/base/mutex.h"
#include "proto/net/transport.h"

namespace slimps {

class RpcClient final {
 public:
  // Says if the peer is a server that may be started again. kMayReturn: the question is repeated
  // where Unavailable or NotFound would be returned. DeadlineExceeded then says the last
  // Unavailable, if there was one.
  enum class Patience { kNone, kMayReturn };

  // `transport` and `clock` must outlive the client.
  RpcClient(Transport* transport, absl::Duration retry_interval,
            const Clock* clock = MachineClock())
      : transport_(transport), retry_interval_(retry_interval), clock_(clock) {}

  // Sends `question` repeatedly until an answer with its request_id comes. Call sets that id. All
  // errors name `what`.
  // DeadlineExceeded: no answer came within `timeout`.
  // The status of an Error, or of an Ack with a bad status, is returned.
  // A failure to send is returned, except a full queue, which is retried.
  // The status of FailAll is returned.
  [[nodiscard]] absl::StatusOr<wire::Header> Call(PeerId to, wire::Header question,
                                                  absl::Duration timeout, const std::string& what) {
    return HeaderOf(Exchange([to] { return to; }, {.header = std::move(question), .payloads = {}},
                             timeout, what, Patience::kNone));
  }

  // Does what Call does. The question may have payloads, and its answer too. `find` returns the
  // peer's present connection.
  [[nodiscard]] absl::StatusOr<Message> Exchange(const std::function<PeerId()>& find,
                                                 Message question, absl::Duration timeout,
                                                 const std::string& what, Patience patience);

  // Returns true if `message` answered a question of this client.
  bool HandleMessage(const Message& message);

  // Makes every call, now and later, return the first `why`.
  void FailAll(const absl::Status& why);

 private:
  struct Pending {
    Patience patience = Patience::kNone;
    std::optional<Message> answer;
    std::string refusal;  // the message of the last Unavailable
  };

  static absl::StatusOr<wire::Header> HeaderOf(absl::StatusOr<Message> answer) {
    if (!answer.ok()) return answer.status();
    return std::move(answer->header);
  }

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

#endif  // SLIMPS_WORKER_COURIER_RPC_CLIENT_H_
