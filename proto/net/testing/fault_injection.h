// SPDX-License-Identifier: Apache-2.0
// A transport that does to messages what bad networks do, for tests. It follows a seeded plan.
// Faults strike on arrival. Each message draws once for each kind of fault, so a run repeats for
// the same seed and the same order of arrival.
//
//   FaultyTransport faulty(&inner, {.seed = 7, .drop = 0.05, .duplicate = 0.05});
#ifndef SLIMPS_PROTO_NET_TESTING_FAULT_INJECTION_H_
#define SLIMPS_PROTO_NET_TESTING_FAULT_INJECTION_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <utility>

#include "proto/net/transport.h"

namespace slimps {

// Each is a probability from 0 to 1. They are tried in this order. A message suffers at most one
// fault.
struct FaultPlan {
  uint64_t seed = 1;
  double drop = 0;
  double duplicate = 0;
  // The last payload loses its last byte. The receiver's checks then refuse the frame.
  double truncate = 0;
  double reorder = 0;  // held back until the next message has passed
  double delay = 0;    // held back until delay_messages later ones have passed
  size_t delay_messages = 4;
  // Called with each fault ("drops") and the message that it strikes. Null: nobody asks.
  std::function<void(const char* fault, const Message& message)> on_fault;
  // What has ended the faults. Null: nothing does.
  std::shared_ptr<const std::atomic<bool>> ceased;
};

// Owned by the I/O thread of the wrapped transport.
class FaultySink final : public MessageSink {
 public:
  FaultySink(MessageSink* sink, const FaultPlan& plan)
      : sink_(sink), plan_(plan), random_(plan.seed) {}

  void OnMessage(PeerId from, Message message) override;
  void OnBadFrame(PeerId from, const absl::Status& why) override { sink_->OnBadFrame(from, why); }
  void OnConnectionLost(PeerId to) override { sink_->OnConnectionLost(to); }
  void OnUndeliverable(PeerId to, const absl::Status& why) override {
    sink_->OnUndeliverable(to, why);
  }
  void OnOutOfMemory(const std::bad_alloc& error) override { sink_->OnOutOfMemory(error); }

 private:
  struct HeldBack {
    PeerId from{};
    Message message;
    size_t wait = 0;  // arrivals until it is delivered
  };

  bool Strikes(double probability);
  void Note(const char* fault, const Message& message) const;
  bool ceased() const { return plan_.ceased != nullptr && *plan_.ceased; }
  void DeliverTruncated(PeerId from, Message message);
  void ReleaseHeldBack();

  MessageSink* const sink_;  // the user's, which outlives the transport
  const FaultPlan plan_;
  std::mt19937_64 random_;
  std::deque<HeldBack> held_back_;
};

// Thread-safe.
class FaultyTransport final : public Transport {
 public:
  // REQUIRES: `inner` outlives this transport.
  FaultyTransport(Transport* inner, const FaultPlan& plan) : inner_(inner), plan_(plan) {}
  ~FaultyTransport() override { Stop(); }

  using Transport::Send;
  [[nodiscard]] absl::StatusOr<std::string> Bind(std::string_view address) override {
    return inner_->Bind(address);
  }
  [[nodiscard]] absl::Status Start(MessageSink* sink) override;
  [[nodiscard]] absl::StatusOr<PeerId> Connect(std::string_view address) override {
    return inner_->Connect(address);
  }
  void Disconnect(PeerId peer) override { inner_->Disconnect(peer); }
  [[nodiscard]] absl::Status Send(PeerId to, Message message, SendOptions options) override {
    return inner_->Send(to, std::move(message), std::move(options));
  }
  void Stop() override { inner_->Stop(); }
  void Admit(PeerId peer) override { inner_->Admit(peer); }
  [[nodiscard]] SteadyTime DeliveredUntil() override { return inner_->DeliveredUntil(); }
  [[nodiscard]] TransportStats stats() const override { return inner_->stats(); }

 private:
  Transport* const inner_;  // the user's
  const FaultPlan plan_;
  std::unique_ptr<FaultySink> sink_;  // set by Start, before the I/O thread runs
};

}  // namespace slimps

#endif  // SLIMPS_PROTO_NET_TESTING_FAULT_INJECTION_H_
