// SPDX-License-Identifier: Apache-2.0
// Counts what ZeroMQ holds of ours for one peer, because a higher priority can no longer overtake
// it.
//
//   SendParts(..., std::make_shared<ZmqAheadToken>(ahead, wakeup, bytes));
//   ahead->watched = true;   // from now on each release wakes the I/O thread
#ifndef SLIMPS_PROTO_NET_ZMQ_ZMQ_AHEAD_H_
#define SLIMPS_PROTO_NET_ZMQ_ZMQ_AHEAD_H_

#include <atomic>
#include <cstddef>
#include <memory>
#include <utility>

#include "proto/net/queue/wakeup.h"

namespace slimps {

// Any thread writes it: ZeroMQ releases parts on any thread.
struct ZmqAhead {
  std::atomic<size_t> bytes{0};
  std::atomic<size_t> messages{0};
  std::atomic<bool> watched{false};  // publishes that the I/O thread waits for them to fall
};

// Counts one message as ahead while ZeroMQ holds any of its parts. May be destroyed on any thread.
class ZmqAheadToken final {
 public:
  ZmqAheadToken(std::shared_ptr<ZmqAhead> ahead, std::shared_ptr<Wakeup> wakeup, size_t bytes)
      : ahead_(std::move(ahead)), wakeup_(std::move(wakeup)), bytes_(bytes) {
    ahead_->bytes += bytes_;
    ++ahead_->messages;
  }
  ~ZmqAheadToken() {
    ahead_->bytes -= bytes_;
    --ahead_->messages;
    if (ahead_->watched) wakeup_->Signal();
  }
  ZmqAheadToken(const ZmqAheadToken&) = delete;
  ZmqAheadToken& operator=(const ZmqAheadToken&) = delete;

 private:
  const std::shared_ptr<ZmqAhead> ahead_;
  const std::shared_ptr<Wakeup> wakeup_;
  const size_t bytes_;
};

}  // namespace slimps

#endif  // SLIMPS_PROTO_NET_ZMQ_ZMQ_AHEAD_H_
