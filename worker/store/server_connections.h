// SPDX-License-Identifier: Apache-2.0
// The connections of a worker to its job's servers. A server that was started again is reached at a
// new one.
//
//   SLIMPS_RETURN_IF_ERROR(servers.Connect(membership.roster()));
//   transport.Send(servers.PeerOf(rank), ...);
//   for (const auto& again : *servers.Follow(membership.roster())) ...   // whenever one has come
//
// Thread-safe. Connect and Follow are called by one thread at a time.
#ifndef SLIMPS_WORKER_STORE_SERVER_CONNECTIONS_H_
#define SLIMPS_WORKER_STORE_SERVER_CONNECTIONS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/base/mutex.h"
#include "proto/net/membership/membership.h"
#include "proto/net/transport.h"
#include "worker/store_options.h"
#include "worker/tensor/key_table.h"

namespace slimps {

class ServerConnections final {
 public:
  // A server with a new process.
  struct Restarted {
    uint32_t server = 0;
    PeerId peer{};
    PeerId former{};  // nothing comes from there any more
  };

  // REQUIRES: the arguments outlive this.
  ServerConnections(Transport* transport, const Membership* membership,
                    const KVStoreOptions* options);

  // Connects to the servers of the first complete roster.
  // InvalidArgument: the roster makes no sense.
  // FailedPrecondition: a server listens where this machine does not reach it.
  [[nodiscard]] absl::Status Connect(const wire::Roster& roster);

  // Connects to the servers that were started again since the last roster. Errors are Connect's.
  [[nodiscard]] absl::StatusOr<std::vector<Restarted>> Follow(const wire::Roster& roster);

  // Tells a server who this worker is, before anything else on a connection: a server closes a
  // connection on which an unknown peer sends much.
  void Greet(PeerId server);

  PeerId PeerOf(size_t server) const;
  std::vector<PeerId> Peers() const;  // by rank
  bool Has(PeerId peer) const;        // false: it is a former process's, or no server's

  // Returns how often servers were started again so far.
  uint64_t restarts() const;

  // True if the time to send the tensor should count for the threshold table: some of its
  // partitions are on another machine, or all servers are on this one.
  bool CrossesNetwork(const TensorPlan& tensor) const;

 private:
  struct Server {
    PeerId peer{};
    bool is_here = false;  // on this machine, and not reached over the network
    uint32_t restarts = 0;
  };

  absl::Status ConnectTo(const wire::RosterEntry& entry);

  Transport* const transport_;
  const Membership* const membership_;
  const KVStoreOptions& options_;
  mutable Mutex mutex_;
  std::vector<Server> servers_ ABSL_GUARDED_BY(mutex_);  // by rank
};

}  // namespace slimps

#endif  // SLIMPS_WORKER_STORE_SERVER_CONNECTIONS_H_
