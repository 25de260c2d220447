// SPDX-License-Identifier: Apache-2.0
// bench_store: a worker that pushes and pulls as commands on stdin say; `slimps bench transport`
// measures it. It finds its job in the DMLC_* variables, as every worker does. store_bench.h
// describes commands and answers.
//
//   DMLC_PS_ROOT_PORT=9091 bench_store --checksums=false --same_host=ipc
//
// Exit status: 0 the commands ended; 1 it failed; 2 wrong usage.
#include <gflags/gflags.h>

#include <iostream>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "proto/base/program_flags.h"
#include "proto/base/status_macros.h"
#include "proto/net/zmq/same_host.h"
#include "tools/bench/models/models.h"
#include "tools/bench/transport/store_bench.h"
#include "worker/kvstore.h"
#include "worker/kvstore_options.h"

DEFINE_string(root_uri, "127.0.0.1", "the scheduler's host (environment: DMLC_PS_ROOT_URI)");
DEFINE_int32(root_port, 0, "the scheduler's port (environment: DMLC_PS_ROOT_PORT)");
DEFINE_int32(num_workers, 1, "how many workers the job has (environment: DMLC_NUM_WORKER)");
DEFINE_int32(num_servers, 1, "how many servers the job has (environment: DMLC_NUM_SERVER)");
DEFINE_bool(checksums, true, "of payloads, on the wire");
DEFINE_string(compression, "none", "the codec of all pushes; verify then finds what it loses");
DEFINE_string(pull_compression, "none", "the codec of all pulls");
DEFINE_string(emulate_link, "", "rate of an emulated link, as 1gbit");
DEFINE_string(key_file, "", "file with this worker's secret key (environment: SLIMPS_KEY_FILE)");
DEFINE_string(scheduler_key, "",
              "the scheduler's public key in hexadecimal (environment: SLIMPS_SCHEDULER_KEY)");
DEFINE_bool(list_models, false, "print the models that there are, and end");
DEFINE_string(same_host, "shm", "how to reach servers of this machine: tcp, ipc or shm");

namespace slimps {
namespace {

absl::StatusOr<KVStoreOptions> OptionsFromFlags() {
  CheckRole("worker");
  TakeFromEnvironment("root_uri", "DMLC_PS_ROOT_URI");
  TakeFromEnvironment("root_port", "DMLC_PS_ROOT_PORT");
  TakeFromEnvironment("key_file", "SLIMPS_KEY_FILE");
  TakeFromEnvironment("scheduler_key", "SLIMPS_SCHEDULER_KEY");
  SettleJobSize(FLAGS_num_workers, FLAGS_num_servers);
  CheckRange("root_port", FLAGS_root_port, 1, 65535);
  KVStoreOptions options;
  options.scheduler_address = absl::StrCat("tcp://", FLAGS_root_uri, ":", FLAGS_root_port);
  options.num_workers = static_cast<uint32_t>(FLAGS_num_workers);
  options.num_servers = static_cast<uint32_t>(FLAGS_num_servers);
  options.checksums = FLAGS_checksums;
  options.compression = FLAGS_compression;
  options.fixed_threshold_bytes = 0;
  options.pull_compression = FLAGS_pull_compression;
  options.fixed_pull_threshold_bytes = 0;
  options.key_file = FLAGS_key_file;
  options.scheduler_key = FLAGS_scheduler_key;
  if (!FLAGS_emulate_link.empty()) {
    SLIMPS_RETURN_IF_ERROR(SetOption("emulate_link", FLAGS_emulate_link, &options));
  }
  SLIMPS_ASSIGN_OR_RETURN(options.same_host, ParseSameHost(FLAGS_same_host));
  return options;
}

absl::Status Run() {
  SLIMPS_ASSIGN_OR_RETURN(const KVStoreOptions options, OptionsFromFlags());
  SLIMPS_ASSIGN_OR_RETURN(const auto store, KVStore::Create("dist_sync", options));
  SLIMPS_ASSIGN_OR_RETURN(const auto bench, StoreBench::Create(store.get()));
  std::cout << "{\"rank\": " << store->rank() << "}" << std::endl;
  SLIMPS_RETURN_IF_ERROR(ServeCommands(
      std::cin, std::cout, [&](const Command& command) { return bench->Answer(command); }));
  return store->Close();
}

}  // namespace
}  // namespace slimps

int main(int argc, char** argv) {
  slimps::ParseProgramFlags("bench_store --root_port PORT", argc, argv);
  if (FLAGS_list_models) {
    std::cout << "{\"models\": [\"" << absl::StrJoin(slimps::ModelNames(), "\", \"") << "\"]}\n";
    return 0;
  }
  return slimps::ExitStatus(slimps::Run());
}
