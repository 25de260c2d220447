// SPDX-License-Identifier: Apache-2.0
#include "tests/cluster/in_process_cluster.h"

#include <gtest/gtest.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "server/service/beginning.h"

namespace slimps {
namespace {

constexpr char kScheduler[] = "inproc://scheduler";

// A transport with injected faults. It owns the transport below it.
class OwnedFaultyTransport final : public Transport {
 public:
  OwnedFaultyTransport(std::unique_ptr<Transport> inner, const FaultPlan& plan)
      : inner_(std::move(inner)), faulty_(inner_.get(), plan) {}
  using Transport::Send;
  absl::StatusOr<std::string> Bind(std::string_view address) override {
    return faulty_.Bind(address);
  }
  absl::Status Start(MessageSink* sink) override { return faulty_.Start(sink); }
  absl::StatusOr<PeerId> Connect(std::string_view address) override {
    return faulty_.Connect(address);
  }
  void Disconnect(PeerId peer) override { faulty_.Disconnect(peer); }
  absl::Status Send(PeerId to, Message message, SendOptions options) override {
    return faulty_.Send(to, std::move(message), std::move(options));
  }
  void Stop() override { faulty_.Stop(); }
  void Admit(PeerId peer) override { faulty_.Admit(peer); }
  SteadyTime DeliveredUntil() override { return faulty_.DeliveredUntil(); }
  TransportStats stats() const override { return faulty_.stats(); }

 private:
  std::unique_ptr<Transport> inner_;
  FaultyTransport faulty_;
};

}  // namespace

InProcessCluster::InProcessCluster(ClusterOptions options) : options_(std::move(options)) {
  options_.store.scheduler_address = kScheduler;
  options_.store.num_workers = options_.workers;
  options_.store.num_servers = options_.servers;
  options_.scheduler.num_workers = options_.workers;
  options_.scheduler.num_servers = options_.servers;
  scheduler_transport_ = std::make_unique<InProcessTransport>(network_, TransportOptions{});
  scheduler_ =
      std::make_unique<SchedulerService>(scheduler_transport_.get(), options_.scheduler, &clock_);
  EXPECT_TRUE(scheduler_transport_->Bind(kScheduler).ok());
  EXPECT_TRUE(scheduler_transport_->Start(scheduler_.get()).ok());
  ticker_ = Thread("ticker", [this] {
    // As the scheduler's program: when the job is over, it is gone.
    MutexLock lock(&ticker_mutex_);
    while (!stopping_ && !scheduler_->done()) {
      scheduler_->Tick();
      stop_.WaitFor(&ticker_mutex_, absl::Milliseconds(20));
    }
    scheduler_transport_->Stop();
  });
  for (uint32_t i = 0; i < options_.servers; ++i) {
    auto server = std::make_unique<Server>();
    server->transport = std::make_unique<InProcessTransport>(network_, TransportOptions{});
    const auto address = server->transport->Bind("inproc://*");
    EXPECT_TRUE(address.ok()) << address.status();
    FaultPlan plan = options_.server_faults;
    plan.seed += i;
    server->transport = std::make_unique<OwnedFaultyTransport>(std::move(server->transport), plan);
    if (options_.wrap_server) {
      server->transport = options_.wrap_server(std::move(server->transport));
    }
    MembershipOptions membership{.role = wire::SERVER,
                                 .wanted_rank = static_cast<int32_t>(i),
                                 .scheduler_address = kScheduler,
                                 .num_workers = options_.workers,
                                 .num_servers = options_.servers,
                                 .endpoints = {*address}};
    ServerOptions service = options_.server;
    service.num_workers = options_.workers;
    service.shard_threads = options_.shard_threads;
    if (service.snapshots.has_value()) service.snapshots->rank = static_cast<uint32_t>(i);
    absl::StatusOr<Beginning> beginning = BeginFromSnapshot(service, &clock_);
    EXPECT_TRUE(beginning.ok()) << beginning.status();
    server->node = std::make_unique<ServerNode>(server->transport.get(), membership, service,
                                                &clock_, *std::move(beginning));
    server->thread =
        Thread(absl::StrCat("server-", i), [node = server->node.get(), fails = options_.job_fails] {
          const absl::Status served = node->Serve();
          EXPECT_EQ(served.ok(), !fails) << served;
        });
    servers_.push_back(std::move(server));
  }
}

InProcessCluster::~InProcessCluster() {
  for (auto& server : servers_) server->thread.Join();  // the last goodbye has ended the job
  servers_.clear();
  {
    MutexLock lock(&ticker_mutex_);
    stopping_ = true;
    stop_.NotifyAll();
  }
  ticker_.Join();
}

absl::StatusOr<std::unique_ptr<KVStore>> InProcessCluster::JoinWorker(uint32_t index) {
  KVStoreOptions store = options_.store;
  store.wanted_rank = static_cast<int32_t>(index);
  if (options_.edit_store) options_.edit_store(index, &store);
  FaultPlan plan = options_.worker_faults;
  plan.seed += index;
  std::unique_ptr<Transport> transport = std::make_unique<OwnedFaultyTransport>(
      std::make_unique<InProcessTransport>(network_, options_.worker_transport), plan);
  if (options_.wrap) transport = options_.wrap(index, std::move(transport));
  absl::StatusOr<std::unique_ptr<DistStore>> joined =
      DistStore::Create(options_.mode, store, std::move(transport));
  if (!joined.ok()) return joined.status();
  return std::make_unique<GuardedStore>(*std::move(joined));
}

void InProcessCluster::RunWorkers(const std::function<void(KVStore&)>& body) {
  std::vector<Thread> threads;
  for (uint32_t i = 0; i < options_.workers; ++i) {
    threads.emplace_back(absl::StrCat("worker-", i), [this, i, &body] {
      absl::StatusOr<std::unique_ptr<KVStore>> store = JoinWorker(i);
      if (!store.ok() && options_.on_join_error) return options_.on_join_error(store.status());
      ASSERT_TRUE(store.ok()) << store.status();
      body(**store);
      const absl::Status closed = (*store)->Close();
      EXPECT_EQ(closed.ok(), !options_.job_fails) << closed;
    });
  }
  for (Thread& thread : threads) thread.Join();
}

}  // namespace slimps
