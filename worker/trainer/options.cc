// SPDX-License-Identifier: Apache-2.0
#include "worker/trainer/options.h"

#include <algorithm>
#include <initializer_list>
#include <limits>
#include <optional>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "compress/codec/codec.h"
#include "proto/base/status_macros.h"
#include "proto/partition_limits.h"
#include "worker/combination.h"
#include "worker/kvstore_options.h"

namespace slimps {

namespace {

constexpr double kMaxMilliseconds = 3.6e6;
// Waiting for weights gets a little longer than the store's timeout: the store's error says more
// than "not in time".
constexpr absl::Duration kGrace = absl::Seconds(5);

template <typename Value>
absl::Status Refuse(const char* flag, const Value& value, const std::string& expected) {
  return absl::InvalidArgumentError(absl::StrCat("--", flag, "=", value, ": expected ", expected));
}

absl::Status CheckChoice(const char* flag, const std::string& value,
                         std::initializer_list<const char*> choices) {
  if (std::find(choices.begin(), choices.end(), value) != choices.end()) return absl::OkStatus();
  return Refuse(flag, value, absl::StrCat("one of ", absl::StrJoin(choices, ", ")));
}

absl::Status CheckCount(const char* flag, int64_t value, int64_t low, int64_t high) {
  if (value >= low && value <= high) return absl::OkStatus();
  return Refuse(flag, value, absl::StrCat(low, " to ", high));
}

absl::Status CheckNumber(const char* flag, double value, double low, double high) {
  if (value >= low && value <= high) return absl::OkStatus();  // false for NaN
  return Refuse(flag, value, absl::StrCat(low, " to ", high));
}

absl::Status CheckChoices(const WorkerFlags& flags) {
  SLIMPS_RETURN_IF_ERROR(
      CheckChoice("model", flags.model, {"logistic", "mlp", "lenet", "resnet20", "lstm"}));
  SLIMPS_RETURN_IF_ERROR(
      CheckChoice("dataset", flags.dataset, {"digits", "mnist", "cifar10", "text"}));
  SLIMPS_RETURN_IF_ERROR(
      CheckChoice("optimizer", flags.optimizer, {"sgd", "momentum", "nesterov", "adam", "adamw"}));
  SLIMPS_RETURN_IF_ERROR(
      CheckChoice("lr_schedule", flags.lr_schedule, {"constant", "cosine", "linear"}));
  SLIMPS_RETURN_IF_ERROR(CheckChoice("backup_model", flags.backup_model, {"on", "off"}));
  SLIMPS_RETURN_IF_ERROR(
      CheckChoice("local_optimizer", flags.local_optimizer, {"server", "sgd", "momentum", "adam"}));
  SLIMPS_RETURN_IF_ERROR(
      CheckChoice("kvstore", flags.kvstore, {"dist_sync", "dist_async", "dist_ssp"}));
  return CheckChoice("non_finite", flags.non_finite, {"stop", "skip"});
}

absl::Status CheckNumbers(const WorkerFlags& flags) {
  constexpr int64_t kMillion = 1'000'000;
  SLIMPS_RETURN_IF_ERROR(CheckCount("epochs", flags.epochs, 1, kMillion));
  SLIMPS_RETURN_IF_ERROR(CheckCount("batch", flags.batch, 1, kMillion));
  SLIMPS_RETURN_IF_ERROR(CheckCount("pre_steps", flags.pre_steps, 4, kMillion));
  if (flags.remeasure_every != 0) {
    SLIMPS_RETURN_IF_ERROR(CheckCount("remeasure_every", flags.remeasure_every, 8, kMillion));
  }
  SLIMPS_RETURN_IF_ERROR(
      CheckCount("partition_bytes", flags.partition_bytes, 4, kMaxPartitionBytes));
  SLIMPS_RETURN_IF_ERROR(CheckCount("encode_threads", flags.encode_threads, 0, 1024));
  SLIMPS_RETURN_IF_ERROR(CheckCount("compute_threads", flags.compute_threads, 1, 1024));
  SLIMPS_RETURN_IF_ERROR(CheckCount("seed", flags.seed, 0, std::numeric_limits<int64_t>::max()));
  SLIMPS_RETURN_IF_ERROR(
      CheckCount("max_steps", flags.max_steps, 0, std::numeric_limits<int64_t>::max()));
  SLIMPS_RETURN_IF_ERROR(CheckCount("log_every", flags.log_every, 1, kMillion));
  SLIMPS_RETURN_IF_ERROR(CheckCount("timeout_s", flags.timeout_s, 1, kMillion));
  SLIMPS_RETURN_IF_ERROR(CheckCount("num_workers", flags.num_workers, 1, 4096));
  SLIMPS_RETURN_IF_ERROR(CheckCount("num_servers", flags.num_servers, 1, 4096));
  SLIMPS_RETURN_IF_ERROR(CheckCount("staleness", flags.staleness, 0, kMillion));
  SLIMPS_RETURN_IF_ERROR(CheckCount("rank", flags.rank, -1, flags.num_workers - 1));
  SLIMPS_RETURN_IF_ERROR(CheckNumber("lr", flags.lr, 0, 1e6));
  SLIMPS_RETURN_IF_ERROR(CheckNumber("loc_lr", flags.loc_lr, 0, 1e6));
  SLIMPS_RETURN_IF_ERROR(CheckNumber("momentum", flags.momentum, 0, 1));
  SLIMPS_RETURN_IF_ERROR(CheckNumber("weight_decay", flags.weight_decay, 0, 1e6));
  SLIMPS_RETURN_IF_ERROR(CheckNumber("clip_norm", flags.clip_norm, 0, 1e30));
  SLIMPS_RETURN_IF_ERROR(
      CheckNumber("emulate_latency_ms", flags.emulate_latency_ms, 0, kMaxMilliseconds));
  return CheckNumber("simulate_compute_ms", flags.simulate_compute_ms, 0, kMaxMilliseconds);
}

absl::Status CheckTogether(const WorkerFlags& flags) {
  if (flags.dataset != "digits" && flags.data_dir.empty()) {
    return absl::InvalidArgumentError(absl::StrCat("--data_dir: expected the folder that holds ",
                                                   flags.dataset, "'s files, got none"));
  }
  if ((flags.model == "lstm") != (flags.dataset == "text")) {
    return absl::InvalidArgumentError(
        absl::StrCat("--model=", flags.model, " with --dataset=", flags.dataset,
                     ": expected lstm with text, any other model with a set of images"));
  }
  if (flags.remeasure_every != 0 && flags.kvstore != "dist_sync") {
    return Refuse("remeasure_every", flags.remeasure_every,
                  absl::StrCat("0 with --kvstore=", flags.kvstore,
                               ", whose workers have no rounds in common"));
  }
  if (flags.staleness != 0 && flags.kvstore != "dist_ssp") {
    return Refuse("staleness", flags.staleness,
                  absl::StrCat("0 with --kvstore=", flags.kvstore,
                               "; dist_ssp alone bounds how far workers are apart"));
  }
  if (flags.optimizer == "nesterov" && flags.momentum == 0) {
    return Refuse("momentum", flags.momentum, "a number over 0 with --optimizer=nesterov");
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Codec>> CodecOf(const char* flag, const std::string& compression) {
  absl::StatusOr<std::unique_ptr<Codec>> codec = MakeCodec(compression);
  if (codec.ok()) return codec;
  return absl::InvalidArgumentError(
      absl::StrCat("--", flag, "=", compression, ": ", codec.status().message()));
}

// Returns the servers' step. A worker pushes gradient * batch, so that a codec's absolute threshold
// means the same as for gradients summed over the batch. rescale_grad undoes that. A majority of
// signs was never scaled: each weight moves by the learning rate itself.
wire::OptimizerSpec ServerOptimizer(const WorkerFlags& flags, Combine combine) {
  wire::OptimizerSpec spec;
  const bool adam = flags.optimizer == "adam";
  const bool adamw = flags.optimizer == "adamw";
  spec.set_kind(adam    ? wire::OptimizerSpec::ADAM
                : adamw ? wire::OptimizerSpec::ADAMW
                        : wire::OptimizerSpec::SGD);
  spec.set_learning_rate(flags.lr);
  // Train fills in the number of rounds.
  if (flags.lr_schedule == "cosine") {
    spec.mutable_schedule()->set_kind(wire::LearningRateSchedule::COSINE);
  } else if (flags.lr_schedule == "linear") {
    spec.mutable_schedule()->set_kind(wire::LearningRateSchedule::LINEAR);
  }
  if (flags.optimizer == "momentum" || flags.optimizer == "nesterov") {
    spec.set_momentum(flags.momentum);
  }
  spec.set_nesterov(flags.optimizer == "nesterov");
  spec.set_weight_decay(flags.weight_decay);
  spec.set_beta1(0.9);
  spec.set_beta2(0.999);
  spec.set_epsilon(1e-8);
  const bool summed = combine == Combine::kSum;
  spec.set_rescale_grad(summed ? 1.0 / static_cast<double>(flags.batch) : 1.0);
  spec.set_average(true);
  return spec;
}

// The backup model sees the gradient as backward made it, so there is nothing to rescale.
BackupModelOptions LocalOptimizerOf(const WorkerFlags& flags) {
  BackupModelOptions backup;
  if (flags.local_optimizer == "server") {
    backup = MirroringBackup(flags.loc_lr > 0 ? std::optional(flags.loc_lr) : std::nullopt);
    backup.updater.threads = static_cast<int>(flags.encode_threads);
    return backup;
  }
  backup.updater.update.kind =
      flags.local_optimizer == "adam" ? UpdateKind::kAdam : UpdateKind::kSgd;
  backup.updater.learning_rate = flags.lr;
  if (flags.loc_lr > 0) backup.updater.loc_lr = flags.loc_lr;
  if (flags.local_optimizer == "momentum") backup.updater.update.momentum = flags.momentum;
  backup.updater.update.weight_decay = flags.weight_decay;
  backup.updater.threads = static_cast<int>(flags.encode_threads);
  return backup;
}

// Returns nullopt if the threshold is to be measured.
absl::StatusOr<std::optional<uint64_t>> ThresholdOf(const char* flag, const std::string& text) {
  if (text == "auto") return std::nullopt;
  uint64_t bytes = 0;
  if (absl::SimpleAtoi(text, &bytes)) return bytes;
  return Refuse(flag, text, "auto or a number of bytes (0 compresses everything)");
}

absl::StatusOr<KVStoreOptions> StoreOptions(const WorkerFlags& flags) {
  KVStoreOptions store;
  if (flags.scheduler.rfind(':') == std::string::npos) {
    return Refuse("scheduler", flags.scheduler,
                  "host:port of slimps_scheduler (environment: DMLC_PS_ROOT_URI and "
                  "DMLC_PS_ROOT_PORT)");
  }
  store.scheduler_address = absl::StrCat("tcp://", flags.scheduler);
  store.job_id = flags.job_id;
  store.num_workers = static_cast<uint32_t>(flags.num_workers);
  store.num_servers = static_cast<uint32_t>(flags.num_servers);
  store.staleness = static_cast<uint32_t>(flags.staleness);
  store.wanted_rank = static_cast<int32_t>(flags.rank);
  store.partition_bytes = static_cast<size_t>(flags.partition_bytes);
  store.compression = flags.compression;
  SLIMPS_ASSIGN_OR_RETURN(store.fixed_threshold_bytes, ThresholdOf("threshold", flags.threshold));
  store.pull_compression = flags.pull_compression;
  SLIMPS_ASSIGN_OR_RETURN(store.fixed_pull_threshold_bytes,
                          ThresholdOf("pull_threshold", flags.pull_threshold));
  store.pre_steps = static_cast<int>(flags.pre_steps);
  store.remeasure_every = static_cast<uint64_t>(flags.remeasure_every);
  store.threshold_table_file = flags.threshold_table;
  store.grad_scale = static_cast<float>(flags.batch);
  store.encode_threads = static_cast<int>(flags.encode_threads);
  if (!flags.emulate_link.empty()) {
    const auto rate = ParseRate(flags.emulate_link);
    if (!rate.ok()) {
      return absl::InvalidArgumentError(absl::StrCat("--emulate_link=", rate.status().message()));
    }
    store.emulate_link_bytes_per_second = *rate;
  }
  store.emulate_link_latency = absl::Milliseconds(flags.emulate_latency_ms);
  const absl::StatusOr<SameHost> same_host = ParseSameHost(flags.same_host);
  if (!same_host.ok()) return Refuse("same_host", flags.same_host, "shm, ipc or tcp");
  store.same_host = *same_host;
  store.timeout = absl::Seconds(flags.timeout_s);
  return store;
}

TrainOptions TrainingOptions(const WorkerFlags& flags, Combine combine) {
  TrainOptions train;
  train.epochs = static_cast<size_t>(flags.epochs);
  train.batch = static_cast<size_t>(flags.batch);
  if (flags.max_steps > 0) train.max_steps = static_cast<size_t>(flags.max_steps);
  train.seed = static_cast<uint64_t>(flags.seed);
  train.optimizer = ServerOptimizer(flags, combine);
  if (flags.backup_model == "on") train.exchange.backup = LocalOptimizerOf(flags);
  train.exchange.clip_norm = flags.clip_norm;
  train.exchange.non_finite = flags.non_finite == "skip" ? NonFinite::kSkip : NonFinite::kStop;
  train.exchange.timeout = absl::Seconds(flags.timeout_s) + kGrace;
  train.evaluate_epochs = flags.evaluate_epochs;
  train.simulated_compute = absl::Milliseconds(flags.simulate_compute_ms);
  return train;
}

}  // namespace

absl::StatusOr<WorkerOptions> CheckWorkerFlags(const WorkerFlags& flags) {
  SLIMPS_RETURN_IF_ERROR(CheckChoices(flags));
  SLIMPS_RETURN_IF_ERROR(CheckNumbers(flags));
  SLIMPS_RETURN_IF_ERROR(CheckTogether(flags));
  SLIMPS_ASSIGN_OR_RETURN(const std::unique_ptr<Codec> codec,
                          CodecOf("compression", flags.compression));
  SLIMPS_ASSIGN_OR_RETURN(const std::unique_ptr<Codec> pull_codec,
                          CodecOf("pull_compression", flags.pull_compression));
  WorkerOptions options{
      .flags = flags, .store = {}, .train = TrainingOptions(flags, codec->combine())};
  const absl::Status together = CheckCombination({.codec = codec.get(),
                                                  .pull_codec = pull_codec.get(),
                                                  .mode = *FindStoreMode(flags.kvstore),
                                                  .optimizer = options.train.optimizer,
                                                  .backup_model = flags.backup_model == "on"});
  if (!together.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--compression=", flags.compression, " --optimizer=", flags.optimizer,
                     " --kvstore=", flags.kvstore, " --backup_model=", flags.backup_model,
                     " --pull_compression=", flags.pull_compression, ": ", together.message()));
  }
  SLIMPS_ASSIGN_OR_RETURN(options.store, StoreOptions(flags));
  return options;
}

}  // namespace slimps
