// SPDX-License-Identifier: Apache-2.0
// ServerNode: a server as a member of a job. It passes messages to the membership first and then to
// the service. When the membership learns that the job has ended, or that a node is lost, Serve
// answers every worker that waits and returns.
//
//   transport.Bind(...);
//   ServerNode node(&transport, membership_options, server_options, &clock);  // options: endpoints
//   return node.Serve();      // joins, serves, returns how the job ended
//
// Thread-safe: Serve on one thread, RequestStop from any.
#ifndef SLIMPS_SERVER_SERVICE_SERVER_NODE_H_
#define SLIMPS_SERVER_SERVICE_SERVER_NODE_H_

#include <optional>

#include "absl/status/status.h"
#include "proto/base/clock.h"
#include "proto/base/mutex.h"
#include "proto/net/membership/membership.h"
#include "proto/net/transport.h"
#include "server/service/beginning.h"
#include "server/service/server_service.h"
#include "watch/node_report.pb.h"

namespace slimps {

class ServerNode final : private MessageSink {
 public:
  // REQUIRES: `transport` is bound and not started; it and `clock` outlive the node.
  ServerNode(Transport* transport, const MembershipOptions& membership,
             const ServerOptions& options, const Clock* clock);

  // Goes on from `beginning` (beginning.h).
  ServerNode(Transport* transport, const MembershipOptions& membership,
             const ServerOptions& options, const Clock* clock, Beginning beginning);
  ~ServerNode() override;

  // Joins and serves until the job ends. Every worker that still waited has been answered by then.
  // Returns OK if the job ended in order. Otherwise returns why: could not join, a node was lost,
  // RequestStop's reason, or that another process has its place (FailedPrecondition).
  [[nodiscard]] absl::Status Serve();

  // Ends Serve with `why`; OK means in order. The first reason holds.
  void RequestStop(const absl::Status& why);

  // True if Serve has joined the job. RequestStop cannot cut joining short.
  bool joined() const;
  uint32_t rank() const { return membership_.rank(); }  // REQUIRES: joined()
  ServerCounters counters() const { return service_.counters(); }

  // Returns what the server says of itself while the job runs (ServerService::Report). Heartbeats
  // carry it where the scheduler wants that.
  watch::NodeReport Report() const { return service_.Report(); }

 private:
  void OnMessage(PeerId from, Message message) override;
  void OnBadFrame(PeerId from, const absl::Status& why) override;
  void OnUndeliverable(PeerId to, const absl::Status& why) override;

  Transport* const transport_;
  Membership membership_;
  ServerService service_;

  mutable Mutex mutex_;
  CondVar changed_;
  bool joined_ ABSL_GUARDED_BY(mutex_) = false;
  std::optional<absl::Status> ended_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace slimps

#endif  // SLIMPS_SERVER_SERVICE_SERVER_NODE_H_
