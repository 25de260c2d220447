// SPDX-License-Identifier: Apache-2.0
#include "worker/store/server_connections.h"

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "glog/logging.h"
#include "proto/base/simulation/mutant.h"
#include "proto/base/status_macros.h"
#include "proto/net/address.h"
#include "proto/net/membership/node_name.h"
#include "proto/net/zmq/same_host.h"

namespace slimps {
namespace {

// Refuses a server's loopback address on any machine but the server's own, which is the
// scheduler's. Other faults of the addresses show when they are used.
absl::Status CheckReachable(const wire::RosterEntry& server, const std::string& endpoint,
                            const std::string& scheduler_address) {
  const absl::StatusOr<Address> address = ParseAddress(endpoint);
  const absl::StatusOr<Address> scheduler = ParseAddress(scheduler_address);
  if (!address.ok() || address->kind != Address::Kind::kTcp || !IsLoopback(address->host) ||
      !scheduler.ok() || scheduler->kind != Address::Kind::kTcp) {
    return absl::OkStatus();
  }
  const absl::StatusOr<std::string> own = RouteAddress(scheduler->host);
  if (!own.ok() || IsLoopback(*own) || *own == ResolveForBind(scheduler->host)) {
    return absl::OkStatus();
  }
  return absl::FailedPreconditionError(absl::StrCat(
      NodeName(server.node()), " (host ", server.host(), ", pid ", server.pid(), ") listens at ",
      endpoint, ", where no other machine reaches it, and the scheduler at ", scheduler->host,
      " is on another machine than this worker: start the server with --bind and an address that "
      "this worker reaches, and keys or --insecure"));
}

}  // namespace

ServerConnections::ServerConnections(Transport* transport, const Membership* membership,
                                     const KVStoreOptions* options)
    : transport_(transport),
      membership_(membership),
      options_(*options),
      servers_(options->num_servers) {}

absl::Status ServerConnections::Connect(const wire::Roster& roster) {
  for (const wire::RosterEntry& entry : roster.nodes()) {
    if (entry.node().role() == wire::SERVER) SLIMPS_RETURN_IF_ERROR(ConnectTo(entry));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<ServerConnections::Restarted>> ServerConnections::Follow(
    const wire::Roster& roster) {
  std::vector<Restarted> all;
  for (const wire::RosterEntry& entry : roster.nodes()) {
    const uint32_t rank = entry.node().rank();
    if (entry.node().role() != wire::SERVER || rank >= options_.num_servers) continue;
    Restarted restarted{.server = rank};
    {
      MutexLock lock(&mutex_);
      if (entry.restarts() <= servers_[rank].restarts) continue;
      if (simulation::Is(Mutant::kRestartUnnoticed)) continue;
      restarted.former = servers_[rank].peer;
    }
    SLIMPS_RETURN_IF_ERROR(ConnectTo(entry));
    restarted.peer = PeerOf(rank);
    all.push_back(restarted);
    LOG(WARNING) << NodeName(entry.node()) << " was started again (host " << entry.host()
                 << ", pid " << entry.pid() << "): sending what its snapshot lacks";
  }
  return all;
}

absl::Status ServerConnections::ConnectTo(const wire::RosterEntry& entry) {
  const uint32_t rank = entry.node().rank();
  if (rank >= options_.num_servers) {
    return absl::InvalidArgumentError(absl::StrCat("the roster has a server of rank ", rank,
                                                   ", expected below ", options_.num_servers));
  }
  if (entry.endpoints().empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("server ", rank, " has no endpoint in the roster"));
  }
  const std::vector<std::string> endpoints(entry.endpoints().begin(), entry.endpoints().end());
  SLIMPS_ASSIGN_OR_RETURN(const std::string endpoint,
                          ChooseEndpoint(endpoints, UsedSameHost(options_)));
  SLIMPS_RETURN_IF_ERROR(CheckReachable(entry, endpoint, options_.scheduler_address));
  SLIMPS_ASSIGN_OR_RETURN(const std::string address,
                          WithKey(endpoint, absl::BytesToHexString(entry.public_key())));
  SLIMPS_ASSIGN_OR_RETURN(const PeerId peer, transport_->Connect(address));
  {
    MutexLock lock(&mutex_);
    servers_[rank] = {
        .peer = peer, .is_here = endpoint.starts_with("ipc://"), .restarts = entry.restarts()};
  }
  Greet(peer);
  return absl::OkStatus();
}

void ServerConnections::Greet(PeerId server) {
  Message greeting;
  greeting.header = membership_->MakeHeader();
  greeting.header.mutable_heartbeat();
  const absl::Status sent = transport_->Send(server, std::move(greeting),
                                             {.priority = std::numeric_limits<int64_t>::max()});
  if (!sent.ok()) LOG(WARNING) << "cannot send the first message to a server: " << sent;
}

PeerId ServerConnections::PeerOf(size_t server) const {
  MutexLock lock(&mutex_);
  return servers_[server].peer;
}

std::vector<PeerId> ServerConnections::Peers() const {
  MutexLock lock(&mutex_);
  std::vector<PeerId> peers;
  for (const Server& server : servers_) peers.push_back(server.peer);
  return peers;
}

bool ServerConnections::Has(PeerId peer) const {
  MutexLock lock(&mutex_);
  return std::ranges::any_of(servers_, [peer](const Server& one) { return one.peer == peer; });
}

uint64_t ServerConnections::restarts() const {
  MutexLock lock(&mutex_);
  uint64_t restarts = 0;
  for (const Server& server : servers_) restarts += server.restarts;
  return restarts;
}

bool ServerConnections::CrossesNetwork(const TensorPlan& tensor) const {
  std::vector<bool> here;
  {
    MutexLock lock(&mutex_);
    for (const Server& server : servers_) here.push_back(server.is_here);
  }
  return std::ranges::all_of(here, [](bool one) { return one; }) ||
         std::ranges::any_of(tensor.partitions, [&](const PartitionPlan& partition) {
           return !here[partition.server];
         });
}

}  // namespace slimps
