// SPDX-License-Identifier: Apache-2.0
// A transport whose network stands still. Tests use it to see what is sent, and when.
#ifndef SLIMPS_TESTS_WORKER_COURIER_HOLDING_TRANSPORT_H_
#define SLIMPS_TESTS_WORKER_COURIER_HOLDING_TRANSPORT_H_

#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "proto/base/clock.h"
#include "proto/base/mutex.h"
#include "proto/net/transport.h"

namespace slimps {

// Keeps the messages that it is given. Hands none over until the test says so. Thread-safe.
class HoldingTransport final : public Transport {
 public:
  absl::StatusOr<std::string> Bind(std::string_view address) override {
    return std::string(address);
  }
  absl::Status Start(MessageSink*) override { return absl::OkStatus(); }
  absl::StatusOr<PeerId> Connect(std::string_view) override { return PeerId{7}; }
  absl::Status Send(PeerId to, Message message, SendOptions options) override {
    if (before_send) before_send();
    MutexLock lock(&mutex_);
    held_.emplace_back(std::move(message), std::move(options));
    to_.push_back(to);
    changed_.NotifyAll();
    return full_ ? absl::ResourceExhaustedError("full") : absl::OkStatus();
  }
  void Stop() override {}

  std::function<void()> before_send;  // set it while no thread sends

  size_t sent() {
    MutexLock lock(&mutex_);
    return held_.size();
  }
  bool AwaitSent(size_t count) {
    MutexLock lock(&mutex_);
    return changed_.Await(&mutex_, absl::Seconds(30), [&] { return held_.size() >= count; });
  }

  // Tells the sender of message `index` that its first byte has gone out at `when`.
  void HandOver(size_t index, SteadyTime when = MachineClock()->Now()) {
    std::function<void(SteadyTime)> told;
    {
      MutexLock lock(&mutex_);
      told = held_.at(index).second.on_handed_over;
    }
    told(when);
  }
  PeerId to(size_t index) {
    MutexLock lock(&mutex_);
    return to_.at(index);
  }
  wire::Header header(size_t index) {
    MutexLock lock(&mutex_);
    return held_.at(index).first.header;
  }
  std::vector<Payload> payloads(size_t index) {
    MutexLock lock(&mutex_);
    return held_.at(index).first.payloads;
  }
  // Drops the payloads of message `index`, as a transport does once they have gone out.
  void DropPayloads(size_t index) {
    std::vector<Payload> dropped;  // destroyed without the lock: their owners are told
    MutexLock lock(&mutex_);
    dropped.swap(held_.at(index).first.payloads);
  }
  int64_t priority(size_t index) {
    MutexLock lock(&mutex_);
    return held_.at(index).second.priority;
  }
  void set_full(bool full) {
    MutexLock lock(&mutex_);
    full_ = full;
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  bool full_ = false;
  std::vector<std::pair<Message, SendOptions>> held_;
  std::vector<PeerId> to_;
};

}  // namespace slimps

#endif  // SLIMPS_TESTS_WORKER_COURIER_HOLDING_TRANSPORT_H_
