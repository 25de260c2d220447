// SPDX-License-Identifier: Apache-2.0
// A worker's transport that calls a hook before it sends each message.
//
//   ClusterOptions options{.wrap = Hooked({[](const Message& m) {
//     return m.header.has_pull() ? Gone() : absl::OkStatus();
//   }})};
#ifndef SLIMPS_TESTS_CLUSTER_HOOKED_TRANSPORT_H_
#define SLIMPS_TESTS_CLUSTER_HOOKED_TRANSPORT_H_

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/net/transport.h"

namespace slimps {

// Runs on the sender's thread. If it returns OK the message goes out. Otherwise Send returns its
// error. An empty hook does nothing.
using SendHook = std::function<absl::Status(const Message&)>;

class HookedTransport final : public Transport {
 public:
  HookedTransport(std::unique_ptr<Transport> inner, SendHook hook)
      : inner_(std::move(inner)), hook_(std::move(hook)) {}
  using Transport::Send;
  absl::StatusOr<std::string> Bind(std::string_view address) override {
    return inner_->Bind(address);
  }
  absl::Status Start(MessageSink* sink) override { return inner_->Start(sink); }
  absl::StatusOr<PeerId> Connect(std::string_view address) override {
    return inner_->Connect(address);
  }
  void Disconnect(PeerId peer) override { inner_->Disconnect(peer); }
  absl::Status Send(PeerId to, Message message, SendOptions options) override {
    const absl::Status hooked = hook_ ? hook_(message) : absl::OkStatus();
    return hooked.ok() ? inner_->Send(to, std::move(message), std::move(options)) : hooked;
  }
  void Stop() override { inner_->Stop(); }

 private:
  const std::unique_ptr<Transport> inner_;
  const SendHook hook_;
};

// Returns a ClusterOptions.wrap that gives worker i hooks[i].
inline auto Hooked(std::vector<SendHook> hooks) {
  return [hooks = std::move(hooks)](
             uint32_t worker, std::unique_ptr<Transport> inner) -> std::unique_ptr<Transport> {
    if (worker >= hooks.size()) return inner;
    return std::make_unique<HookedTransport>(std::move(inner), hooks[worker]);
  };
}

}  // namespace slimps

#endif  // SLIMPS_TESTS_CLUSTER_HOOKED_TRANSPORT_H_
