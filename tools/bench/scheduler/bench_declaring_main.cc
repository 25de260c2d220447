// SPDX-License-Identifier: Apache-2.0
// bench_declaring: measures how long the scheduler's I/O thread is busy while all workers of a job
// declare all keys. It parses the frames, runs the state machine and builds the answers, without
// sockets.
//
//   bench_declaring --workers 512 --keys 400 --servers 8
//   512 workers declare 400 keys on 8 servers: 0.61 s (parsing 0.22, deciding 0.14, answering
//   0.25), 512 answers
//
// Seconds are this thread's CPU time.
// Exit status: 0 done; 1 not every worker got its answer; 2 wrong usage.
#include <gflags/gflags.h>

#include <cstdint>
#include <iostream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "proto/base/hash.h"
#include "proto/base/program_flags.h"
#include "proto/base/status_macros.h"
#include "proto/frame.h"
#include "proto/limits.h"
#include "scheduler/scheduler_state.h"
#include "tools/bench/stopwatch.h"

DEFINE_int32(workers, 512, "how many workers declare");
DEFINE_int32(keys, 400, "how many keys each of them declares");
DEFINE_int32(servers, 8, "how many servers the keys are placed on");

namespace slimps {
namespace {

struct Spent {
  double parsing = 0, deciding = 0, answering = 0;
  int64_t placements = 0;
};

wire::Header HeaderOf(wire::Role role, uint64_t node) {
  wire::Header header;
  header.set_protocol_version(kProtocolVersion);
  header.set_job_id("bench");
  header.set_incarnation(node);
  header.set_request_id(node);
  header.mutable_sender()->set_role(role);
  return header;
}

wire::Header Registration(wire::Role role, uint64_t node) {
  wire::Header header = HeaderOf(role, node);
  wire::Register* registration = header.mutable_register_();
  registration->set_role(role);
  registration->set_wanted_rank(-1);
  registration->set_num_workers(static_cast<uint32_t>(FLAGS_workers));
  registration->set_num_servers(static_cast<uint32_t>(FLAGS_servers));
  // Each node has a host of its own, so that no node is taken for another one that has restarted.
  registration->set_host(absl::StrCat("host", node));
  if (role == wire::SERVER) registration->add_endpoints("tcp://10.0.0.1:1");
  return header;
}

wire::Header Declaration(uint64_t node) {
  wire::Header header = HeaderOf(wire::WORKER, node);
  header.mutable_declare_keys()->set_partition_elements(1 << 20);
  for (int key = 0; key < FLAGS_keys; ++key) {
    wire::KeyInfo* info = header.mutable_declare_keys()->add_keys();
    info->set_name(absl::StrCat("s:encoder.layer.", key, ".attention.output.dense.weight"));
    info->set_key(HashText(info->name()));
    info->add_shape(1024);
    info->add_shape(1024 + key);
  }
  return header;
}

// Handles one message as the I/O thread does: from its bytes to the answers' bytes.
absl::Status Serve(const Frame& frame, PeerId from, SchedulerState* scheduler, Spent* spent) {
  const double begin = SecondsNow(1);
  const std::vector<std::span<const std::byte>> parts = {frame[0].bytes()};
  SLIMPS_ASSIGN_OR_RETURN(const wire::Header header, ParseFrame(parts, kDefaultLimits));
  const double parsed = SecondsNow(1);
  Outbox outbox = scheduler->Handle(from, header, {});
  const double decided = SecondsNow(1);
  for (OutgoingHeader& outgoing : outbox) {
    spent->placements += outgoing.header.has_placement() ? 1 : 0;
    SLIMPS_RETURN_IF_ERROR(
        BuildFrame({.header = std::move(outgoing.header), .payloads = {}}, kDefaultLimits)
            .status());
  }
  spent->parsing += parsed - begin;
  spent->deciding += decided - parsed;
  spent->answering += SecondsNow(1) - decided;
  return absl::OkStatus();
}

absl::Status Run() {
  const uint64_t servers = static_cast<uint64_t>(FLAGS_servers);
  const uint64_t nodes = servers + static_cast<uint64_t>(FLAGS_workers);
  SchedulerState scheduler({.job_id = "bench",
                            .num_workers = static_cast<uint32_t>(FLAGS_workers),
                            .num_servers = static_cast<uint32_t>(FLAGS_servers)},
                           {});
  for (uint64_t node = 1; node <= nodes; ++node) {
    const wire::Role role = node <= servers ? wire::SERVER : wire::WORKER;
    scheduler.Handle(PeerId{node}, Registration(role, node), {});
  }
  if (scheduler.phase() != SchedulerState::Phase::kRunning) {
    return absl::InternalError("the job has not formed");
  }
  Spent spent;
  for (uint64_t node = servers + 1; node <= nodes; ++node) {
    SLIMPS_ASSIGN_OR_RETURN(
        const Frame frame,
        BuildFrame({.header = Declaration(node), .payloads = {}}, kDefaultLimits));
    SLIMPS_RETURN_IF_ERROR(Serve(frame, PeerId{node}, &scheduler, &spent));
  }
  std::cout << absl::StrFormat(
                   "%d workers declare %d keys on %d servers: %.2f s (parsing %.2f, deciding %.2f, "
                   "answering %.2f), %d answers",
                   FLAGS_workers, FLAGS_keys, FLAGS_servers,
                   spent.parsing + spent.deciding + spent.answering, spent.parsing, spent.deciding,
                   spent.answering, spent.placements)
            << std::endl;
  if (spent.placements == FLAGS_workers) return absl::OkStatus();
  return absl::InternalError(
      absl::StrCat("expected ", FLAGS_workers, " answers, got ", spent.placements));
}

}  // namespace
}  // namespace slimps

int main(int argc, char** argv) {
  slimps::ParseProgramFlags("bench_declaring --workers N --keys N --servers N", argc, argv);
  slimps::CheckRange("workers", FLAGS_workers, 1, 4096);
  slimps::CheckRange("keys", FLAGS_keys, 1, 4000);
  slimps::CheckRange("servers", FLAGS_servers, 1, 4096);
  return slimps::ExitStatus(slimps::Run());
}
