// SPDX-License-Identifier: Apache-2.0
#include "tests/simulation/simulated_cluster.h"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "proto/base/clock.h"
#include "proto/base/simulation/runner.h"
#include "proto/base/simulation/simulation.h"
#include "proto/net/membership/node_name.h"
#include "proto/net/testing/in_process_transport.h"
#include "scheduler/scheduler_service.h"
#include "server/service/beginning.h"
#include "server/service/server_node.h"
#include "tests/simulation/watched_transport.h"
#include "worker/store/dist_store.h"
#include "worker/store/guarded_store.h"

namespace slimps {
namespace {

namespace fs = std::filesystem;

constexpr char kScheduler[] = "inproc://scheduler";
constexpr absl::Duration kTick = absl::Milliseconds(20);
constexpr absl::Duration kRestartTimeout = absl::Minutes(2);

void Check(const absl::Status& status, absl::string_view what) {
  if (!status.ok()) simulation::Fail(absl::StrCat(what, ": ", status.ToString()));
}

}  // namespace

SimulatedCluster::SimulatedCluster(const SimulatedClusterOptions& options)
    : options_(options),
      servers_(options.servers),
      workers_(options.workers),
      faults_(options.workers, options.servers,
              [this](uint32_t rank) { return servers_[rank].disk.IsWriting(); }),
      random_(options.faults.seed) {
  scheduler_.crashes = options.crashes.scheduler;
  for (size_t i = 0; i < options.crashes.servers.size(); ++i) {
    servers_[i].crashes = options.crashes.servers[i];
  }
  for (size_t i = 0; i < options.crashes.workers.size(); ++i) {
    workers_[i].crashes = options.crashes.workers[i];
  }
  const Troubles& troubles = options.troubles;
  const auto take = [](const std::vector<Trouble>& of_each,
                       std::optional<Trouble> Process::*trouble, std::vector<Process>* processes) {
    for (size_t i = 0; i < of_each.size(); ++i) (*processes)[i].*trouble = of_each[i];
  };
  take(troubles.cut_servers, &Process::cut, &servers_);
  take(troubles.cut_workers, &Process::cut, &workers_);
  take(troubles.full_disks, &Process::full, &servers_);
  take(troubles.stopped_servers, &Process::stop, &servers_);
  take(troubles.stopped_workers, &Process::stop, &workers_);
  scheduler_.stop = troubles.stopped_scheduler;
  for (Process& server : servers_) server.disk.SetWriteTakes(troubles.write_takes);
}

void SimulatedCluster::Run(const std::function<void(KVStore&)>& body) {
  nodes_["scheduler"] = {wire::SCHEDULER, 0};
  std::vector<Thread> keepers;
  keepers.emplace_back("keeper-scheduler",
                       [this] { Keep(wire::SCHEDULER, 0, "scheduler", [this] { Schedule(); }); });
  const auto keep = [&](wire::Role role, uint32_t rank, const std::function<void()>& run) {
    const std::string name = absl::StrCat(RoleName(role), "-", rank);
    nodes_[name] = {role, rank};
    keepers.emplace_back(absl::StrCat("keeper-", name),
                         [this, role, rank, name, run] { Keep(role, rank, name, run); });
  };
  for (uint32_t rank = 0; rank < options_.servers; ++rank) {
    keep(wire::SERVER, rank, [this, rank] { Serve(rank); });
  }
  for (uint32_t rank = 0; rank < options_.workers; ++rank) {
    keep(wire::WORKER, rank, [this, rank, &body] { Work(rank, body); });
  }
  for (Thread& keeper : keepers) keeper.Join();
}

void SimulatedCluster::Keep(wire::Role role, uint32_t rank, const std::string& name,
                            const std::function<void()>& body) {
  Process& process = ProcessOf(role, rank);
  while (!simulation::AwaitNode(simulation::StartNode(name, body))) {
    faults_.Count(absl::StrCat("crash ", RoleName(role)), process.crashed_in);
    if (role == wire::SERVER && process.disk.IsWriting()) {
      faults_.Count("torn write", process.crashed_in);
    }
    faults_.Crash(role, rank);
    died_.insert(role);
    process.disk.CloseAll();
    if (role == wire::SERVER) Damage(rank);
    const auto inbox = network_->Find(AddressOf(role, rank));
    if (inbox != nullptr) network_->CloseInbox(inbox);
    const absl::Duration away = process.crashes.back().away;
    process.crashes.pop_back();
    process.delivered = 0;
    process.is_fenced = false;
    ++process.number;
    simulation::Sleep(away);
    if (HasEnded() && (role != wire::SCHEDULER || !fs::exists(JournalPath()))) return;
  }
}

void SimulatedCluster::TakeNote(absl::string_view note) {
  if (!absl::ConsumeSuffix(&note, " crashes")) return;
  const auto& [role, rank] = nodes_.at(std::string(note));
  ProcessOf(role, rank).crashed_in = faults_.StatesAt(role, rank);
}

void SimulatedCluster::EndIfFenced(wire::Role role, uint32_t rank) {
  if (!ProcessOf(role, rank).is_fenced) return;
  faults_.Count(absl::StrCat("fenced ", RoleName(role)), faults_.States());
  EndByError(role, rank);
}

void SimulatedCluster::EndByError(wire::Role role, uint32_t rank) {
  ProcessOf(role, rank).crashes.push_back({.away = kTick});
  simulation::CrashThisNode(simulation::Now());
  simulation::Choose("ends by an error");
}

void SimulatedCluster::CheckRoom(const Process& server) const {
  if (server.waiting == nullptr || server.waiting->most() > 0) return;
  // Beyond its room a server takes, of each partition, the pushes that the next sum begins with: as
  // a sum, one that joins it, and one that no other has joined.
  const size_t bytes = server.waiting->bytes(), most = 3 * options_.round_bytes;
  if (bytes <= most) return;
  simulation::Fail(
      absl::StrCat("gradients of ", bytes, " bytes wait in a server, at most ", most, " should"));
}

void SimulatedCluster::Damage(uint32_t rank) {
  Process& server = servers_[rank];
  if (OneIn(2, &random_)) {
    faults_.Count("power cut", server.crashed_in);
    server.disk.CutPower(&random_);
  }
  // The snapshot before a damaged one is used. It lacks what was said before training, and what a
  // worker that has left kept for the server, if it is older than that.
  std::vector<std::string> snapshots = Snapshots(server);
  const bool may_tear = server.uncounted_snapshots + 2 <= snapshots.size() && closing_.empty();
  const bool is_rare = server.crashed_in.contains("replay");
  if (!training_ || !may_tear || (!is_rare && OneIn(2, &random_))) return;
  faults_.Count("torn snapshot", server.crashed_in);
  SimulatedDisk::Tear(snapshots.back(), &random_);
  server.uncounted_snapshots = snapshots.size() - 1;
}

std::vector<std::string> SimulatedCluster::Snapshots(const Process& server) {
  std::vector<std::string> snapshots = server.disk.named();
  std::erase_if(snapshots, [](const std::string& path) {
    return path.find("/snapshot-") == std::string::npos;
  });
  return snapshots;
}

void SimulatedCluster::BeginTraining(bool returns) {
  for (Process& server : servers_) {
    if (!training_ || returns) server.uncounted_snapshots = Snapshots(server).size();
  }
  training_ = true;
}

bool SimulatedCluster::IsLoss(const absl::Status& error) {
  const absl::string_view why = error.message();
  // The others have ended their training meanwhile.
  const bool is_last = options_.crashes.worker_timeout > absl::ZeroDuration() &&
                       absl::StrContains(why, "no worker is left");
  if (!MayBeLost() && !is_last) return lost_;
  const bool says_so = is_last || absl::StrContains(why, "gone together") ||
                       absl::StrContains(why, "had not sent") ||
                       absl::StrContains(why, "lost with");
  if (says_so && !std::exchange(lost_, true)) faults_.Count("job lost", faults_.States());
  return lost_;
}

bool SimulatedCluster::MayBeLost() const {
  const bool server_died = died_.contains(wire::SERVER) || ended_by_disk_;
  return server_died &&
         (died_.contains(wire::WORKER) || std::ranges::any_of(workers_, &Process::is_fenced));
}

std::string SimulatedCluster::JournalPath() const {
  return absl::StrCat(options_.folder, "/journal");
}

SimulatedCluster::Process& SimulatedCluster::ProcessOf(wire::Role role, uint32_t rank) {
  if (role == wire::SCHEDULER) return scheduler_;
  return role == wire::SERVER ? servers_[rank] : workers_[rank];
}

std::string SimulatedCluster::AddressOf(wire::Role role, uint32_t rank) {
  if (role == wire::SCHEDULER) return kScheduler;
  const bool moves =
      role == wire::WORKER || options_.crashes.addresses == CrashPlan::Addresses::kChange;
  return absl::StrCat("inproc://", RoleName(role), "-", rank, moves ? "-" : "",
                      moves ? absl::StrCat(ProcessOf(role, rank).number) : "");
}

std::unique_ptr<Transport> SimulatedCluster::MakeTransport(wire::Role role, uint32_t rank,
                                                           const std::string& address) {
  TransportOptions transport;
  if (role == wire::WORKER) transport.emulate_link_latency = options_.latency;
  FaultPlan faults = options_.faults;
  faults.seed += static_cast<uint64_t>(role) * 1000 + rank;
  faults.seed += 10'000 * ProcessOf(role, rank).number;
  faults.on_fault = [this](const char* fault, const Message&) {
    faults_.Count(fault, faults_.States());
  };
  auto made = std::make_unique<WatchedTransport>(
      std::make_unique<InProcessTransport>(network_, transport), faults,
      options_.crashes.any() || options_.troubles.small_room != SmallRoom::kNone
          ? WatchedTransport::Payloads::kCopied
          : WatchedTransport::Payloads::kShared,
      role == wire::SERVER && options_.troubles.late_rosters ? WatchedTransport::Rosters::kLate
                                                             : WatchedTransport::Rosters::kInTime,
      [this, role, rank](const wire::Header& header) { return Delivered(role, rank, header); });
  Check(made->Bind(address).status(), "bind");
  return made;
}

bool SimulatedCluster::Delivered(wire::Role role, uint32_t rank, const wire::Header& header) {
  Process& process = ProcessOf(role, rank);
  const absl::Duration now = simulation::Now();
  const wire::NodeRef& sender = header.sender();
  const bool is_heard = sender.role() == wire::ROLE_UNSPECIFIED ||
                        now >= ProcessOf(sender.role(), sender.rank()).unheard_until;
  if (now < process.cut_until || !is_heard) {
    faults_.Count("cut off", faults_.States());
    return false;
  }
  faults_.Deliver(role, rank, header);
  if (role == wire::SERVER) CheckRoom(process);
  if (closing_.contains(rank) && role == wire::WORKER) return true;
  ++process.delivered;
  if (role == wire::SERVER) CutTogether(rank);
  Suffer(role, rank, /*has_begun=*/header.has_push() || header.has_push_pull());
  return true;
}

void SimulatedCluster::CutTogether(uint32_t server) {
  const std::optional<slimps::CutTogether>& cut = options_.troubles.cut_together;
  const bool is_time = cut.has_value() && cut->server == server && may_cut_together_ && training_ &&
                       servers_[server].delivered >= cut->deliveries;
  if (!is_time || closing_.contains(cut->worker)) return;
  may_cut_together_ = false;
  faults_.Count("cut together", faults_.States());
  for (Process* const process : {&servers_[server], &workers_[cut->worker]}) {
    process->cut_until = process->unheard_until = simulation::Now() + kCutTogetherLasts;
  }
}

void SimulatedCluster::Suffer(wire::Role role, uint32_t rank, bool has_begun) {
  Process& process = ProcessOf(role, rank);
  const absl::Duration now = simulation::Now();
  const auto is_time = [&](const auto& fault) {
    return process.delivered >= fault.deliveries &&
           (fault.in_state.empty() || faults_.StatesAt(role, rank).contains(fault.in_state));
  };
  if (!process.crashes.empty() && is_time(process.crashes.back())) {
    process.crashes.back().deliveries = std::numeric_limits<uint64_t>::max();
    simulation::CrashThisNode(now + process.crashes.back().after);
  }
  if (process.cut.has_value() && is_time(*process.cut)) {
    process.cut_until = now + std::exchange(process.cut, std::nullopt)->lasts;
  }
  if (process.stop.has_value() && is_time(*process.stop)) {
    const absl::Duration lasts = std::exchange(process.stop, std::nullopt)->lasts;
    process.is_fenced = lasts == kLongStop;
    faults_.Count(absl::StrCat("stop ", RoleName(role)), faults_.StatesAt(role, rank));
    simulation::StopThisNode(now + lasts);
  }
  // A server that cannot write when it begins ends by an error.
  if (process.full.has_value() && has_begun && is_time(*process.full)) {
    process.disk.SetFullUntil(now + std::exchange(process.full, std::nullopt)->lasts);
    faults_.Count("full disk", faults_.StatesAt(role, rank));
  }
}

void SimulatedCluster::Schedule() {
  SchedulerOptions options;
  options.num_workers = options_.workers;
  options.num_servers = options_.servers;
  // Where many messages are lost, ten seconds without an echo come by chance.
  const bool loses_many = std::max(options_.faults.drop, options_.faults.truncate) > 0.05;
  if (loses_many) options.heartbeat_timeout = absl::Seconds(30);
  std::unique_ptr<Journal> journal;
  if (options_.crashes.any()) {
    options.restart_timeout = kRestartTimeout;
    options.worker_timeout = options_.crashes.worker_timeout;
    options.has_journal = true;
    auto opened =
        Journal::Open(JournalPath(), {options.job_id, options.num_workers, options.num_servers},
                      &scheduler_.disk);
    Check(opened.status(), "journal");
    journal = *std::move(opened);
  }
  const std::unique_ptr<Transport> transport =
      MakeTransport(wire::SCHEDULER, 0, AddressOf(wire::SCHEDULER, 0));
  SchedulerService service(transport.get(), options, MachineClock(), journal.get());
  if (journal != nullptr) Check(service.Restore(), "journal");
  Check(transport->Start(&service), "scheduler");
  while (!service.done()) {
    service.Tick();
    simulation::Sleep(kTick);
    Suffer(wire::SCHEDULER, 0, /*has_begun=*/false);  // few messages come to it
  }
  transport->Stop();
  over_ = true;
  if (!IsLoss(service.result())) Check(service.result(), "scheduler");
}

void SimulatedCluster::Serve(uint32_t rank) {
  servers_[rank].disk.AwaitRoom();
  ServerOptions options;
  options.num_workers = options_.workers;
  options.shard_threads = options_.shard_threads;
  if (options_.troubles.small_room == SmallRoom::kServers) options.max_waiting_bytes = 0;
  if (options_.crashes.any()) {
    options.snapshots = {.root = options_.folder,
                         .rank = rank,
                         .every = options_.crashes.snapshot_every,
                         .disk = &servers_[rank].disk};
  }
  absl::StatusOr<Beginning> beginning = BeginFromSnapshot(options, MachineClock());
  Check(beginning.status(), "snapshot");
  servers_[rank].waiting = beginning->waiting;
  const std::string address = AddressOf(wire::SERVER, rank);
  const std::unique_ptr<Transport> transport = MakeTransport(wire::SERVER, rank, address);
  MembershipOptions membership{.role = wire::SERVER,
                               .wanted_rank = static_cast<int32_t>(rank),
                               .scheduler_address = kScheduler,
                               .num_workers = options_.workers,
                               .num_servers = options_.servers,
                               .endpoints = {address}};
  ServerNode node(transport.get(), membership, options, MachineClock(), *std::move(beginning));
  const absl::Status served = node.Serve();
  if (!served.ok()) EndIfFenced(wire::SERVER, rank);
  const bool cannot_begin = absl::StrContains(served.message(), "/owner: No space left");
  if (cannot_begin) {
    ended_by_disk_ = true;
    EndByError(wire::SERVER, rank);
  }
  // A job that is over does not take a server back.
  const bool is_refused = closing_.size() == options_.workers && absl::IsFailedPrecondition(served);
  if (!HasEnded() && !is_refused && !IsLoss(served)) Check(served, NodeName(wire::SERVER, rank));
}

void SimulatedCluster::Work(uint32_t rank, const std::function<void(KVStore&)>& body) {
  KVStoreOptions options = options_.store;
  options.scheduler_address = kScheduler;
  options.num_workers = options_.workers;
  options.num_servers = options_.servers;
  options.wanted_rank = static_cast<int32_t>(rank);
  absl::StatusOr<std::unique_ptr<DistStore>> joined = DistStore::Create(
      options_.mode, options, MakeTransport(wire::WORKER, rank, AddressOf(wire::WORKER, rank)));
  // The others may have ended the job without it.
  const bool is_over =
      over_ || absl::StrContains(joined.status().message(), "all workers have left");
  const bool is_late = is_over && options_.crashes.worker_timeout > absl::ZeroDuration();
  if (joined.ok()) {
    GuardedStore store(*std::move(joined));
    body(store);
    closing_.insert(rank);
    simulation::SpareThisNode();
    const absl::Status closed = store.Close();
    if (!closed.ok()) EndIfFenced(wire::WORKER, rank);
    if (!IsLoss(closed)) Check(closed, "close");
  } else if (EndIfFenced(wire::WORKER, rank); !is_late && !IsLoss(joined.status())) {
    Check(joined.status(), NodeName(wire::WORKER, rank));
  }
  closing_.insert(rank);
  closed_.insert(rank);
}

}  // namespace slimps
