// SPDX-License-Identifier: Apache-2.0
// One worker of `tools/slimps bench soak`: trains for very many rounds, with simulated compute that
// takes no time, and keeps no record of them. It finds its job in the DMLC_* variables, as every
// worker does.
//
// It prints lines of JSON on stdout: {"rank": R} when its weights are initialised, {"round": N}
// after every `say_every` rounds, and the totals after the last round. After each line it waits for
// a line on stdin.
//
//   DMLC_PS_ROOT_PORT=9091 bench_soak_worker --rounds=10000 --say_every=500
//   --tensors=2x262144,48x256
//
// Exit status: 0 done; 1 failed; 2 wrong usage.
#include <gflags/gflags.h>

#include <cstdint>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "proto/base/program_flags.h"
#include "proto/base/status_macros.h"
#include "proto/net/zmq/same_host.h"
#include "tools/bench/cluster/training_loop.h"
#include "tools/bench/models/models.h"
#include "worker/kvstore.h"

DEFINE_string(root_uri, "127.0.0.1", "the scheduler's host (environment: DMLC_PS_ROOT_URI)");
DEFINE_int32(root_port, 0, "the scheduler's port (environment: DMLC_PS_ROOT_PORT)");
DEFINE_int32(num_workers, 1, "how many workers the job has (environment: DMLC_NUM_WORKER)");
DEFINE_int32(num_servers, 1, "how many servers the job has (environment: DMLC_NUM_SERVER)");
DEFINE_string(tensors, "2x262144,4x65536,48x256", "COUNTxELEMENTS,...: front layers first");
DEFINE_int32(rounds, 10000, "how long");
DEFINE_int32(say_every, 500, "rounds between two lines");
DEFINE_string(compression, "1bit", "codec spec of pushes and of pulls");
DEFINE_int64(threshold, -1,
             "tensors of at least this many fp32 bytes are compressed; -1: as measured");
DEFINE_int32(remeasure_every, 50, "rounds after which a measured threshold is measured again");
DEFINE_bool(backup_model, true, "as the paper; else each round waits for the one before");
DEFINE_string(same_host, "shm", "how to reach servers of this machine: tcp, ipc or shm");

namespace slimps {
namespace {

constexpr int64_t kMaxTensors = 100'000;
constexpr int64_t kMaxElements = 1 << 28;

ModelShape ModelFromFlag() {
  ModelShape model{.name = "soak", .source = "--tensors", .tensors = {}};
  for (const absl::string_view part : absl::StrSplit(FLAGS_tensors, ',')) {
    const std::vector<std::string> words = absl::StrSplit(part, 'x');
    int64_t count = 0, elements = 0;
    if (words.size() != 2 || !absl::SimpleAtoi(words[0], &count) ||
        !absl::SimpleAtoi(words[1], &elements) || count < 1 || count > kMaxTensors ||
        elements < 1 || elements > kMaxElements) {
      DieOfUsage(absl::StrCat("--tensors=", FLAGS_tensors, ": expected COUNTxELEMENTS,... of 1 to ",
                              kMaxTensors, " tensors of 1 to ", kMaxElements, " elements"));
    }
    for (int64_t i = 0; i < count; ++i) {
      model.tensors.push_back({.name = absl::StrCat("t", model.tensors.size()),
                               .shape = {elements},
                               .layer = LayerKind::kDense,
                               .multiply_adds = static_cast<double>(elements)});
    }
  }
  return model;
}

absl::StatusOr<KVStoreOptions> OptionsFromFlags() {
  KVStoreOptions options;
  options.scheduler_address = absl::StrCat("tcp://", FLAGS_root_uri, ":", FLAGS_root_port);
  options.num_workers = static_cast<uint32_t>(FLAGS_num_workers);
  options.num_servers = static_cast<uint32_t>(FLAGS_num_servers);
  options.compression = options.pull_compression = FLAGS_compression;
  if (FLAGS_threshold >= 0) {
    options.fixed_threshold_bytes = options.fixed_pull_threshold_bytes =
        static_cast<uint64_t>(FLAGS_threshold);
  } else {
    options.remeasure_every = static_cast<uint64_t>(FLAGS_remeasure_every);
  }
  SLIMPS_ASSIGN_OR_RETURN(options.same_host, ParseSameHost(FLAGS_same_host));
  return options;
}

// Waits for a line on stdin. Until it comes, this process is idle, so its memory can be measured.
absl::Status AwaitLine() {
  std::string line;
  if (std::getline(std::cin, line)) return absl::OkStatus();
  return absl::CancelledError("stdin ended before the last round");
}

absl::Status Train(const KVStore& store, TrainingLoop* loop) {
  SLIMPS_RETURN_IF_ERROR(AwaitLine());
  for (int64_t round = 1; round <= FLAGS_rounds; ++round) {
    SLIMPS_RETURN_IF_ERROR(loop->Iterate(round));
    if (round % FLAGS_say_every != 0 || round == FLAGS_rounds) continue;
    std::cout << "{\"round\": " << round << "}" << std::endl;
    SLIMPS_RETURN_IF_ERROR(AwaitLine());
  }
  SLIMPS_RETURN_IF_ERROR(loop->Finish());
  const StoreTotals totals = store.totals();
  const std::optional<wire::CodecMap> decision = store.codec_map();
  std::cout << absl::StrFormat(
                   "{\"round\": %d, \"weights_hash\": \"%x\", \"gradient_bytes\": %d, "
                   "\"bytes_pushed\": %d, "
                   "\"bytes_pulled\": %d, \"changes_pulled\": %d, \"bytes_shared\": %d, "
                   "\"decisions\": %d}",
                   FLAGS_rounds, loop->WeightsHash(), totals.pushed.elements * sizeof(float),
                   totals.bytes_pushed, totals.bytes_pulled, totals.changes_pulled,
                   totals.bytes_shared, decision.has_value() ? decision->version() : 0)
            << std::endl;
  return AwaitLine();
}

absl::Status Run() {
  const ModelShape model = ModelFromFlag();
  SLIMPS_ASSIGN_OR_RETURN(const KVStoreOptions options, OptionsFromFlags());
  std::unique_ptr<TrainingLoop> loop;  // outlives the store, since pulls write into it
  SLIMPS_ASSIGN_OR_RETURN(const auto store, KVStore::Create("dist_sync", options));
  SLIMPS_ASSIGN_OR_RETURN(loop,
                          TrainingLoop::Start(store.get(), model,
                                              {.backup_model = FLAGS_backup_model,
                                               .compute = absl::ZeroDuration(),
                                               .device_encode_per_element = absl::ZeroDuration(),
                                               .timeout = store->timeout()}));
  std::cout << "{\"rank\": " << store->rank() << "}" << std::endl;
  const absl::Status trained = Train(*store, loop.get());
  if (!trained.ok()) store->Abort(trained);
  const absl::Status closed = store->Close();
  return trained.ok() ? closed : trained;
}

}  // namespace
}  // namespace slimps

int main(int argc, char** argv) {
  slimps::ParseProgramFlags("bench_soak_worker --root_port PORT", argc, argv);
  slimps::CheckRole("worker");
  slimps::TakeFromEnvironment("root_uri", "DMLC_PS_ROOT_URI");
  slimps::TakeFromEnvironment("root_port", "DMLC_PS_ROOT_PORT");
  slimps::SettleJobSize(FLAGS_num_workers, FLAGS_num_servers);
  slimps::CheckRange("root_port", FLAGS_root_port, 1, 65535);
  slimps::CheckRange("rounds", FLAGS_rounds, 1, 1'000'000'000);
  slimps::CheckRange("say_every", FLAGS_say_every, 1, 1'000'000'000);
  slimps::CheckRange("remeasure_every", FLAGS_remeasure_every, 0, 1'000'000);
  return slimps::ExitStatus(slimps::Run());
}
