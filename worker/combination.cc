// SPDX-License-Identifier: Apache-2.0
#include "worker/combination.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "compress/codec/phases.h"

namespace slimps {
namespace {

// True if the servers' step remembers the direction of earlier gradients.
bool HasMomentum(const wire::OptimizerSpec& optimizer) {
  switch (optimizer.kind()) {
    case wire::OptimizerSpec::SGD:
      return optimizer.momentum() != 0;
    case wire::OptimizerSpec::ADAM:
    case wire::OptimizerSpec::ADAMW:
    case wire::OptimizerSpec::ONEBIT_ADAM:
      return optimizer.beta1() != 0;
    default:
      return false;
  }
}

absl::Status Refuse(const std::string& what, const std::string& why) {
  return absl::InvalidArgumentError(absl::StrCat(what, ": ", why));
}

// Each push is applied when it comes; there is nothing that all workers hold at the same time.
bool HasRounds(wire::StoreMode mode) { return mode == wire::DIST_SYNC; }

absl::Status CheckCodec(const Combination& combination) {
  const Codec& codec = *combination.codec;
  const std::string name = absl::StrCat("codec ", codec.spec().name);
  if (codec.combine() == Combine::kMajority && !HasRounds(combination.mode)) {
    return Refuse(absl::StrCat(name, " with ", StoreModeName(combination.mode)),
                  "expected dist_sync; its servers take the majority of a round's votes, and here "
                  "each push stands alone");
  }
  if (codec.phases() != nullptr && !HasRounds(combination.mode)) {
    return Refuse(absl::StrCat(name, " with ", StoreModeName(combination.mode)),
                  "expected dist_sync; its exchange combines what the workers send in one round, "
                  "phase by phase, and here each push stands alone");
  }
  if (codec.refuses_server_momentum() && combination.optimizer.has_value() &&
      HasMomentum(*combination.optimizer)) {
    return Refuse(absl::StrCat(name, " with momentum at the servers"),
                  "expected an optimizer without momentum (plain sgd); the codec applies momentum "
                  "before it compresses, and a gradient would go through it twice");
  }
  return absl::OkStatus();
}

// 1-bit Adam's servers average momenta, which workers make from the momentum of the round before.
absl::Status CheckMomenta(const Combination& combination) {
  constexpr char kWhat[] = "optimizer onebit_adam with ";
  if (!HasRounds(combination.mode)) {
    return Refuse(absl::StrCat(kWhat, StoreModeName(combination.mode)),
                  "expected dist_sync; workers share the momentum of a round");
  }
  if (combination.backup_model) {
    return Refuse(absl::StrCat(kWhat, "the backup model"),
                  "expected none; a worker needs the round's momentum before its next push, and "
                  "the backup model computes on without it");
  }
  if (combination.codec != nullptr && combination.codec->combine() == Combine::kMajority) {
    return Refuse(absl::StrCat(kWhat, "codec ", combination.codec->spec().name),
                  "expected a codec whose payloads are averaged, as 1bit; votes are not momenta");
  }
  if (combination.codec != nullptr && combination.codec->phases() != nullptr) {
    return Refuse(absl::StrCat(kWhat, "codec ", combination.codec->spec().name),
                  "expected a codec of one exchange, as 1bit; its phases carry gradients");
  }
  if (combination.policy != "threshold") {
    return Refuse(absl::StrCat(kWhat, "policy ", std::string(combination.policy)),
                  "expected threshold; policies that adapt measure gradients, and momenta are "
                  "pushed");
  }
  return absl::OkStatus();
}

absl::Status CheckPullCodec(const Combination& combination) {
  const Codec& codec = *combination.pull_codec;
  if (codec.spec().name == "none") return absl::OkStatus();
  const std::string name = absl::StrCat("pull compression ", codec.spec().name);
  if (!HasRounds(combination.mode)) {
    return Refuse(
        absl::StrCat(name, " with ", StoreModeName(combination.mode)),
        "expected dist_sync; changes are encoded once for all workers, which hold the same "
        "version, and here each worker pulls versions of its own");
  }
  if (codec.wants_momentum()) {
    return Refuse(name,
                  "expected a codec without momentum of its own; the change of the weights comes "
                  "after the optimizer, and would be carried on into weights that nobody computed");
  }
  if (codec.phases() != nullptr && !codec.phases()->encodes_alone()) {
    return Refuse(
        name,
        "expected a codec without phases; the workers exchange factors of their gradients, "
        "and no worker has a part in the change of the weights");
  }
  if (codec.combine() == Combine::kMajority) {
    return Refuse(name,
                  "expected a codec that keeps magnitudes; a vote says which way, not how far");
  }
  return absl::OkStatus();
}

absl::Status CheckPolicy(const Combination& combination) {
  const std::string name = absl::StrCat("policy ", std::string(combination.policy));
  if (!HasRounds(combination.mode)) {
    return Refuse(absl::StrCat(name, " with ", StoreModeName(combination.mode)),
                  "expected dist_sync; a decision holds from a round on, the same for all workers, "
                  "and here they have no rounds in common");
  }
  if (combination.codec != nullptr && combination.codec->spec().name != "none") {
    return Refuse(
        absl::StrCat(name, " with compression ", combination.codec->spec().ToString()),
        "expected compression none; the policy chooses each tensor's codec, and takes its "
        "own from its options (docs/policies.md)");
  }
  return absl::OkStatus();
}

}  // namespace

const char* StoreModeName(wire::StoreMode mode) {
  switch (mode) {
    case wire::DIST_ASYNC:
      return "dist_async";
    case wire::DIST_SSP:
      return "dist_ssp";
    default:
      return "dist_sync";
  }
}

std::optional<wire::StoreMode> FindStoreMode(std::string_view type) {
  if (type == "dist_sync" || type == "dist_device_sync") return wire::DIST_SYNC;
  if (type == "dist_async") return wire::DIST_ASYNC;
  if (type == "dist_ssp") return wire::DIST_SSP;
  return std::nullopt;
}

absl::Status CheckCombination(const Combination& combination) {
  const bool rounds = HasRounds(combination.mode);
  const std::string mode = StoreModeName(combination.mode);
  const bool sums = combination.optimizer.has_value() &&
                    combination.optimizer->kind() == wire::OptimizerSpec::NONE;
  if (combination.backup_model && !rounds) {
    return Refuse(absl::StrCat("the backup model with ", mode),
                  absl::StrCat("expected dist_sync; the backup model merges the weights of one "
                               "round, the same bits for every worker, and ",
                               mode, " has no rounds in common"));
  }
  if (combination.backup_model && sums) {
    return Refuse("the backup model without a server optimizer",
                  "expected an optimizer; the store then holds sums of gradients, and there are no "
                  "global weights that a local step could go on from");
  }
  if (!rounds && sums) {
    return Refuse(absl::StrCat(mode, " without a server optimizer"),
                  absl::StrCat("expected an optimizer; the store keeps the sum of a round's "
                               "gradients, and ",
                               mode, " has no rounds in common"));
  }
  if (combination.staleness != 0 && combination.mode != wire::DIST_SSP) {
    return Refuse(absl::StrCat("staleness=", combination.staleness, " with ", mode),
                  "expected 0; dist_ssp alone bounds how far workers are apart");
  }
  if (combination.remeasure_every != 0 && !rounds) {
    return Refuse(
        absl::StrCat("remeasure_every=", combination.remeasure_every, " with ", mode),
        "expected 0; its workers have no rounds in common from which a new threshold could "
        "hold");
  }
  if (combination.policy != "threshold") {
    const absl::Status policy = CheckPolicy(combination);
    if (!policy.ok()) return policy;
  }
  if (combination.optimizer.has_value() &&
      combination.optimizer->kind() == wire::OptimizerSpec::ONEBIT_ADAM) {
    const absl::Status momenta = CheckMomenta(combination);
    if (!momenta.ok()) return momenta;
  }
  if (combination.pull_codec != nullptr) {
    const absl::Status pulls = CheckPullCodec(combination);
    if (!pulls.ok()) return pulls;
  }
  return combination.codec == nullptr ? absl::OkStatus() : CheckCodec(combination);
}

absl::Status CheckClipping(std::string_view type, const wire::OptimizerSpec& optimizer,
                           const Codec* codec) {
  if (FindStoreMode(type) != wire::DIST_SYNC) {
    return Refuse(absl::StrCat("clip_norm with ", std::string(type)),
                  "expected dist_sync; servers clip the mean gradient of a round that all workers "
                  "have in common");
  }
  if (optimizer.kind() == wire::OptimizerSpec::ONEBIT_ADAM) {
    return Refuse("clip_norm with optimizer onebit_adam",
                  "expected sgd, adam or adamw; workers push momenta once the variance is frozen, "
                  "and there is no mean gradient to clip");
  }
  if (codec != nullptr && codec->combine() == Combine::kMajority) {
    return Refuse(absl::StrCat("clip_norm with codec ", codec->spec().name),
                  "expected a codec that keeps magnitudes; a vote has the same norm always");
  }
  return absl::OkStatus();
}

std::string WarningOf(const Combination& combination) {
  if (combination.codec == nullptr || combination.codec->spec().name != "1bit" ||
      !combination.optimizer.has_value()) {
    return "";
  }
  const wire::OptimizerSpec::Kind kind = combination.optimizer->kind();
  if (kind != wire::OptimizerSpec::ADAM && kind != wire::OptimizerSpec::ADAMW) return "";
  return "codec 1bit with optimizer adam: the variance grows by what the codec adds to gradients, "
         "so steps are small and the loss stays behind; use the optimizer onebit_adam (torch: "
         "freeze_after=\"auto\"), or the codec qsgd:bits=4,norm=max,error_feedback=on";
}

double DecayFactor(const Codec& codec, const std::optional<wire::OptimizerSpec>& optimizer) {
  const std::optional<MomentumRule> momentum = codec.Momentum(/*grad_scale=*/1);
  if (!momentum.has_value()) return 1;
  if (optimizer.has_value() && optimizer->kind() != wire::OptimizerSpec::SGD) return 1;
  return 1 / (1 - static_cast<double>(momentum->mu));
}

}  // namespace slimps
