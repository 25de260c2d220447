// SPDX-License-Identifier: Apache-2.0
// A Transport that goes nowhere. It keeps the messages that it is given, and a test answers them.
#ifndef SLIMPS_TESTS_WORKER_COURIER_FAKE_TRANSPORT_H_
#define SLIMPS_TESTS_WORKER_COURIER_FAKE_TRANSPORT_H_

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "proto/base/mutex.h"
#include "proto/net/transport.h"

namespace slimps {

// Thread-safe.
class FakeTransport final : public Transport {
 public:
  struct Sent {
    PeerId to;
    Message message;
  };
  using OnSend = std::function<absl::Status(PeerId, const Message&)>;

  // Sets what Send does on the sender's thread after it has kept the message. Send returns what
  // `on_send` returns. REQUIRES: called before any Send.
  void set_on_send(OnSend on_send) { on_send_ = std::move(on_send); }

  using Transport::Send;
  absl::StatusOr<std::string> Bind(std::string_view address) override {
    return std::string(address);
  }
  absl::Status Start(MessageSink*) override { return absl::OkStatus(); }
  absl::StatusOr<PeerId> Connect(std::string_view) override { return PeerId{1}; }
  absl::Status Send(PeerId to, Message message, SendOptions) override {
    {
      MutexLock lock(&mutex_);
      sent_.push_back({to, message});
      changed_.NotifyAll();
    }
    return on_send_ ? on_send_(to, message) : absl::OkStatus();
  }
  void Stop() override {}

  std::vector<Sent> sent() {
    MutexLock lock(&mutex_);
    return sent_;
  }
  bool AwaitSent(size_t count) {
    MutexLock lock(&mutex_);
    return changed_.Await(&mutex_, absl::Seconds(30),
                          [&]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return sent_.size() >= count; });
  }

 private:
  OnSend on_send_;
  Mutex mutex_;
  CondVar changed_;
  std::vector<Sent> sent_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace slimps

#endif  // SLIMPS_TESTS_WORKER_COURIER_FAKE_TRANSPORT_H_
