// SPDX-License-Identifier: Apache-2.0
// slimps_server: keeps partitions of the weights, sums what the workers push, steps, and serves
// pulls.
//
// Exit status:
//   0  the job ended in order
//   1  it failed, or SIGTERM stopped this server: who restarts servers starts it again
//   2  wrong usage, or a wrong key file
#include <gflags/gflags.h>
#include <glog/logging.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "proto/base/clock.h"
#include "proto/base/out_of_memory.h"
#include "proto/base/program_flags.h"
#include "proto/base/status_copy.h"
#include "proto/base/status_macros.h"
#include "proto/base/thread.h"
#include "proto/base/trace/program_trace.h"
#include "proto/net/address.h"
#include "proto/net/descriptors.h"
#include "proto/net/identity/allowed_keys.h"
#include "proto/net/identity/node_keys.h"
#include "proto/net/local_sockets.h"
#include "proto/net/zmq/same_host.h"
#include "proto/net/zmq/zmq_transport.h"
#include "server/service/beginning.h"
#include "server/service/server_node.h"
#include "watch/http/metrics_server.h"
#include "watch/metrics_text.h"

DEFINE_string(job_id, "slimps", "name of the job; a scheduler of another job refuses this server");
DEFINE_string(root_uri, "127.0.0.1", "the scheduler's host (environment: DMLC_PS_ROOT_URI)");
DEFINE_int32(root_port, 0, "the scheduler's port (environment: DMLC_PS_ROOT_PORT)");
DEFINE_int32(num_workers, 1, "how many workers the job has (environment: DMLC_NUM_WORKER)");
DEFINE_int32(num_servers, 1, "how many servers the job has (environment: DMLC_NUM_SERVER)");
DEFINE_int32(wanted_rank, -1, "the rank that this server had before, -1: any");
DEFINE_string(bind, "",
              "address or network interface to listen on; one that other machines reach needs "
              "--key_file (environment: DMLC_INTERFACE, else DMLC_NODE_HOST; else the address by "
              "which this machine reaches the scheduler)");
DEFINE_int32(port, 0, "port to listen on, 0: any free one");
DEFINE_string(node_host, "",
              "the host under which workers reach this server, where that is not the address it "
              "listens on (environment: DMLC_NODE_HOST)");
DEFINE_bool(insecure, false,
            "listen on --bind without keys, even where others on the network can reach it");
DEFINE_string(key_file, "",
              "file with this server's secret key, as slimps keygen makes it (environment: "
              "SLIMPS_KEY_FILE); needs --scheduler_key");
DEFINE_string(scheduler_key, "",
              "the scheduler's public key in hexadecimal (environment: SLIMPS_SCHEDULER_KEY)");
DEFINE_string(same_host, "shm",
              "what workers on this machine are offered beside tcp: "
              "shm (a local socket, payloads in shared memory), "
              "ipc (a local socket) or tcp (nothing)");
DEFINE_int32(shard_threads, 1, "threads that sum and step, each for its own partitions");
DEFINE_int32(join_timeout_s, 600,
             "how long to wait for the scheduler and the other nodes (environment: "
             "SLIMPS_JOIN_TIMEOUT_S)");
DEFINE_int32(max_weight_gib, 64, "refuse keys beyond this much memory of fp32 weights");
DEFINE_int32(max_waiting_gib, 4,
             "how much memory pushes of incomplete rounds may take; workers are told to try again "
             "beyond it");
DEFINE_string(snapshot_dir, "",
              "a folder for snapshots, from which a server goes on that starts again with the same "
              "--wanted_rank; empty: none are taken");
DEFINE_int32(snapshot_every, 30, "how many seconds to wait from one snapshot to the next");
DEFINE_int32(metrics_port, -1,
             "port for Prometheus, at /metrics: this server's own; 0: any free one, -1: none");
DEFINE_string(watch_bind, "127.0.0.1", "address of --metrics_port");
DEFINE_string(trace, "", slimps::kTraceFlagHelp);

namespace slimps {
namespace {

void SettleFlags() {
  CheckRole("server");
  TakeFromEnvironment("root_uri", "DMLC_PS_ROOT_URI");
  TakeFromEnvironment("root_port", "DMLC_PS_ROOT_PORT");
  TakeFromEnvironment("node_host", "DMLC_NODE_HOST");
  TakeFromEnvironment("bind", "DMLC_INTERFACE");
  TakeFromEnvironment("bind", "DMLC_NODE_HOST");
  TakeFromEnvironment("trace", "SLIMPS_TRACE");
  TakeFromEnvironment("key_file", "SLIMPS_KEY_FILE");
  TakeFromEnvironment("scheduler_key", "SLIMPS_SCHEDULER_KEY");
  if (FLAGS_key_file.empty() != FLAGS_scheduler_key.empty()) {
    DieOfUsage("--key_file and --scheduler_key go together, got one of them");
  }
  CheckRange("root_port", FLAGS_root_port, 1, 65535);
  SettleJobSize(FLAGS_num_workers, FLAGS_num_servers);
  CheckRange("wanted_rank", FLAGS_wanted_rank, -1, FLAGS_num_servers - 1);
  CheckRange("port", FLAGS_port, 0, 65535);
  if (const auto same_host = ParseSameHost(FLAGS_same_host); !same_host.ok()) {
    DieOfUsage(absl::StrCat("--same_host=", same_host.status().message()));
  }
  CheckRange("shard_threads", FLAGS_shard_threads, 1, 256);
  TakeFromEnvironment("join_timeout_s", "SLIMPS_JOIN_TIMEOUT_S");
  CheckRange("join_timeout_s", FLAGS_join_timeout_s, 1, 1000'000);
  CheckRange("max_weight_gib", FLAGS_max_weight_gib, 1, 1 << 20);
  CheckRange("max_waiting_gib", FLAGS_max_waiting_gib, 1, 1 << 20);
  CheckRange("metrics_port", FLAGS_metrics_port, -1, 65535);
  CheckRange("snapshot_every", FLAGS_snapshot_every, 1, 1000'000);
  if (!FLAGS_snapshot_dir.empty() && FLAGS_wanted_rank < 0) {
    DieOfUsage(absl::StrCat("--snapshot_dir=", FLAGS_snapshot_dir,
                            " needs --wanted_rank, by which this server finds its snapshots"));
  }
}

// Ends with wrong usage if only this machine reaches the server at `host` and the scheduler is on
// another. `own` is this machine's address on the way to the scheduler.
void RefuseUnreachable(const std::string& host, const std::string& own) {
  const bool scheduler_is_here = IsLoopback(own) || own == ResolveForBind(FLAGS_root_uri);
  if (!IsLoopback(host) || scheduler_is_here || !FLAGS_node_host.empty()) return;
  DieOfUsage(absl::StrCat("--bind=", FLAGS_bind, ": no other machine reaches this server there, ",
                          "and the scheduler at ", FLAGS_root_uri, " is on another: leave --bind ",
                          "out (which is --bind=", own, "), or give --node_host"));
}

void RefuseOpen(const std::string& what) {
  if (FLAGS_insecure || !FLAGS_key_file.empty()) return;
  DieOfUsage(absl::StrCat(what,
                          " can be reached by others, and without keys traffic is not encrypted: "
                          "give --key_file, or give --insecure if that network is trusted"));
}

// Listens, and returns the address to tell workers. Whether others reach the address is checked
// after binding, because the address of an interface is known only then. Nothing is read before the
// transport starts.
absl::StatusOr<std::string> BindChecked(Transport* transport) {
  SLIMPS_ASSIGN_OR_RETURN(const std::string own, RouteAddress(FLAGS_root_uri));
  if (FLAGS_bind.empty() && !IsLoopback(own)) {
    RefuseOpen(absl::StrCat(own, ", by which this machine reaches the scheduler at ",
                            FLAGS_root_uri, ","));
  }
  const std::string bind = FLAGS_bind.empty() ? own : FLAGS_bind;
  SLIMPS_ASSIGN_OR_RETURN(const std::string bound,
                          transport->Bind(absl::StrCat("tcp://", bind, ":", FLAGS_port)));
  SLIMPS_ASSIGN_OR_RETURN(Address address, ParseAddress(bound));
  if (!IsLoopback(address.host)) RefuseOpen(absl::StrCat("--bind=", bind, " (", bound, ")"));
  RefuseUnreachable(address.host, own);
  if (!FLAGS_node_host.empty()) {
    address.host = FLAGS_node_host;
  } else if (IsLoopback(address.host)) {
    const absl::Status reached = CheckName(FLAGS_root_uri);
    if (!reached.ok()) {
      LOG(WARNING) << "workers are told " << bound << ": --root_uri=" << reached.message();
    }
  }
  if (address.host == "0.0.0.0" || address.host == "[::]" || address.host == "::") {
    DieOfUsage(absl::StrCat("--bind=", bind,
                            " listens everywhere: give --node_host, under which workers reach it"));
  }
  return address.ToString();
}

// Adds an endpoint for workers on this machine, beside the one for all. If that fails, they use the
// one for all.
void BindLocally(Transport* transport, std::vector<std::string>* endpoints) {
  absl::StatusOr<std::string> bound = UnusedLocalAddress();
  if (bound.ok()) bound = transport->Bind(*bound);
  if (bound.ok()) {
    endpoints->push_back(*bound);
  } else {
    LOG(WARNING) << "cannot open a local socket, so workers on this machine are served by tcp: "
                 << bound.status();
  }
}

// The keys of those who may connect come with the roster, which fills `allowed`.
ZmqTransportOptions TransportFromFlags(std::shared_ptr<AllowedKeys> allowed) {
  ZmqTransportOptions options;
  options.strangers.emplace();
  options.allowed_keys = std::move(allowed);
  if (!FLAGS_key_file.empty()) {
    absl::StatusOr<std::string> key = ReadKeyFile(FLAGS_key_file);
    if (!key.ok()) DieOfUsage(std::string(key.status().message()));
    options.secret_key = *std::move(key);
  } else if (FLAGS_insecure) {
    LOG(WARNING) << kInsecureWarning;
  }
  if (*ParseSameHost(FLAGS_same_host) == SameHost::kShm) {
    const absl::Status shared = ShareMemory(&options);
    if (!shared.ok()) LOG(WARNING) << shared.message();
  }
  return options;
}

MembershipOptions MembershipFromFlags(const std::vector<std::string>& endpoints) {
  MembershipOptions options;
  options.role = wire::SERVER;
  options.wanted_rank = FLAGS_wanted_rank;
  options.scheduler_address = absl::StrCat("tcp://", FLAGS_root_uri, ":", FLAGS_root_port);
  options.scheduler_key = FLAGS_scheduler_key;
  options.job_id = FLAGS_job_id;
  options.num_workers = static_cast<uint32_t>(FLAGS_num_workers);
  options.num_servers = static_cast<uint32_t>(FLAGS_num_servers);
  options.endpoints = endpoints;
  options.join_timeout = absl::Seconds(FLAGS_join_timeout_s);
  return options;
}

ServerOptions ServerFromFlags() {
  ServerOptions options;
  options.job_id = FLAGS_job_id;
  options.num_workers = static_cast<uint32_t>(FLAGS_num_workers);
  options.shard_threads = static_cast<size_t>(FLAGS_shard_threads);
  options.directory.max_weight_bytes = static_cast<size_t>(FLAGS_max_weight_gib) << 30;
  options.max_waiting_bytes = static_cast<size_t>(FLAGS_max_waiting_gib) << 30;
  if (!FLAGS_snapshot_dir.empty()) {
    options.snapshots = {.root = FLAGS_snapshot_dir,
                         .rank = static_cast<uint32_t>(FLAGS_wanted_rank),
                         .every = absl::Seconds(FLAGS_snapshot_every)};
  }
  return options;
}

absl::StatusOr<Beginning> Begin(const ServerOptions& options, const Clock& clock) {
  absl::StatusOr<Beginning> beginning = BeginFromSnapshot(options, &clock);
  if (!beginning.ok() && !absl::IsDataLoss(beginning.status())) {
    DieOfUsage(
        absl::StrCat("--snapshot_dir=", FLAGS_snapshot_dir, ": ", beginning.status().message()));
  }
  return beginning;
}

// Turns SIGTERM and SIGINT into RequestStop. Its thread receives the signals, so they must be
// blocked in all others.
class SignalWatcher final {
 public:
  SignalWatcher(const sigset_t& signals, ServerNode* node)
      : thread_("signals", [this, signals, node] { Watch(signals, node); }) {}
  ~SignalWatcher() {
    done_.store(true);
    thread_.Kill(SIGTERM);
    thread_.Join();
  }

  // Returns the signal that stopped the server; 0: none did.
  int stopped_by() const { return stopped_by_.load(); }

 private:
  void Watch(const sigset_t& signals, ServerNode* node) {
    int signal = 0;
    while (sigwait(&signals, &signal) == 0 && !done_.load()) {
      LOG(INFO) << "stopping: " << strsignal(signal);
      // No worker has been served and nothing needs tidying up, so the process need not wait for
      // the join's deadline.
      if (!node->joined()) std::_Exit(kExitFailed);
      stopped_by_.store(signal);
      node->RequestStop(absl::OkStatus());
    }
  }

  std::atomic<bool> done_{false};
  std::atomic<int> stopped_by_{0};
  Thread thread_;  // last: its thread uses the other members
};

// Returns nullptr if nobody has asked for metrics.
absl::StatusOr<std::unique_ptr<HttpServer>> ServeOwnMetrics(const ServerNode& node) {
  if (FLAGS_metrics_port < 0) return nullptr;
  const auto text = [&node] {
    if (!node.joined()) return std::string();  // it has no rank yet
    return MetricsText({{.role = "server", .rank = node.rank(), .report = node.Report()}});
  };
  auto metrics = ServeMetrics(ResolveForBind(FLAGS_watch_bind),
                              static_cast<uint16_t>(FLAGS_metrics_port), text);
  SLIMPS_RETURN_IF_ERROR(Prefixed(metrics.status(), "--metrics_port"));
  return metrics;
}

absl::Status Run(ProgramTrace* trace) {
  const sigset_t signals = BlockStopSignals();
  const RealClock clock;
  const ServerOptions options = ServerFromFlags();
  SLIMPS_ASSIGN_OR_RETURN(Beginning beginning, Begin(options, clock));
  const auto allowed = std::make_shared<AllowedKeys>();
  const absl::Status room = ReserveDescriptors({.accepted = options.num_workers, .made = 1});
  if (!room.ok()) DieOfUsage(std::string(room.message()));
  ZmqTransport transport(TransportFromFlags(allowed));
  std::vector<std::string> endpoints(1);
  SLIMPS_ASSIGN_OR_RETURN(endpoints[0], BindChecked(&transport));
  if (*ParseSameHost(FLAGS_same_host) != SameHost::kTcp) BindLocally(&transport, &endpoints);
  MembershipOptions membership = MembershipFromFlags(endpoints);
  membership.allowed_keys = allowed;
  LOG(INFO) << "job \"" << FLAGS_job_id << "\": serving at " << absl::StrJoin(endpoints, ", ")
            << ", scheduler at " << membership.scheduler_address;
  ServerNode node(&transport, membership, options, &clock, std::move(beginning));
  SLIMPS_ASSIGN_OR_RETURN(const std::unique_ptr<HttpServer> metrics, ServeOwnMetrics(node));
  const SignalWatcher watcher(signals, &node);
  const absl::Status status = node.Serve();
  if (node.joined()) trace->SetRank(node.rank());
  const TransportStats moved = transport.stats();
  LOG(INFO) << "received " << moved.bytes_received << " bytes, " << moved.bytes_borrowed
            << " of them in shared memory; sent " << moved.bytes_sent << ", " << moved.bytes_lent
            << " of them in shared memory";
  if (moved.sharing_refusals > 0) {
    LOG(WARNING)
        << "payloads to a process of this machine went by socket, not shared memory: refused "
        << moved.sharing_refusals << " times, the last time: " << moved.last_sharing_refusal;
  }
  const ServerCounters counters = node.counters();
  if (counters.bad_frames + counters.refused_messages + counters.undeliverable > 0) {
    LOG(WARNING) << counters.bad_frames << " bad frames, " << counters.refused_messages
                 << " messages refused, " << counters.undeliverable << " answers undeliverable";
  }
  if (counters.snapshots.written + counters.snapshots.failed > 0) {
    LOG(INFO) << counters.snapshots.written << " snapshots written, " << counters.snapshots.failed
              << " failed";
  }
  if (status.ok() && watcher.stopped_by() != 0) {
    return absl::CancelledError(absl::StrCat("stopped by ", strsignal(watcher.stopped_by())));
  }
  return status;
}

}  // namespace
}  // namespace slimps

int main(int argc, char** argv) {
  slimps::EndWhereMemoryRunsOut();
  slimps::ParseProgramFlags(
      "slimps_server --root_uri HOST --root_port PORT --num_workers N --num_servers S: keeps "
      "weights",
      argc, argv);
  slimps::SettleFlags();
  slimps::ProgramTrace trace(FLAGS_trace, "server");
  return slimps::ExitStatus(trace.Finish(slimps::Run(&trace)));
}
