// SPDX-License-Identifier: Apache-2.0
// bench_raw_zmq: plain ZeroMQ, with which `slimps bench transport` compares the store. It uses
// DEALER and ROUTER and has the same bytes in flight, and the receiver reads every byte.
//
//   bench_raw_zmq --listen tcp://127.0.0.1:*            # prints {"endpoint": "tcp://..."} and
//                                                       serves
//   bench_raw_zmq --connect tcp://127.0.0.1:40213,...   # takes commands on stdin:
//     one_way bytes=B count=N window=W start_at=US   N messages of B bytes, W of them in flight
//     two_way bytes=B count=N window=W start_at=US   the same in both directions at once
//     ping bytes=B count=N pause_us=P start_at=US    N round trips, each after a pause of P
//                                                    microseconds
// A command begins at US microseconds of CLOCK_MONOTONIC; 0: at once.
//
// Exit status: 0 the commands ended; 1 it failed; 2 wrong usage.
#include <gflags/gflags.h>

#include <algorithm>
#include <iostream>
#include <numeric>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "proto/base/program_flags.h"
#include "proto/base/status_macros.h"
#include "tools/bench/transport/command.h"
#include "tools/bench/transport/raw_client.h"
#include "tools/bench/transport/raw_server.h"

DEFINE_string(listen, "", "address to serve at, as tcp://127.0.0.1:* or ipc:///PATH");
DEFINE_string(connect, "", "addresses of the servers, with commas");

namespace slimps {
namespace {

absl::StatusOr<RawRun> RunOf(const Command& command) {
  RawRun run;
  SLIMPS_ASSIGN_OR_RETURN(run.bytes, command.Count("bytes", kControlBytes + 1, kMaxMessageBytes));
  SLIMPS_ASSIGN_OR_RETURN(run.count, command.Count("count", 1, kMaxMessages));
  SLIMPS_ASSIGN_OR_RETURN(const uint64_t start_us, command.Count("start_at", 0, UINT64_MAX));
  run.start_at = 1e-6 * static_cast<double>(start_us);
  return run;
}

absl::StatusOr<std::string> Answer(RawClient* client, size_t servers, const Command& command) {
  SLIMPS_ASSIGN_OR_RETURN(RawRun run, RunOf(command));
  if (command.verb == "one_way" || command.verb == "two_way") {
    SLIMPS_ASSIGN_OR_RETURN(run.window, command.Count("window", servers, 1 << 20));
    SLIMPS_ASSIGN_OR_RETURN(const double seconds, client->Stream(command.verb, run));
    return TimesJson(seconds, {});
  }
  if (command.verb == "ping") {
    SLIMPS_ASSIGN_OR_RETURN(const uint64_t pause, command.Count("pause_us", 0, 1000'000));
    run.window = servers;
    run.count = std::max<uint64_t>(run.count, servers);
    SLIMPS_ASSIGN_OR_RETURN(const std::vector<double> samples,
                            client->Ping(run, absl::Microseconds(pause)));
    return TimesJson(1e-6 * std::accumulate(samples.begin(), samples.end(), 0.0), samples);
  }
  return absl::InvalidArgumentError(
      absl::StrCat("command: expected one_way, two_way or ping, got \"", command.verb, "\""));
}

absl::Status Run() {
  if (!FLAGS_listen.empty()) {
    SLIMPS_ASSIGN_OR_RETURN(const auto server, RawServer::Bind(FLAGS_listen));
    std::cout << "{\"endpoint\": \"" << server->endpoint() << "\"}" << std::endl;
    return server->Serve();
  }
  const std::vector<std::string> endpoints = absl::StrSplit(FLAGS_connect, ',');
  SLIMPS_ASSIGN_OR_RETURN(const auto client, RawClient::Connect(endpoints));
  return ServeCommands(std::cin, std::cout, [&](const Command& command) {
    return Answer(client.get(), endpoints.size(), command);
  });
}

}  // namespace
}  // namespace slimps

int main(int argc, char** argv) {
  slimps::ParseProgramFlags("bench_raw_zmq --listen ADDRESS | --connect ADDRESS,...", argc, argv);
  if (FLAGS_listen.empty() == FLAGS_connect.empty()) {
    slimps::DieOfUsage("expected either --listen or --connect");
  }
  return slimps::ExitStatus(slimps::Run());
}
