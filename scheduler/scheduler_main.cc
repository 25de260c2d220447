// SPDX-License-Identifier: Apache-2.0
// slimps_scheduler: knows who is in the job and which server owns which partition; barriers,
// liveness, the threshold decision.
//
// Exit status: 0 the job ended in order; 1 it failed, or the port is taken; 2 wrong usage, or wrong
// files with keys.
#include <gflags/gflags.h>
#include <glog/logging.h>
#include <poll.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "proto/base/clock.h"
#include "proto/base/file.h"
#include "proto/base/out_of_memory.h"
#include "proto/base/program_flags.h"
#include "proto/base/status_copy.h"
#include "proto/base/status_macros.h"
#include "proto/base/trace/program_trace.h"
#include "proto/net/address.h"
#include "proto/net/descriptors.h"
#include "proto/net/identity/node_keys.h"
#include "proto/net/membership/node_name.h"
#include "proto/net/zmq/zmq_transport.h"
#include "scheduler/journal.h"
#include "scheduler/scheduler_service.h"
#include "scheduler/watch/watch_file.h"
#include "scheduler/watch/watch_servers.h"
#include "scheduler/watch/watch_service.h"

DEFINE_string(job_id, "slimps", "name of the job; nodes of another job are refused");
DEFINE_int32(num_workers, 1, "how many workers the job has (environment: DMLC_NUM_WORKER)");
DEFINE_int32(num_servers, 1, "how many servers the job has (environment: DMLC_NUM_SERVER)");
DEFINE_string(bind, "",
              "address to listen on; one that other machines reach needs --key_file (environment: "
              "DMLC_PS_ROOT_URI; else 127.0.0.1)");
DEFINE_int32(port, 0, "port to listen on, 0: any free one (environment: DMLC_PS_ROOT_PORT)");
DEFINE_string(port_file, "", "file to write the port to, once it is known");
DEFINE_bool(insecure, false,
            "listen on --bind without keys, even where others on the network can reach it");
DEFINE_string(key_file, "",
              "file with the scheduler's secret key, as slimps keygen makes it (environment: "
              "SLIMPS_KEY_FILE); needs --allow_file");
DEFINE_string(allow_file, "",
              "file with the public keys of all servers and workers: lines \"ROLE RANK KEY\" "
              "(environment: SLIMPS_ALLOW_FILE)");
DEFINE_int32(heartbeat_interval_ms, 1000, "how often each node tells the scheduler that it lives");
DEFINE_int32(heartbeat_timeout_ms, 10000, "how long a node may be silent before the job fails");
DEFINE_int32(roster_timeout_s, 600,
             "how long to wait for all nodes to come (environment: SLIMPS_JOIN_TIMEOUT_S)");
DEFINE_int32(timeout_s, 1800,
             "how long a worker's call waits for others that live, unless its program says "
             "(environment: SLIMPS_TIMEOUT_S)");

DEFINE_int32(restart_timeout_s, 0,
             "how long to wait for a node that is gone to be started again, 0: the job fails");
DEFINE_int32(worker_timeout, 0,
             "seconds after which the job goes on without a worker that is gone, and takes it back "
             "when it comes; 0: --restart_timeout_s holds for workers, too");

DEFINE_bool(ends_from_stdin, false,
            "stdin has a line \"ended RANK PID\" for each worker whose process has ended well");

DEFINE_string(trace, "", slimps::kTraceFlagHelp);
DEFINE_string(journal, "",
              "file to write the job's state to, so that this scheduler can be started again on "
              "its port; needs --restart_timeout_s");

DEFINE_int32(metrics_port, -1,
             "port for Prometheus, at /metrics: this scheduler's and all nodes'; 0: any free one, "
             "-1: none");
DEFINE_int32(page_port, -1, "port of the live page; 0: any free one, -1: none");
DEFINE_string(watch_bind, "127.0.0.1", "address of both");
DEFINE_string(watch_file, "",
              "file to write where the live page is, and its token, for slimps status; needs "
              "--page_port");
DEFINE_string(watch_token_file, "",
              "file with the token of both, which only this user can read; else a token is drawn");
DEFINE_int32(stall_warning, 10,
             "seconds after which a line says who waits for whom and where that one stands; 0: no "
             "line, and the page shows it after 10");

namespace slimps {
namespace {

// A node that stops is to be seen within three seconds: two heartbeats, a look, an event of the
// page.
constexpr absl::Duration kLookEvery = absl::Milliseconds(250);

SchedulerOptions OptionsFromFlags() {
  CheckRole("scheduler");
  TakeFromEnvironment("port", "DMLC_PS_ROOT_PORT");
  TakeFromEnvironment("key_file", "SLIMPS_KEY_FILE");
  TakeFromEnvironment("allow_file", "SLIMPS_ALLOW_FILE");
  TakeFromEnvironment("trace", "SLIMPS_TRACE");
  TakeFromEnvironment("roster_timeout_s", "SLIMPS_JOIN_TIMEOUT_S");
  TakeFromEnvironment("timeout_s", "SLIMPS_TIMEOUT_S");
  if (FLAGS_key_file.empty() != FLAGS_allow_file.empty()) {
    DieOfUsage("--key_file and --allow_file go together, got one of them");
  }
  SettleJobSize(FLAGS_num_workers, FLAGS_num_servers);
  CheckRange("port", FLAGS_port, 0, 65535);
  CheckRange("heartbeat_interval_ms", FLAGS_heartbeat_interval_ms, 1, 3600'000);
  CheckRange("heartbeat_timeout_ms", FLAGS_heartbeat_timeout_ms, 1, 3600'000);
  CheckRange("roster_timeout_s", FLAGS_roster_timeout_s, 1, 1000'000);
  CheckRange("timeout_s", FLAGS_timeout_s, 1, 1000'000);
  CheckRange("restart_timeout_s", FLAGS_restart_timeout_s, 0, 1000'000);
  CheckRange("worker_timeout", FLAGS_worker_timeout, 0, 1000'000);
  if (FLAGS_heartbeat_timeout_ms < 2 * FLAGS_heartbeat_interval_ms) {
    DieOfUsage(absl::StrCat("--heartbeat_timeout_ms=", FLAGS_heartbeat_timeout_ms,
                            ": expected at least twice --heartbeat_interval_ms, which is ",
                            FLAGS_heartbeat_interval_ms));
  }
  SchedulerOptions options;
  options.job_id = FLAGS_job_id;
  options.num_workers = static_cast<uint32_t>(FLAGS_num_workers);
  options.num_servers = static_cast<uint32_t>(FLAGS_num_servers);
  options.heartbeat_interval = absl::Milliseconds(FLAGS_heartbeat_interval_ms);
  options.heartbeat_timeout = absl::Milliseconds(FLAGS_heartbeat_timeout_ms);
  options.roster_timeout = absl::Seconds(FLAGS_roster_timeout_s);
  options.timeout = absl::Seconds(FLAGS_timeout_s);
  options.restart_timeout = absl::Seconds(FLAGS_restart_timeout_s);
  options.worker_timeout = absl::Seconds(FLAGS_worker_timeout);
  options.has_journal = !FLAGS_journal.empty();
  if (options.has_journal && FLAGS_restart_timeout_s == 0) {
    DieOfUsage("--journal needs --restart_timeout_s: how long nodes wait for this scheduler");
  }
  CheckRange("metrics_port", FLAGS_metrics_port, -1, 65535);
  CheckRange("page_port", FLAGS_page_port, -1, 65535);
  CheckRange("stall_warning", FLAGS_stall_warning, 0, 1000'000);
  if (!FLAGS_watch_file.empty() && FLAGS_page_port < 0) {
    DieOfUsage("--watch_file needs --page_port");
  }
  options.wants_reports =
      FLAGS_metrics_port >= 0 || FLAGS_page_port >= 0 || FLAGS_stall_warning > 0;
  options.shutdown_grace = std::min(options.heartbeat_timeout, options.shutdown_grace);
  return options;
}

// Returns the address to listen on: where nodes are told to look for the scheduler. `bind` is the
// flag, `uri` is DMLC_PS_ROOT_URI; either may be empty. Ends with wrong usage if the address is
// open without --insecure, or nodes would not find it.
std::string ChooseBind(const std::string& bind, const std::string& uri) {
  const bool from_uri = bind.empty() && !uri.empty();
  const std::string source = from_uri ? "DMLC_PS_ROOT_URI=" : "--bind=";
  const std::string chosen = from_uri ? uri : bind.empty() ? "127.0.0.1" : bind;
  if (const absl::Status reached = CheckName(chosen); !reached.ok()) {
    LOG(WARNING) << source << reached.message();
  }
  const bool is_open = !IsLoopback(ResolveForBind(chosen));
  if (is_open && FLAGS_key_file.empty() && !FLAGS_insecure) {
    DieOfUsage(absl::StrCat(source, chosen,
                            " can be reached by others, and without keys traffic is not encrypted: "
                            "give --key_file, or give --insecure if that network is trusted"));
  }
  if (!is_open && !uri.empty() && !IsLoopback(ResolveForBind(uri))) {
    DieOfUsage(absl::StrCat(source, chosen, ": nodes look for the scheduler at DMLC_PS_ROOT_URI=",
                            uri, ", where nobody would listen: leave --bind out"));
  }
  return chosen;
}

// Writes the port. A reader that waits for the file sees it whole or not at all.
absl::Status WritePortFile(const std::string& path, const std::string& address) {
  const std::string port = address.substr(address.rfind(':') + 1);
  return Prefixed(WriteFileDurably(path, port + "\n"), "--port_file");
}

// Returns where to listen for those who watch the job. Ends with wrong usage if it is told a token
// that is none.
WatchServers::Options WatchOptionsFromFlags() {
  const auto port = [](int32_t flag) {
    return flag < 0 ? std::nullopt : std::optional(static_cast<uint16_t>(flag));
  };
  std::string token;
  if (!FLAGS_watch_token_file.empty()) {
    absl::StatusOr<std::string> read = ReadTokenFile(FLAGS_watch_token_file);
    if (!read.ok()) DieOfUsage(absl::StrCat("--watch_token_file: ", read.status().message()));
    token = *std::move(read);
  }
  return {.bind = ResolveForBind(FLAGS_watch_bind),
          .metrics_port = port(FLAGS_metrics_port),
          .page_port = port(FLAGS_page_port),
          .file = FLAGS_watch_file,
          .token = std::move(token),
          .job_id = FLAGS_job_id};
}

JobWatch::Options WatchedJob(const SchedulerOptions& options) {
  return {.num_workers = options.num_workers,
          .num_servers = options.num_servers,
          .heartbeat_interval = options.heartbeat_interval,
          .stall_warning = absl::Seconds(FLAGS_stall_warning)};
}

void Look(SchedulerService* service, WatchService* watch) {
  watch->Observe(service->Observe({.known_version = watch->decision_version(),
                                   .wants_details = watch->IsWatched(),
                                   .waits = watch->Waits()}));
}

// Reads which workers' processes have ended from stdin, as launch writes it. Does not block.
class EndsFromStdin final {
 public:
  void TellTo(SchedulerService* service) {
    pollfd input = {.fd = STDIN_FILENO, .events = POLLIN, .revents = 0};
    char bytes[256];
    while (is_open_ && poll(&input, 1, /*timeout=*/0) > 0) {
      const ssize_t count = read(STDIN_FILENO, bytes, sizeof(bytes));
      is_open_ = count > 0;
      if (is_open_) unread_.append(bytes, static_cast<size_t>(count));
    }
    for (size_t end; (end = unread_.find('\n')) != std::string::npos; unread_.erase(0, end + 1)) {
      const std::vector<std::string> words = absl::StrSplit(unread_.substr(0, end), ' ');
      uint32_t rank = 0;
      uint64_t pid = 0;
      if (words.size() == 3 && words[0] == "ended" && absl::SimpleAtoi(words[1], &rank) &&
          absl::SimpleAtoi(words[2], &pid)) {
        service->WorkerEnded(rank, pid);
      }
    }
  }

 private:
  bool is_open_ = FLAGS_ends_from_stdin;
  std::string unread_;
};

// Tells the launcher how the job failed, before nodes learn of it and end (blame.py reads it).
void ReportFailure(const absl::Status& why, const std::optional<wire::NodeRef>& blamed) {
  std::map<std::string, std::string> facts = {{"job", "failed"}};
  if (blamed.has_value()) {
    facts["blames"] = absl::StrCat(RoleName(blamed->role()), blamed->rank());
  }
  ReportEnd(why, facts);
}

// Returns when the job is over. A signal of `signals` ends the job first. `watch` may be null.
void TickUntilDone(SchedulerService* service, WatchService* watch, const Clock& clock,
                   const sigset_t& signals, absl::Duration tick) {
  const timespec wait = absl::ToTimespec(tick);
  SteadyTime look_at = SteadyTime::InfinitePast();
  EndsFromStdin ends;
  while (!service->done()) {
    const int signal = sigtimedwait(&signals, nullptr, &wait);
    if (signal > 0) {
      service->Abort(
          absl::CancelledError(absl::StrCat("the scheduler was stopped by ", strsignal(signal))));
    }
    ends.TellTo(service);
    service->Tick();
    if (watch == nullptr || clock.Now() < look_at) continue;
    Look(service, watch);
    look_at = clock.Now() + kLookEvery;
  }
  if (watch != nullptr) Look(service, watch);  // how it has ended
}

// Reads the job's keys, if there are any, and lets their holders connect.
absl::Status TakeKeys(SchedulerOptions* options, ZmqTransportOptions* transport) {
  if (FLAGS_key_file.empty()) {
    if (FLAGS_insecure) LOG(WARNING) << kInsecureWarning;
    return absl::OkStatus();
  }
  SLIMPS_ASSIGN_OR_RETURN(transport->secret_key, ReadKeyFile(FLAGS_key_file));
  SLIMPS_ASSIGN_OR_RETURN(options->allowed, ReadAllowFile(FLAGS_allow_file));
  AllowedKeys::Owners owners;
  std::set<std::string> missing;
  for (uint32_t i = 0; i < options->num_servers; ++i) missing.insert(NodeName(wire::SERVER, i));
  for (uint32_t i = 0; i < options->num_workers; ++i) missing.insert(NodeName(wire::WORKER, i));
  for (const AllowedNode& node : options->allowed) {
    const std::string name = NodeName(node.role, node.rank);
    missing.erase(name);
    owners[node.public_key] = name;
  }
  if (!missing.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(FLAGS_allow_file, ": no key of ", *missing.begin(), ", which the job has"));
  }
  auto allowed = std::make_shared<AllowedKeys>();
  allowed->Set(std::move(owners));
  transport->allowed_keys = std::move(allowed);
  return absl::OkStatus();
}

absl::Status Run(SchedulerOptions options, const std::string& bind) {
  const sigset_t signals = BlockStopSignals();
  const RealClock clock;
  ZmqTransportOptions transport_options;
  transport_options.strangers.emplace();
  if (const absl::Status taken = TakeKeys(&options, &transport_options); !taken.ok()) {
    DieOfUsage(std::string(taken.message()));  // who starts it again meets the same
  }
  const absl::Status room =
      ReserveDescriptors({.accepted = size_t{options.num_workers} + options.num_servers});
  if (!room.ok()) DieOfUsage(std::string(room.message()));
  ZmqTransport transport(transport_options);
  std::unique_ptr<Journal> journal;
  if (options.has_journal) {
    SLIMPS_ASSIGN_OR_RETURN(
        journal,
        Journal::Open(FLAGS_journal, {options.job_id, options.num_workers, options.num_servers}));
  }
  std::unique_ptr<WatchService> watch;
  if (options.wants_reports) {
    watch = std::make_unique<WatchService>(WatchedJob(options), &clock);
  }
  // Ports that are taken are named before nodes come.
  SLIMPS_ASSIGN_OR_RETURN(const std::unique_ptr<WatchServers> servers,
                          WatchServers::Start(WatchOptionsFromFlags(), watch.get()));
  SchedulerService service(&transport, options, &clock, journal.get());
  service.SetFailureHandler(ReportFailure);
  if (journal != nullptr) SLIMPS_RETURN_IF_ERROR(service.Restore());
  SLIMPS_ASSIGN_OR_RETURN(const std::string address,
                          transport.Bind(absl::StrCat("tcp://", bind, ":", FLAGS_port)));
  SLIMPS_RETURN_IF_ERROR(transport.Start(&service));
  if (!FLAGS_port_file.empty()) SLIMPS_RETURN_IF_ERROR(WritePortFile(FLAGS_port_file, address));
  LOG(INFO) << "job \"" << options.job_id << "\": waiting at " << address << " for "
            << CountOf(options.num_workers, wire::WORKER) << " and "
            << CountOf(options.num_servers, wire::SERVER);
  const absl::Duration tick = std::min(options.heartbeat_interval / 4, absl::Milliseconds(100));
  TickUntilDone(&service, watch.get(), clock, signals, tick);
  transport.Stop();
  return service.result();
}

}  // namespace
}  // namespace slimps

int main(int argc, char** argv) {
  slimps::EndWhereMemoryRunsOut();
  slimps::ParseProgramFlags(
      "slimps_scheduler --num_workers N --num_servers S --port P: who is in the job", argc, argv);
  const slimps::SchedulerOptions options = slimps::OptionsFromFlags();
  const char* uri = std::getenv("DMLC_PS_ROOT_URI");
  const std::string bind = slimps::ChooseBind(FLAGS_bind, uri == nullptr ? "" : uri);
  slimps::ProgramTrace trace(FLAGS_trace, "scheduler");
  trace.SetRank(0);
  return slimps::ExitStatus(trace.Finish(slimps::Run(options, bind)));
}
