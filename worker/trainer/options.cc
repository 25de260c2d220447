// SPDX-License-Identifier: Apache-2.0
#include "worker/trainer/options.h"

#include <algorithm>
#include <initializer_list>
#include <limits>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "compress/codec/codec.h"
#include "compress/policy/controllers/controller.h"
#include "proto/base/status_macros.h"
#include "worker/combination.h"
#include "worker/kvstore_options.h"

namespace slimps {

namespace {

// The part of the run in which --lr_schedule=one_cycle climbs, as torch's OneCycleLR has it.
constexpr double kClimb = 0.3;

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
  SLIMPS_RETURN_IF_ERROR(CheckChoice(
      "model", flags.model, {"logistic", "mlp", "lenet", "resnet20", "lstm", "char_transformer"}));
  SLIMPS_RETURN_IF_ERROR(
      CheckChoice("dataset", flags.dataset, {"digits", "mnist", "cifar10", "text"}));
  SLIMPS_RETURN_IF_ERROR(
      CheckChoice("optimizer", flags.optimizer,
                  {"sgd", "momentum", "nesterov", "adam", "adamw", "onebit_adam"}));
  SLIMPS_RETURN_IF_ERROR(
      CheckChoice("lr_schedule", flags.lr_schedule, {"constant", "cosine", "linear", "one_cycle"}));
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
  SLIMPS_RETURN_IF_ERROR(CheckCount("compute_threads", flags.compute_threads, 1, 1024));
  SLIMPS_RETURN_IF_ERROR(CheckCount("seed", flags.seed, 0, std::numeric_limits<int64_t>::max()));
  SLIMPS_RETURN_IF_ERROR(
      CheckCount("max_steps", flags.max_steps, 0, std::numeric_limits<int64_t>::max()));
  SLIMPS_RETURN_IF_ERROR(CheckCount("log_every", flags.log_every, 1, kMillion));
  SLIMPS_RETURN_IF_ERROR(CheckCount("evaluate_every", flags.evaluate_every, 0, kMillion));
  SLIMPS_RETURN_IF_ERROR(
      CheckCount("freeze_after", flags.freeze_after, 0, std::numeric_limits<int64_t>::max()));
  SLIMPS_RETURN_IF_ERROR(CheckCount("checkpoint_every", flags.checkpoint_every, 0,
                                    std::numeric_limits<int64_t>::max()));
  SLIMPS_RETURN_IF_ERROR(CheckNumber("lr", flags.lr, 0, 1e6));
  SLIMPS_RETURN_IF_ERROR(CheckNumber("loc_lr", flags.loc_lr, 0, 1e6));
  SLIMPS_RETURN_IF_ERROR(CheckNumber("momentum", flags.momentum, 0, 1));
  SLIMPS_RETURN_IF_ERROR(CheckNumber("weight_decay", flags.weight_decay, 0, 1e6));
  SLIMPS_RETURN_IF_ERROR(CheckNumber("clip_norm", flags.clip_norm, 0, 1e30));
  return CheckNumber("simulate_compute_ms", flags.simulate_compute_ms, 0, 3.6e6);
}

// A flag that has an effect only beside certain values of others.
struct Dependent {
  const char* flag;
  const char* idle;  // this value asks for nothing, so it may be given anywhere
  const char* needs;
  bool (*has_effect)(const WorkerFlags& flags, const KVStoreOptions& store);
  // False: the flag chooses how to send, and scripts give it for all codecs alike. A line tells.
  bool is_refused = true;
};

bool LocalMomentum(const WorkerFlags& flags) {
  return flags.backup_model == "on" && flags.local_optimizer == "momentum";
}

constexpr Dependent kDependents[] = {
    {"momentum", "0",
     "--optimizer=momentum or nesterov, or --backup_model=on with --local_optimizer=momentum",
     [](const WorkerFlags& flags, const KVStoreOptions&) {
       return flags.optimizer == "momentum" || flags.optimizer == "nesterov" ||
              LocalMomentum(flags);
     }},
    {"freeze_after", "0", "--optimizer=onebit_adam",
     [](const WorkerFlags& flags, const KVStoreOptions&) {
       return flags.optimizer == "onebit_adam";
     }},
    {"local_optimizer", "server", "--backup_model=on",
     [](const WorkerFlags& flags, const KVStoreOptions&) { return flags.backup_model == "on"; }},
    {"loc_lr", "0", "--backup_model=on",
     [](const WorkerFlags& flags, const KVStoreOptions&) { return flags.backup_model == "on"; }},
    {"threshold", "auto", "--compression",
     [](const WorkerFlags&, const KVStoreOptions& store) { return store.compression != "none"; },
     /*is_refused=*/false},
    {"pull_threshold", "auto", "--pull_compression",
     [](const WorkerFlags&, const KVStoreOptions& store) {
       return store.pull_compression != "none";
     },
     /*is_refused=*/false},
};

// Adds a line to `notes` for each flag that has no effect.
// InvalidArgument: one of them is refused.
absl::Status CheckEffects(const WorkerFlags& flags, const KVStoreOptions& store,
                          std::vector<std::string>* notes) {
  for (const Dependent& dependent : kDependents) {
    const auto given = flags.given.find(dependent.flag);
    if (given == flags.given.end() || given->second == dependent.idle ||
        dependent.has_effect(flags, store)) {
      continue;
    }
    const std::string line = absl::StrCat("--", given->first, "=", given->second,
                                          " has no effect without ", dependent.needs);
    if (dependent.is_refused) return absl::InvalidArgumentError(line);
    notes->push_back(line);
  }
  return absl::OkStatus();
}

absl::Status CheckTogether(const WorkerFlags& flags) {
  if (flags.dataset != "digits" && flags.data_dir.empty()) {
    return absl::InvalidArgumentError(absl::StrCat("--data_dir: expected the folder that holds ",
                                                   flags.dataset, "'s files, got none"));
  }
  const bool reads_text = flags.model == "lstm" || flags.model == "char_transformer";
  if (reads_text != (flags.dataset == "text")) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--model=", flags.model, " with --dataset=", flags.dataset,
        ": expected lstm or char_transformer with text, any other model with a set of images"));
  }
  if (flags.checkpoint.empty() != (flags.checkpoint_every == 0)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--checkpoint=", flags.checkpoint, " --checkpoint_every=", flags.checkpoint_every,
        ": expected a folder and a number of steps, got one "
        "of them"));
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

absl::Status CheckPolicyFlag(const std::string& policy) {
  if (policy == KVStoreOptions().policy) return absl::OkStatus();
  const absl::Status made = MakeController(policy).status();
  return made.ok() ? made
                   : Refuse("policy", policy,
                            absl::StrCat("threshold or a policy that adapts: ", made.message()));
}

// Returns the servers' step. A worker pushes gradient * batch, so that a codec's absolute threshold
// means the same as for gradients summed over the batch. rescale_grad undoes that. A majority of
// signs was never scaled: each weight moves by the learning rate itself.
wire::OptimizerSpec ServerOptimizer(const WorkerFlags& flags, Combine combine) {
  wire::OptimizerSpec spec;
  const bool adam = flags.optimizer == "adam";
  const bool adamw = flags.optimizer == "adamw";
  const bool onebit_adam = flags.optimizer == "onebit_adam";
  spec.set_kind(adam          ? wire::OptimizerSpec::ADAM
                : adamw       ? wire::OptimizerSpec::ADAMW
                : onebit_adam ? wire::OptimizerSpec::ONEBIT_ADAM
                              : wire::OptimizerSpec::SGD);
  if (onebit_adam) spec.set_freeze_after(static_cast<uint64_t>(flags.freeze_after));
  spec.set_learning_rate(flags.lr);
  // Train fills in the number of rounds.
  if (flags.lr_schedule == "cosine" || flags.lr_schedule == "one_cycle") {
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
BackupModelOptions LocalOptimizerOf(const WorkerFlags& flags, int threads) {
  BackupModelOptions backup;
  if (flags.local_optimizer == "server") {
    backup = MirroringBackup(flags.loc_lr > 0 ? std::optional(flags.loc_lr) : std::nullopt);
    backup.updater.threads = threads;
    return backup;
  }
  backup.updater.update.kind =
      flags.local_optimizer == "adam" ? UpdateKind::kAdam : UpdateKind::kSgd;
  backup.updater.learning_rate = flags.lr;
  if (flags.loc_lr > 0) backup.updater.loc_lr = flags.loc_lr;
  if (flags.local_optimizer == "momentum") backup.updater.update.momentum = flags.momentum;
  backup.updater.update.weight_decay = flags.weight_decay;
  backup.updater.threads = threads;
  return backup;
}

absl::StatusOr<KVStoreOptions> StoreOptions(const WorkerFlags& flags) {
  KVStoreOptions store;
  absl::Status set;
  for (const auto& [name, text] : flags.store) set.Update(SetOption(name, text, &store));
  set.Update(CheckRank(store));
  if (!set.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--", absl::StripPrefix(set.message(), "option ")));
  }
  if (store.scheduler_address.empty()) {
    return Refuse("scheduler", "",
                  "host:port of slimps_scheduler (environment: DMLC_PS_ROOT_URI and "
                  "DMLC_PS_ROOT_PORT)");
  }
  store.grad_scale = static_cast<float>(flags.batch);
  return store;
}

TrainOptions TrainingOptions(const WorkerFlags& flags, const KVStoreOptions& store,
                             Combine combine) {
  TrainOptions train;
  train.epochs = static_cast<size_t>(flags.epochs);
  train.batch = static_cast<size_t>(flags.batch);
  if (flags.max_steps > 0) train.max_steps = static_cast<size_t>(flags.max_steps);
  train.seed = static_cast<uint64_t>(flags.seed);
  train.optimizer = ServerOptimizer(flags, combine);
  if (flags.lr_schedule == "one_cycle") train.warmup = kClimb;
  if (flags.backup_model == "on") {
    train.exchange.backup = LocalOptimizerOf(flags, store.encode_threads);
  }
  train.exchange.clip_norm = flags.clip_norm;
  train.exchange.non_finite = flags.non_finite == "skip" ? NonFinite::kSkip : NonFinite::kStop;
  train.checkpoint = flags.checkpoint;
  train.checkpoint_every = static_cast<size_t>(flags.checkpoint_every);
  train.evaluate_epochs = flags.evaluate_epochs;
  train.evaluate_every = static_cast<size_t>(flags.evaluate_every);
  train.simulated_compute = absl::Milliseconds(flags.simulate_compute_ms);
  return train;
}

}  // namespace

absl::StatusOr<WorkerOptions> CheckWorkerFlags(const WorkerFlags& flags) {
  SLIMPS_RETURN_IF_ERROR(CheckChoices(flags));
  SLIMPS_RETURN_IF_ERROR(CheckNumbers(flags));
  SLIMPS_ASSIGN_OR_RETURN(const KVStoreOptions store, StoreOptions(flags));
  std::vector<std::string> notes;
  SLIMPS_RETURN_IF_ERROR(CheckTogether(flags));
  SLIMPS_RETURN_IF_ERROR(CheckEffects(flags, store, &notes));
  SLIMPS_ASSIGN_OR_RETURN(const std::unique_ptr<Codec> codec,
                          CodecOf("compression", store.compression));
  SLIMPS_ASSIGN_OR_RETURN(
      const std::unique_ptr<Codec> pull_codec,
      CodecOf("pull_compression",
              store.pull_compression == "policy" ? "none" : store.pull_compression));
  SLIMPS_RETURN_IF_ERROR(CheckPolicyFlag(store.policy));
  WorkerOptions options{.flags = flags,
                        .store = store,
                        .train = TrainingOptions(flags, store, codec->combine()),
                        .notes = std::move(notes)};
  const absl::Status together = CheckCombination({.codec = codec.get(),
                                                  .pull_codec = pull_codec.get(),
                                                  .policy = store.policy,
                                                  .mode = *FindStoreMode(flags.kvstore),
                                                  .staleness = store.staleness,
                                                  .remeasure_every = store.remeasure_every,
                                                  .optimizer = options.train.optimizer,
                                                  .backup_model = flags.backup_model == "on"});
  if (!together.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--compression=", store.compression, " --optimizer=", flags.optimizer,
                     " --kvstore=", flags.kvstore, " --backup_model=", flags.backup_model,
                     " --pull_compression=", store.pull_compression, " --policy=", store.policy,
                     ": ", together.message()));
  }
  if (flags.clip_norm > 0) {
    SLIMPS_RETURN_IF_ERROR(CheckClipping(flags.kvstore, options.train.optimizer, codec.get()));
  }
  return options;
}

}  // namespace slimps
