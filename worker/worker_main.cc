// SPDX-License-Identifier: Apache-2.0
// slimps_worker: one worker of a training job. It trains on its part of the data. Rank 0 evaluates
// at the end and writes the summary.
//
// Exit status: 0 trained to the end; 1 failed; 2 wrong usage.
#include <gflags/gflags.h>
#include <glog/logging.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "compress/policy/threshold_table_file.h"
#include "proto/base/clock.h"
#include "proto/base/file.h"
#include "proto/base/out_of_memory.h"
#include "proto/base/program_flags.h"
#include "proto/base/status_copy.h"
#include "proto/base/status_macros.h"
#include "proto/base/trace/program_trace.h"
#include "worker/kvstore.h"
#include "worker/kvstore_options.h"
#include "worker/trainer/checkpoint_folder.h"
#include "worker/trainer/dataset.h"
#include "worker/trainer/model.h"
#include "worker/trainer/options.h"
#include "worker/trainer/progress.h"
#include "worker/trainer/summary.h"
#include "worker/trainer/train_loop.h"
#include "worker/trainer/weights_file.h"
#include "worker/worker_arguments.h"

namespace {
const slimps::WorkerFlags kDefaults;
const slimps::KVStoreOptions kStoreDefaults;
}  // namespace

DEFINE_string(model, "mlp", "logistic, mlp, lenet, resnet20, lstm or char_transformer");
DEFINE_string(dataset, "digits", "digits, mnist, cifar10 or text");
DEFINE_string(data_dir, "", "folder that holds the data set's files (digits: may be left out)");
DEFINE_int64(epochs, kDefaults.epochs, "passes over the training data");
DEFINE_int64(batch, kDefaults.batch, "samples per worker and step");
DEFINE_string(optimizer, "sgd",
              "what the servers step by: sgd, momentum, nesterov, adam, adamw or onebit_adam");
DEFINE_int64(freeze_after, kDefaults.freeze_after,
             "onebit_adam: steps of its warm-up, which is Adam without compression; 0: until the "
             "variance is stable");
DEFINE_double(lr, kDefaults.lr, "learning rate");
DEFINE_string(
    lr_schedule, "constant",
    "constant, or from --lr to 0 over the run: cosine or linear; one_cycle climbs to --lr "
    "in the run's first 3/10 and falls to 0 by a cosine");
DEFINE_double(momentum, kDefaults.momentum, "factor of --optimizer momentum or nesterov");
DEFINE_double(weight_decay, kDefaults.weight_decay, "weight decay");
DEFINE_double(clip_norm, kDefaults.clip_norm,
              "the workers' mean gradient, all tensors of a step together, is scaled down to this "
              "norm by the servers, which step no weight before all gradients have arrived; "
              "dist_sync; 0: no clipping");
DEFINE_string(compression, "none",
              "NAME[:option=value,...], as 1bit, 2bit:threshold=0.5 or topk:ratio=0.01; with Adam, "
              "qsgd:bits=4,norm=max,error_feedback=on, or 1bit beside --optimizer=onebit_adam; "
              "none: full precision");
DEFINE_bool(dry_run, false, "check the flags and do nothing");
DEFINE_string(threshold, "auto",
              "tensors of at least this many fp32 bytes are compressed (0: all, which costs 1bit "
              "accuracy), or auto");
DEFINE_string(policy, kStoreDefaults.policy,
              "what decides which codec a push uses: threshold (--compression and --threshold), or "
              "a policy that adapts, as lgreco:codec=topk");
DEFINE_string(
    pull_compression, "none",
    "what pulls carry: none the weights, fp16 or bf16 the weights in half precision, another codec "
    "their change, as 1bit; policy: their change in the codec that --policy has chosen");
DEFINE_string(pull_threshold, "auto",
              "tensors of at least this many fp32 bytes are pulled compressed (0: all), or auto");
DEFINE_int64(pre_steps, kStoreDefaults.pre_steps,
             "first steps, in which the automatic threshold is measured");
DEFINE_int64(
    remeasure_every, kStoreDefaults.remeasure_every,
    "of every so many steps, two measure again, so that the automatic threshold follows the "
    "link; 0: never, otherwise at least 8");
DEFINE_string(threshold_table, "", "a saved threshold table to start from: nothing is measured");
DEFINE_string(save_threshold_table, "",
              "file that rank 0 writes the measured threshold table to, for --threshold_table");
DEFINE_string(backup_model, "off", "on: compute while weights are under way, one round of lag");
DEFINE_string(local_optimizer, "server",
              "what the backup model steps by: server (as the servers do, with their momentum), or "
              "sgd, momentum or adam (this worker's gradients alone)");
DEFINE_double(loc_lr, kDefaults.loc_lr,
              "the backup model's learning rate; 0: that of --lr, and half of it for "
              "--optimizer=sgd beside other workers");
DEFINE_string(kvstore, "dist_sync", "dist_sync, dist_async or dist_ssp");
DEFINE_int64(staleness, kStoreDefaults.staleness,
             "dist_ssp: how many rounds a worker may be ahead of the slowest; worker 0's counts");
DEFINE_string(non_finite, "stop", "NaN or infinity in a gradient: stop, or skip the tensor");
DEFINE_int64(partition_bytes, kStoreDefaults.partition_bytes,
             "tensors with more fp32 bytes are cut into partitions of this size");
DEFINE_int64(encode_threads, kStoreDefaults.encode_threads,
             "threads that compress, and that make the local step of --backup_model; 0: as many as "
             "there are cores");
DEFINE_int64(compute_threads, kDefaults.compute_threads, "threads of forward and backward");
DEFINE_int64(seed, kDefaults.seed, "decides the first weights and the order of the samples");
DEFINE_string(emulate_link, "", "rate of an emulated link, as 100mbit, 1gbit or 12.5MB");
DEFINE_double(emulate_latency_ms, 0, "delay of an emulated link, added to what arrives");
DEFINE_string(same_host, "shm",
              "a server on this machine is reached by shm (payloads in shared memory), ipc or tcp; "
              "an emulated link is always tcp");
DEFINE_double(simulate_compute_ms, kDefaults.simulate_compute_ms, "sleep added to every step");
DEFINE_int64(max_steps, kDefaults.max_steps, "stop after so many steps; 0: after all epochs");
DEFINE_int64(log_every, kDefaults.log_every, "steps between progress lines");
DEFINE_int64(join_timeout_s, absl::ToInt64Seconds(kStoreDefaults.join_timeout),
             "seconds until all nodes of the job have come (environment: SLIMPS_JOIN_TIMEOUT_S)");
DEFINE_int64(timeout_s, absl::ToInt64Seconds(kStoreDefaults.timeout),
             "seconds that a call waits for others that live; 0: as the job says");
DEFINE_int32(metrics_port, kStoreDefaults.metrics_port,
             "port for Prometheus, at /metrics: this worker's own; 0: any free one, -1: none "
             "(environment: SLIMPS_METRICS_PORT)");
DEFINE_string(watch_bind, kStoreDefaults.watch_bind.c_str(),
              "address of --metrics_port (environment: SLIMPS_WATCH_BIND)");
DEFINE_string(summary_json, "", "file that rank 0 writes the summary to");
DEFINE_bool(
    evaluate_epochs, false,
    "rank 0 evaluates after every epoch, for after_epoch of the summary; times leave that out");
DEFINE_int64(
    evaluate_every, kDefaults.evaluate_every,
    "rank 0 evaluates after every so many steps, for evaluations of the summary; 0: never");
DEFINE_string(save_weights, "",
              "file that rank 0 writes the final weights to; with {rank} in it every worker does");
DEFINE_string(checkpoint, "",
              "folder that every node sees, for checkpoints of the whole job; the newest two are "
              "kept (environment: SLIMPS_CHECKPOINT)");
DEFINE_int64(checkpoint_every, kDefaults.checkpoint_every,
             "steps from one checkpoint to the next, with --checkpoint");
DEFINE_string(resume, "",
              "a checkpoint, or a folder of some (--checkpoint), whose newest one counts: goes on "
              "from there (environment: SLIMPS_RESUME, which counts more than the flag)");
DEFINE_string(trace, "", slimps::kTraceFlagHelp);
DEFINE_string(scheduler, "",
              "host:port of the scheduler (environment: DMLC_PS_ROOT_URI, DMLC_PS_ROOT_PORT)");
DEFINE_string(key_file, "",
              "file with this worker's secret key, as slimps keygen makes it (environment: "
              "SLIMPS_KEY_FILE); needs --scheduler_key");
DEFINE_string(scheduler_key, "",
              "the scheduler's public key in hexadecimal (environment: SLIMPS_SCHEDULER_KEY)");
DEFINE_string(job_id, "slimps", "name of the job");
DEFINE_int64(num_workers, kStoreDefaults.num_workers,
             "how many workers the job has (environment: DMLC_NUM_WORKER)");
DEFINE_int64(num_servers, kStoreDefaults.num_servers,
             "how many servers the job has (environment: DMLC_NUM_SERVER)");
DEFINE_int64(rank, kStoreDefaults.wanted_rank,
             "the rank to ask for; -1: any (environment: DMLC_WORKER_ID)");

namespace slimps {
namespace {

void ReadEnvironment() {
  CheckRole("worker");
  TakeFromEnvironment("num_workers", "DMLC_NUM_WORKER");
  TakeFromEnvironment("num_servers", "DMLC_NUM_SERVER");
  TakeFromEnvironment("rank", "DMLC_WORKER_ID");
  TakeFromEnvironment("trace", "SLIMPS_TRACE");
  TakeFromEnvironment("checkpoint", "SLIMPS_CHECKPOINT");
  // slimps launch goes back to later checkpoints than that from which the run began.
  const char* newest = std::getenv("SLIMPS_RESUME");
  if (newest != nullptr && *newest != '\0') FLAGS_resume = WithHome(newest);
  TakeFromEnvironment("metrics_port", "SLIMPS_METRICS_PORT");
  TakeFromEnvironment("join_timeout_s", "SLIMPS_JOIN_TIMEOUT_S");
  TakeFromEnvironment("watch_bind", "SLIMPS_WATCH_BIND");
  TakeFromEnvironment("key_file", "SLIMPS_KEY_FILE");
  TakeFromEnvironment("scheduler_key", "SLIMPS_SCHEDULER_KEY");
  const char* host = std::getenv("DMLC_PS_ROOT_URI");
  const char* port = std::getenv("DMLC_PS_ROOT_PORT");
  if (FLAGS_scheduler.empty() && host != nullptr && port != nullptr) {
    FLAGS_scheduler = absl::StrCat(host, ":", port);
  }
}

// Returns the flags that are options of the store and differ from their defaults.
std::map<std::string, std::string> StoreFlags() {
  std::map<std::string, std::string> given;
  for (const std::string& name : OptionNames()) {
    gflags::CommandLineFlagInfo info;
    if (name == "non_finite") continue;  // the flag is the trainer's, which skips where stores pass
    if (gflags::GetCommandLineFlagInfo(name.c_str(), &info) &&
        info.current_value != info.default_value) {
      given[name] = info.current_value;
    }
  }
  return given;
}

// Returns the flags that were set, also those that were set to their defaults.
std::map<std::string, std::string> GivenFlags() {
  std::vector<gflags::CommandLineFlagInfo> flags;
  gflags::GetAllFlags(&flags);
  std::map<std::string, std::string> given;
  for (const gflags::CommandLineFlagInfo& info : flags) {
    if (!info.is_default) given[info.name] = info.current_value;
  }
  return given;
}

WorkerFlags GatherFlags() {
  return {.model = FLAGS_model,
          .dataset = FLAGS_dataset,
          .data_dir = FLAGS_data_dir,
          .epochs = FLAGS_epochs,
          .batch = FLAGS_batch,
          .optimizer = FLAGS_optimizer,
          .lr = FLAGS_lr,
          .lr_schedule = FLAGS_lr_schedule,
          .momentum = FLAGS_momentum,
          .weight_decay = FLAGS_weight_decay,
          .freeze_after = FLAGS_freeze_after,
          .clip_norm = FLAGS_clip_norm,
          .save_threshold_table = FLAGS_save_threshold_table,
          .backup_model = FLAGS_backup_model,
          .local_optimizer = FLAGS_local_optimizer,
          .loc_lr = FLAGS_loc_lr,
          .kvstore = FLAGS_kvstore,
          .non_finite = FLAGS_non_finite,
          .compute_threads = FLAGS_compute_threads,
          .seed = FLAGS_seed,
          .simulate_compute_ms = FLAGS_simulate_compute_ms,
          .max_steps = FLAGS_max_steps,
          .log_every = FLAGS_log_every,
          .summary_json = FLAGS_summary_json,
          .evaluate_epochs = FLAGS_evaluate_epochs,
          .evaluate_every = FLAGS_evaluate_every,
          .save_weights = FLAGS_save_weights,
          .checkpoint = FLAGS_checkpoint,
          .checkpoint_every = FLAGS_checkpoint_every,
          .resume = FLAGS_resume,
          .store = StoreFlags(),
          .given = GivenFlags()};
}

Summary MakeSummary(const WorkerOptions& options, const KVStore& store) {
  const WorkerFlags& flags = options.flags;
  return {.model = flags.model,
          .dataset = flags.dataset,
          .optimizer = flags.optimizer,
          .compression = options.store.compression,
          .threshold = FLAGS_threshold,
          .policy = options.store.policy,
          .pull_compression = options.store.pull_compression,
          .pull_threshold = FLAGS_pull_threshold,
          .kvstore = flags.kvstore,
          .backup_model = options.train.exchange.backup.has_value(),
          .seed = options.train.seed,
          .workers = options.store.num_workers,
          .servers = options.store.num_servers,
          .epochs = options.train.epochs,
          .batch = options.train.batch,
          .emulated_link_bytes_per_second = options.store.emulate_link_bytes_per_second,
          .emulated_latency_ms = FLAGS_emulate_latency_ms,
          .decision = store.codec_map(),
          .policy_decisions = store.policy_decisions()};
}

absl::Status SaveFinalWeights(const std::string& pattern, uint32_t rank, const Model& model) {
  constexpr char kRank[] = "{rank}";
  const size_t at = pattern.find(kRank);
  if (pattern.empty() || (at == std::string::npos && rank != 0)) return absl::OkStatus();
  std::string path = pattern;
  if (at != std::string::npos) path.replace(at, sizeof(kRank) - 1, std::to_string(rank));
  return SaveWeights(path, model.parameters());
}

absl::Status SaveMeasuredTable(const std::string& path, const Summary& summary) {
  if (path.empty()) return absl::OkStatus();
  ThresholdTables tables;
  for (const auto& [direction, kept] :
       {std::pair(wire::PUSH, &tables.push), std::pair(wire::PULL, &tables.pull)}) {
    SLIMPS_ASSIGN_OR_RETURN(ThresholdTable table, TableOf(summary.decision, direction));
    if (!table.empty()) *kept = std::move(table);
  }
  if (!tables.push.has_value() && !tables.pull.has_value()) {
    return absl::FailedPreconditionError(
        absl::StrCat("--save_threshold_table=", path, ": this run has measured no table"));
  }
  return SaveThresholdTables(tables, path);
}

// Returns text such as " (ratio 31.8, keeps 62 % of the squared norm)"; empty if nothing was
// compressed.
std::string ExplainCompression(const TrainingReport& training) {
  if (training.pushed.input_norm2 == 0 || training.bytes_pushed == 0) return "";
  return absl::StrFormat(" (ratio %.1f, keeps %.0f %% of the squared norm)",
                         training.CompressionRatio(), 100 * training.pushed.CompressionGain());
}

// Evaluates, prints the job's figures and writes the summary. Rank 0 calls it.
absl::Status EvaluateAndReport(const WorkerFlags& flags, const Dataset& data, Model* model,
                               Summary* summary) {
  SLIMPS_ASSIGN_OR_RETURN(summary->test, EvaluateTestSplit(data, model));
  summary->training.epochs.back().test = summary->test;
  const std::string explanation = ExplainDecision(summary->decision);
  if (!explanation.empty()) std::cout << explanation << "\n";
  const bool emulated =
      summary->emulated_link_bytes_per_second > 0 || summary->emulated_latency_ms > 0;
  std::cout << absl::StrFormat(
                   "test accuracy %.2f %%, test loss %.4f, %.1f s%s, pushed %s%s, pulled %s",
                   summary->test.Accuracy() * 100, summary->test.MeanLoss(),
                   absl::ToDoubleSeconds(summary->training.seconds),
                   emulated ? " (link emulated)" : "", HumanBytes(summary->training.bytes_pushed),
                   ExplainCompression(summary->training),
                   HumanBytes(summary->training.bytes_pulled))
            << std::endl;
  if (flags.summary_json.empty()) return absl::OkStatus();
  return WriteSummary(flags.summary_json, *summary);
}

// Checks before training that rank 0 can write its files: an error after hours of training would
// lose them.
absl::Status CheckOutputs(const WorkerFlags& flags) {
  for (const auto& [flag, path] :
       {std::pair("summary_json", &flags.summary_json),
        std::pair("save_weights", &flags.save_weights),
        std::pair("save_threshold_table", &flags.save_threshold_table)}) {
    if (path->empty()) continue;
    SLIMPS_RETURN_IF_ERROR(Prefixed(CheckWritable(*path), absl::StrCat("--", flag)));
  }
  return absl::OkStatus();
}

absl::Status Run(WorkerOptions options, ProgramTrace* trace) {
  const WorkerFlags& flags = options.flags;
  if (!flags.resume.empty()) {
    const absl::StatusOr<std::string> found = FindCheckpoint(flags.resume);
    // A worker that launch has started again loads nothing. What it names may be gone meanwhile.
    if (!found.ok() && std::getenv("SLIMPS_RESUME") == nullptr) return found.status();
    options.train.exchange.resume = found.value_or(flags.resume);
  }
  SetComputeThreads(static_cast<int>(flags.compute_threads));
  // Data and model are made before the store. So a wrong file is reported before any peer waits for
  // this worker. Both must also outlive the store.
  SLIMPS_ASSIGN_OR_RETURN(const Dataset data, LoadDataset(flags.dataset, flags.data_dir));
  SLIMPS_ASSIGN_OR_RETURN(const std::unique_ptr<Model> model,
                          MakeModel(flags.model, data, options.train.seed));
  SLIMPS_ASSIGN_OR_RETURN(const std::unique_ptr<KVStore> store,
                          KVStore::Create(flags.kvstore, options.store));
  trace->SetRank(store->rank());
  const absl::Status ready = store->rank() == 0 ? CheckOutputs(flags) : absl::OkStatus();
  if (!ready.ok()) {
    store->Abort(ready);
    return ready;
  }
  const RealClock clock;
  Progress progress({.style = isatty(STDOUT_FILENO) ? ProgressOptions::Style::kTerminal
                                                    : ProgressOptions::Style::kPlain,
                     .log_every = static_cast<size_t>(flags.log_every),
                     .link_emulated = options.store.emulate_link_bytes_per_second > 0 ||
                                      options.store.emulate_link_latency > absl::ZeroDuration()},
                    &clock, &std::cout);
  const absl::StatusOr<TrainingReport> report =
      Train(options.train, data, model.get(), store.get(), [&](const StepProgress& step) {
        if (store->rank() == 0) progress.Report(step, store->totals());
      });
  if (!report.ok()) {
    // The other workers need not wait for rounds that will not come.
    store->Abort(report.status());
    return report.status();
  }
  const uint32_t rank = store->rank();
  Summary summary = MakeSummary(options, *store);
  summary.training = *report;
  // Nothing below needs the other workers: they may leave while rank 0 evaluates.
  SLIMPS_RETURN_IF_ERROR(store->Close());
  SLIMPS_RETURN_IF_ERROR(SaveFinalWeights(flags.save_weights, rank, *model));
  if (rank != 0) return absl::OkStatus();
  SLIMPS_RETURN_IF_ERROR(SaveMeasuredTable(flags.save_threshold_table, summary));
  return EvaluateAndReport(flags, data, model.get(), &summary);
}

}  // namespace
}  // namespace slimps

int main(int argc, char** argv) {
  slimps::EndWhereMemoryRunsOut();
  FLAGS_logtostderr = true;
  slimps::ParseWorkerArguments(argc, argv);
  slimps::ReadEnvironment();
  google::InitGoogleLogging(argv[0]);
  const auto options = slimps::CheckWorkerFlags(slimps::GatherFlags());
  if (!options.ok()) slimps::DieOfUsage(std::string(options.status().message()));
  for (const std::string& note : options->notes) LOG(WARNING) << note;
  slimps::ProgramTrace trace(FLAGS_trace, "worker");
  if (FLAGS_dry_run) return 0;
  return slimps::ExitStatus(trace.Finish(slimps::Run(*options, &trace)));
}
