// SPDX-License-Identifier: Apache-2.0
// A MessageSink that keeps what it receives and lets a test wait for it.
#ifndef SLIMPS_TESTS_PROTO_NET_RECORDING_SINK_H_
#define SLIMPS_TESTS_PROTO_NET_RECORDING_SINK_H_

#include <functional>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "proto/base/clock.h"
#include "proto/base/mutex.h"
#include "proto/net/transport.h"

namespace slimps {

// Thread-safe.
class RecordingSink final : public MessageSink {
 public:
  struct Received {
    PeerId from{};
    Message message;
    SteadyTime at;
  };

  // Called on the I/O thread after each message is kept. Set before Start.
  std::function<void(PeerId, const Message&)> on_message;

  void OnMessage(PeerId from, Message message) override {
    {
      MutexLock lock(&mutex_);
      received_.push_back({from, message, MachineClock()->Now()});
      changed_.NotifyAll();
    }
    if (on_message) on_message(from, message);
  }
  void OnBadFrame(PeerId, const absl::Status& why) override {
    MutexLock lock(&mutex_);
    bad_frames_.push_back(why);
    changed_.NotifyAll();
  }
  void OnUndeliverable(PeerId to, const absl::Status& why) override {
    MutexLock lock(&mutex_);
    undeliverable_.emplace_back(to, why);
    changed_.NotifyAll();
  }
  void OnConnectionLost(PeerId to) override {
    MutexLock lock(&mutex_);
    lost_.push_back(to);
    changed_.NotifyAll();
  }

  bool WaitForMessages(size_t count, absl::Duration timeout = absl::Seconds(30)) {
    return WaitFor([&]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return received_.size() >= count; },
                   timeout);
  }
  bool WaitForBadFrames(size_t count, absl::Duration timeout = absl::Seconds(30)) {
    return WaitFor([&]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return bad_frames_.size() >= count; },
                   timeout);
  }
  bool WaitForUndeliverable(size_t count, absl::Duration timeout = absl::Seconds(30)) {
    return WaitFor([&]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return undeliverable_.size() >= count; },
                   timeout);
  }

  bool WaitForLost(size_t count, absl::Duration timeout = absl::Seconds(30)) {
    return WaitFor([&]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return lost_.size() >= count; }, timeout);
  }

  std::vector<Received> received() const {
    MutexLock lock(&mutex_);
    return received_;
  }
  std::vector<PeerId> lost() const {
    MutexLock lock(&mutex_);
    return lost_;
  }
  std::vector<absl::Status> bad_frames() const {
    MutexLock lock(&mutex_);
    return bad_frames_;
  }
  std::vector<std::pair<PeerId, absl::Status>> undeliverable() const {
    MutexLock lock(&mutex_);
    return undeliverable_;
  }

 private:
  bool WaitFor(const std::function<bool()>& condition, absl::Duration timeout) {
    const SteadyTime deadline = MachineClock()->Now() + timeout;
    MutexLock lock(&mutex_);
    while (!condition()) {
      const absl::Duration left = deadline - MachineClock()->Now();
      if (left <= absl::ZeroDuration()) return false;
      changed_.WaitFor(&mutex_, left);
    }
    return true;
  }

  mutable Mutex mutex_;
  CondVar changed_;
  std::vector<Received> received_ ABSL_GUARDED_BY(mutex_);
  std::vector<absl::Status> bad_frames_ ABSL_GUARDED_BY(mutex_);
  std::vector<PeerId> lost_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::pair<PeerId, absl::Status>> undeliverable_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace slimps

#endif  // SLIMPS_TESTS_PROTO_NET_RECORDING_SINK_H_
