// SPDX-License-Identifier: Apache-2.0
// Transport between threads of one process, for tests. It builds and parses
// messages as on a real wire, so the same checks run. Both sides share the bytes of payloads.
//
//   auto network = std::make_shared<InProcessNetwork>();
//   InProcessTransport server(network, TransportOptions{}), worker(network, TransportOptions{});
//   SLIMPS_ASSIGN_OR_RETURN(std::string address, server.Bind("inproc://server-0"));
//   // Bind("inproc://*") chooses a name.
#ifndef SLIMPS_PROTO_NET_TESTING_IN_PROCESS_TRANSPORT_H_
#define SLIMPS_PROTO_NET_TESTING_IN_PROCESS_TRANSPORT_H_

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "proto/base/clock.h"
#include "proto/base/mutex.h"
#include "proto/base/thread.h"
#include "proto/net/queue/arrival_queue.h"
#include "proto/net/queue/transport_state.h"
#include "proto/net/testing/in_process_network.h"
#include "proto/net/transport.h"

namespace slimps {

// Thread-safe.
class InProcessTransport final : public Transport {
 public:
  InProcessTransport(std::shared_ptr<InProcessNetwork> network, const TransportOptions& options);
  ~InProcessTransport() override;  // stops

  using Transport::Send;
  [[nodiscard]] absl::StatusOr<std::string> Bind(std::string_view address) override;
  [[nodiscard]] absl::Status Start(MessageSink* sink) override;
  // The address need not be bound yet: messages wait until it is.
  [[nodiscard]] absl::StatusOr<PeerId> Connect(std::string_view address) override;
  void Disconnect(PeerId peer) override { state_.Disconnect(peer); }
  [[nodiscard]] absl::Status Send(PeerId to, Message message, SendOptions options) override;
  // REQUIRES: not called on the I/O thread.
  void Stop() override;
  [[nodiscard]] SteadyTime DeliveredUntil() override { return state_.DeliveredUntil(); }
  [[nodiscard]] TransportStats stats() const override;

 private:
  struct Route {
    std::string address;                  // empty if the other side connected to us
    std::weak_ptr<InProcessInbox> inbox;  // the other side's
    std::optional<PeerId> remote;         // the other side's number for the connection
  };

  void Run();
  void OpenConnections();
  std::shared_ptr<InProcessInbox> InboxOf(Route* route);
  void ReleaseHeld(SteadyTime now);
  void SendReady(SteadyTime now);
  void HandOver(Outgoing message, SteadyTime now);
  void DropPeer(PeerId peer);
  void ReportUndeliverable(PeerId peer, const char* why);
  void Wait();
  void ReceiveReady();
  void TakePacket(Packet packet);
  void DeliverDue(SteadyTime now);
  bool Finished(SteadyTime now);

  const TransportOptions options_;
  const std::shared_ptr<InProcessNetwork> network_;
  TransportState state_;
  const std::shared_ptr<InProcessInbox> inbox_;

  Mutex mutex_;  // guards starting and stopping
  bool started_ ABSL_GUARDED_BY(mutex_) = false;
  Thread io_thread_ ABSL_GUARDED_BY(mutex_);

  // Owned by the I/O thread from Start on.
  MessageSink* sink_ = nullptr;
  std::map<PeerId, Route> routes_;
  std::map<std::pair<uint64_t, PeerId>, PeerId> accepted_;  // (inbox id, its number) to our number
  std::set<PeerId> held_;
  ArrivalQueue arrivals_;
  bool more_to_do_ = false;
  SteadyTime stop_by_ = SteadyTime::InfiniteFuture();
};

}  // namespace slimps

#endif  // SLIMPS_PROTO_NET_TESTING_IN_PROCESS_TRANSPORT_H_
