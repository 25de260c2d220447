// SPDX-License-Identifier: Apache-2.0
// The nodes of a simulated job, each as its program would run it. They may crash at any choice
// point, and are started again, as by `slimps launch --restart`.
//
//   SimulatedCluster cluster(options);
//   cluster.Run([&](KVStore& store) { ... });  // on each process of a worker
//
// A node shares no memory with others where that would show: payloads are copied where nodes may
// crash, or where the room for them is small.
#ifndef SLIMPS_TESTS_SIMULATION_SIMULATED_CLUSTER_H_
#define SLIMPS_TESTS_SIMULATION_SIMULATED_CLUSTER_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "proto/base/thread.h"
#include "proto/net/testing/fault_injection.h"
#include "proto/net/testing/in_process_network.h"
#include "proto/net/transport.h"
#include "server/round/waiting_bytes.h"
#include "tests/simulation/fault_table.h"
#include "tests/simulation/job_plan.h"
#include "tests/simulation/simulated_disk.h"
#include "worker/kvstore.h"
#include "worker/store_options.h"

namespace slimps {

struct SimulatedClusterOptions {
  uint32_t workers = 4;
  uint32_t servers = 2;
  wire::StoreMode mode = wire::DIST_SYNC;
  size_t shard_threads = 1;
  KVStoreOptions store;  // the cluster fills in the address and the counts
  FaultPlan faults;      // in what arrives anywhere; the seed is offset for each node
  absl::Duration latency;
  CrashPlan crashes;
  Troubles troubles;
  std::string folder;      // for snapshots and the journal
  size_t round_bytes = 0;  // of one worker's gradients for one round, in fp32
};

// Owned by the run: one thread of it goes on at a time.
class SimulatedCluster final {
 public:
  explicit SimulatedCluster(const SimulatedClusterOptions& options);

  // Any error of a node, other than a crash, ends the run by simulation::Fail.
  void Run(const std::function<void(KVStore&)>& body);

  // Notes that training begins: what is said once has been said and is in a snapshot, and so are
  // the pushes of the former process of a worker that `returns`. Called by each worker's process.
  void BeginTraining(bool returns);

  // Ends this process of a node by an error, if others may have counted it as dead while it was
  // stopped. It is started again then. Returns else.
  void EndIfFenced(wire::Role role, uint32_t rank);

  // True if the job may end by this error: a worker and a server have died, the error says that
  // this was together, or an error before did.
  bool IsLoss(const absl::Status& error);

  // Takes what the simulation notes of crashes, and leaves other notes.
  void TakeNote(absl::string_view note);

  const FaultTable& faults() const { return faults_; }

 private:
  // The one process of a node that runs, or the next one.
  struct Process {
    std::vector<CrashPlan::Crash> crashes;  // of this one and later ones; the first comes last
    uint64_t delivered = 0;                 // messages
    uint64_t number = 0;
    SimulatedDisk disk;
    std::set<std::string> crashed_in;        // the states of the job when the last one crashed
    std::optional<Trouble> cut, full, stop;  // to come
    absl::Duration cut_until;
    absl::Duration unheard_until;
    bool is_fenced = false;                       // may be, since it was stopped
    std::shared_ptr<const WaitingBytes> waiting;  // of a server
    // Snapshots that were whole when training last began, and those that were damaged.
    size_t uncounted_snapshots = 0;
  };

  // Fails the run if more gradients wait in a server than it has room for.
  void CheckRoom(const Process& server) const;

  // Ends this process of a node. It is started again.
  void EndByError(wire::Role role, uint32_t rank);

  // Does to a server's disk what a crash may do.
  void Damage(uint32_t rank);

  // Runs `body` as a node, again after each crash.
  void Keep(wire::Role role, uint32_t rank, const std::string& name,
            const std::function<void()>& body);
  void Schedule();
  void Serve(uint32_t rank);
  void Work(uint32_t rank, const std::function<void(KVStore&)>& body);
  Process& ProcessOf(wire::Role role, uint32_t rank);
  // Returns the address at which the process that runs now listens.
  std::string AddressOf(wire::Role role, uint32_t rank);
  // Returns a transport with faults that is bound to `address`.
  std::unique_ptr<Transport> MakeTransport(wire::Role role, uint32_t rank,
                                           const std::string& address);
  // True if a server has died, and a worker has died or may have been left behind.
  bool MayBeLost() const;
  // Cuts a server and a worker off, if it is time.
  void CutTogether(uint32_t server);
  // Returns false if the node is cut off, or the sender is unheard.
  bool Delivered(wire::Role role, uint32_t rank, const wire::Header& header);
  // Lets this node, whose thread calls, suffer what is due. `has_begun`: it is a server, and is
  // pushed to.
  void Suffer(wire::Role role, uint32_t rank, bool has_begun);
  // Returns the paths of all snapshots that the server's processes have completed.
  static std::vector<std::string> Snapshots(const Process& server);
  std::string JournalPath() const;
  bool HasEnded() const { return closed_.size() == options_.workers; }

  const SimulatedClusterOptions options_;
  const std::shared_ptr<InProcessNetwork> network_ = std::make_shared<InProcessNetwork>();
  Process scheduler_;
  std::vector<Process> servers_, workers_;
  std::map<std::string, std::pair<wire::Role, uint32_t>> nodes_;  // by the name of their thread
  FaultTable faults_;
  Draws random_;
  bool training_ = false;
  bool over_ = false;           // the scheduler has ended
  bool ended_by_disk_ = false;  // a server that began on a full disk, like one that crashed
  bool lost_ = false;           // by an error that IsLoss
  bool may_cut_together_ = true;
  std::set<wire::Role> died_;
  std::set<uint32_t> closing_, closed_;  // ranks of workers
};

}  // namespace slimps

#endif  // SLIMPS_TESTS_SIMULATION_SIMULATED_CLUSTER_H_
