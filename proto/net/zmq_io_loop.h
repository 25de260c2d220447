// The I/O thread of a ZmqTransport: owns all its sockets and is the only one to touch them. One
// turn: open new connections, hand over what may leave, deliver what is due, wait for sockets,
// timer or wake-up, read.
#ifndef SLIMPS_PROTO_NET_ZMQ_IO_LOOP_H_
#define SLIMPS_PROTO_NET_ZMQ_IO_LOOP_H_

#include <atomic>
#include <cstddef>
#include <list>
#include <memory>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "absl/time/time.h"
#include "proto/net/arrival_queue.h"
#include "proto/net/payload_sharing.h"
#include "proto/net/peer_table.h"
#include "proto/net/received_parts.h"
#include "proto/net/transport_state.h"
#include "proto/net/zmq_options.h"
#include "proto/net/zmq_socket.h"

namespace slimps {

// Owned by the I/O thread, but for the constructor.
class ZmqIoLoop final {
 public:
  // `bound` are ROUTER sockets that listen already. `state` and `sink` outlive the loop.
  ZmqIoLoop(const ZmqTransportOptions& options, TransportState* state, MessageSink* sink,
            ZmqContext context, std::vector<ZmqSocket> bound);

  // Returns after state->Stop(), when all that was accepted is sent or the linger time is over.
  void Run();

 private:
  // One socket: a ROUTER with many peers, or a DEALER with the one that it was made for.
  struct Link {
    ZmqSocket socket;
    bool is_router = false;
    bool is_ipc = false;
    PeerTable peers;  // of a ROUTER
    PeerId peer{};    // of a DEALER
    bool readable = false;
    bool writable = false;
  };
  // What ZeroMQ holds of ours for one peer. Written by any thread.
  struct Ahead {
    std::atomic<size_t> bytes{0};
    std::atomic<size_t> messages{0};
    std::atomic<bool> watched{false};  // publishes that the I/O thread waits for less
  };
  class AheadToken;
  enum class Held { kNo, kUnwritable, kAhead };
  struct Route {
    Link* link = nullptr;
    std::string routing_id;  // empty for a DEALER
    std::shared_ptr<Ahead> ahead;
    Held held = Held::kNo;
    absl::Time retry_at;  // of a ROUTER's peer that is unwritable
  };

  void OpenConnections();
  bool IsAhead(const Ahead& ahead) const;
  void ReleaseHeld(absl::Time now);
  void SendControls(absl::Time now);
  void SendReady(absl::Time now);
  void HandOver(Outgoing message, absl::Time now);
  void HoldUnwritable(PeerId peer, Route* route, absl::Time now);
  void HoldIfAhead(PeerId peer, Route* route);
  void DropPeer(PeerId peer, const absl::Status& why);
  void ReportUndeliverable(PeerId peer, size_t messages, const absl::Status& why);

  void Wait(absl::Time now);
  absl::Time NextWake() const;
  void ReceiveReady();
  bool ReceiveOne(Link* link);
  PeerId PeerOf(Link* link, const ZmqPart& routing_id);
  void TakeParts(const Link& link, PeerId from, ReceivedParts parts, size_t parts_too_many);
  // Adds what was borrowed to `bytes`.
  absl::StatusOr<Message> ParseParts(const Link& link, PeerId from, ReceivedParts parts,
                                     size_t* bytes);
  void ReportBadFrame(PeerId from, const absl::Status& why);
  void DeliverDue(absl::Time now);
  bool Finished(absl::Time now);
  void Close(absl::Time now);

  const ZmqTransportOptions options_;
  TransportState* const state_;  // the transport's
  MessageSink* const sink_;      // the transport's user's
  ZmqContext context_;           // before the sockets: it goes after them
  std::list<Link> links_;        // a list, for Routes point into it
  std::unordered_map<PeerId, Route> routes_;
  std::set<PeerId> held_;
  ArrivalQueue arrivals_;
  PayloadSharing sharing_;
  Timer timer_;
  bool more_to_send_ = false;
  absl::Time stop_by_ = absl::InfiniteFuture();
  absl::Time returns_by_ =
      absl::InfiniteFuture();  // when stopping: what is lent is waited for till then
};

}  // namespace slimps

#endif  // SLIMPS_PROTO_NET_ZMQ_IO_LOOP_H_
