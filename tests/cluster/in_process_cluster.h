// A whole job in one process, for tests: scheduler, servers and workers over InProcessTransport.
//
//   InProcessCluster cluster({.workers = 2, .servers = 2});
//   cluster.RunWorkers([&](KVStore& store) { ... });     // one thread per worker; stores are closed at the end
#ifndef SLIMPS_TESTS_CLUSTER_IN_PROCESS_CLUSTER_H_
#define SLIMPS_TESTS_CLUSTER_IN_PROCESS_CLUSTER_H_

#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "proto/base/clock.h"
#include "proto/net/fault_injection.h"
#include "proto/net/in_process_transport.h"
#include "scheduler/scheduler_service.h"
#include "server/server_node.h"
#include "worker/dist_store.h"
#include "worker/guarded_store.h"

// In functions that return nothing.
#define ASSERT_STATUS_OK(expression)               \
  do {                                             \
    const absl::Status status_here = (expression); \
    ASSERT_TRUE(status_here.ok()) << status_here;  \
  } while (false)

namespace slimps {

struct ClusterOptions {
  bool job_fails = false;  // what `body` brings about; else nobody may fail
  uint32_t workers = 2;
  uint32_t servers = 2;
  size_t shard_threads = 1;
  SchedulerOptions scheduler;  // counts are filled in
  wire::StoreMode mode = wire::DIST_SYNC;
  KVStoreOptions store;     // address and counts are filled in
  FaultPlan worker_faults;  // of what arrives at workers; the seed is offset by the worker
  TransportOptions worker_transport;  // an emulated link, say
  // What a worker's store is given in place of its transport; null: that.
  std::function<std::unique_ptr<Transport>(uint32_t worker, std::unique_ptr<Transport>)> wrap;
  // The same of a server, once it is bound.
  std::function<std::unique_ptr<Transport>(std::unique_ptr<Transport>)> wrap_server;
  // Told of workers that cannot join; null: the test fails.
  std::function<void(const absl::Status&)> on_join_error;
};

class InProcessCluster final {
 public:
  explicit InProcessCluster(ClusterOptions options);
  ~InProcessCluster();

  // Joins all workers, runs `body` in one thread each, closes the stores. Fails the test on a join or close error.
  void RunWorkers(const std::function<void(KVStore&)>& body);
  ServerNode& server(size_t rank) { return *servers_[rank]->node; }

 private:
  struct Server {
    std::unique_ptr<Transport> transport;
    std::unique_ptr<ServerNode> node;
    std::thread thread;
  };

  absl::StatusOr<std::unique_ptr<KVStore>> JoinWorker(uint32_t index);

  ClusterOptions options_;
  RealClock clock_;
  std::shared_ptr<InProcessNetwork> network_ = std::make_shared<InProcessNetwork>();
  std::unique_ptr<InProcessTransport> scheduler_transport_;
  std::unique_ptr<SchedulerService> scheduler_;
  std::atomic<bool> stopping_{false};
  std::thread ticker_;
  std::vector<std::unique_ptr<Server>> servers_;
};

}  // namespace slimps

#endif  // SLIMPS_TESTS_CLUSTER_IN_PROCESS_CLUSTER_H_
