// SPDX-License-Identifier: Apache-2.0
// A transport of a simulated node. Tells what arrives behind the faults, and passes on what is not
// refused.
//
//   WatchedTransport transport(std::move(inner), plan, Payloads::kCopied, Rosters::kInTime, watch);
#ifndef SLIMPS_TESTS_SIMULATION_WATCHED_TRANSPORT_H_
#define SLIMPS_TESTS_SIMULATION_WATCHED_TRANSPORT_H_

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "proto/net/testing/fault_injection.h"
#include "proto/net/transport.h"
#include "proto/slimps.pb.h"

namespace slimps {

class WatchedTransport final : public Transport, private MessageSink {
 public:
  using Watch = std::function<bool(const wire::Header&)>;
  enum class Payloads { kShared, kCopied };
  enum class Rosters { kInTime, kLate };  // kLate: behind the next message that is no heartbeat

  WatchedTransport(std::unique_ptr<Transport> inner, const FaultPlan& plan, Payloads payloads,
                   Rosters rosters, Watch watch)
      : inner_(std::move(inner)),
        faulty_(inner_.get(), plan),
        payloads_(payloads),
        rosters_(rosters),
        watch_(std::move(watch)) {}
  ~WatchedTransport() override { Stop(); }

  using Transport::Send;
  absl::StatusOr<std::string> Bind(std::string_view address) override {
    return faulty_.Bind(address);
  }
  absl::Status Start(MessageSink* sink) override {
    sink_ = sink;
    return faulty_.Start(this);
  }
  absl::StatusOr<PeerId> Connect(std::string_view address) override {
    return faulty_.Connect(address);
  }
  void Disconnect(PeerId peer) override { faulty_.Disconnect(peer); }
  absl::Status Send(PeerId to, Message message, SendOptions options) override {
    for (Payload& payload : message.payloads) {
      if (payloads_ == Payloads::kCopied) payload = Payload::Copy(payload.bytes());
    }
    return faulty_.Send(to, std::move(message), std::move(options));
  }
  void Stop() override { faulty_.Stop(); }
  void Admit(PeerId peer) override { faulty_.Admit(peer); }
  SteadyTime DeliveredUntil() override { return faulty_.DeliveredUntil(); }
  TransportStats stats() const override { return faulty_.stats(); }

 private:
  void OnMessage(PeerId from, Message message) override {
    if (!watch_(message.header)) return;
    if (rosters_ == Rosters::kLate && message.header.has_roster() && !late_.has_value()) {
      late_.emplace(from, std::move(message));
      return;
    }
    const bool says_little = message.header.has_heartbeat();
    sink_->OnMessage(from, std::move(message));
    if (says_little) return;
    if (auto roster = std::exchange(late_, std::nullopt)) {
      sink_->OnMessage(roster->first, std::move(roster->second));
    }
  }
  void OnBadFrame(PeerId from, const absl::Status& why) override { sink_->OnBadFrame(from, why); }
  void OnUndeliverable(PeerId to, const absl::Status& why) override {
    sink_->OnUndeliverable(to, why);
  }
  void OnConnectionLost(PeerId to) override { sink_->OnConnectionLost(to); }

  const std::unique_ptr<Transport> inner_;
  FaultyTransport faulty_;
  const Payloads payloads_;
  const Rosters rosters_;
  const Watch watch_;
  MessageSink* sink_ = nullptr;
  std::optional<std::pair<PeerId, Message>> late_;
};

}  // namespace slimps

#endif  // SLIMPS_TESTS_SIMULATION_WATCHED_TRANSPORT_H_
