// SPDX-License-Identifier: Apache-2.0
// A whole job in one process, for tests: scheduler, servers and workers over InProcessTransport.
//
//   InProcessCluster cluster({.workers = 2, .servers = 2});
//   // One thread per worker. Stores are closed at the end.
//   cluster.RunWorkers([&](KVStore& store) { ... });
#ifndef SLIMPS_TESTS_CLUSTER_IN_PROCESS_CLUSTER_H_
#define SLIMPS_TESTS_CLUSTER_IN_PROCESS_CLUSTER_H_

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "proto/base/clock.h"
#include "proto/base/mutex.h"
#include "proto/base/thread.h"
#include "proto/net/testing/fault_injection.h"
#include "proto/net/testing/in_process_transport.h"
#include "scheduler/scheduler_service.h"
#include "server/service/server_node.h"
#include "worker/store/dist_store.h"
#include "worker/store/guarded_store.h"

// Use it only in functions that return void.
#define ASSERT_STATUS_OK(expression)                \
  do {                                              \
    const absl::Status& status_here = (expression); \
    ASSERT_TRUE(status_here.ok()) << status_here;   \
  } while (false)

namespace slimps {

struct ClusterOptions {
  // True if `body` makes the job fail. If false, no node may fail.
  bool job_fails = false;
  uint32_t workers = 2;
  uint32_t servers = 2;
  size_t shard_threads = 1;
  SchedulerOptions scheduler;  // the cluster fills in the counts
  ServerOptions server;        // likewise
  wire::StoreMode mode = wire::DIST_SYNC;
  KVStoreOptions store;  // the cluster fills in the address and the counts
  // Changes the options of one worker's store. Null: all have the same.
  std::function<void(uint32_t worker, KVStoreOptions*)> edit_store;
  // Faults in what arrives at workers and at servers. The seed is offset by the node's rank.
  FaultPlan worker_faults, server_faults;
  TransportOptions worker_transport;  // for example an emulated link
  // Replaces the transport of a worker's store. Null: the store gets the transport itself.
  std::function<std::unique_ptr<Transport>(uint32_t worker, std::unique_ptr<Transport>)> wrap;
  // Replaces the transport of a server, once it is bound. Null: as above.
  std::function<std::unique_ptr<Transport>(std::unique_ptr<Transport>)> wrap_server;
  // Called with the error of a worker that cannot join. Null: the test fails.
  std::function<void(const absl::Status&)> on_join_error;
};

// Thread-compatible.
class InProcessCluster final {
 public:
  explicit InProcessCluster(ClusterOptions options);
  ~InProcessCluster();

  // Joins all workers, runs `body` in one thread per worker, and closes the stores. Fails the test
  // on an error of a join or a close.
  void RunWorkers(const std::function<void(KVStore&)>& body);

  // For tests that run a worker themselves.
  absl::StatusOr<std::unique_ptr<KVStore>> JoinWorker(uint32_t index);
  ServerNode& server(size_t rank) { return *servers_[rank]->node; }
  SchedulerService& scheduler() { return *scheduler_; }

 private:
  struct Server {
    std::unique_ptr<Transport> transport;
    std::unique_ptr<ServerNode> node;
    Thread thread;
  };

  ClusterOptions options_;
  RealClock clock_;
  std::shared_ptr<InProcessNetwork> network_ = std::make_shared<InProcessNetwork>();
  std::unique_ptr<InProcessTransport> scheduler_transport_;
  std::unique_ptr<SchedulerService> scheduler_;
  Mutex ticker_mutex_;
  CondVar stop_;
  bool stopping_ = false;
  Thread ticker_;
  std::vector<std::unique_ptr<Server>> servers_;
};

}  // namespace slimps

#endif  // SLIMPS_TESTS_CLUSTER_IN_PROCESS_CLUSTER_H_
