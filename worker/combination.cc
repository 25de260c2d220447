#include "worker/combination.h"

#include <string>

#include "absl/strings/str_cat.h"

namespace slimps {
namespace {

// Whether the servers' step remembers earlier gradients' direction.
bool HasMomentum(const wire::OptimizerSpec& optimizer) {
  switch (optimizer.kind()) {
    case wire::OptimizerSpec::SGD:
      return optimizer.momentum() != 0;
    case wire::OptimizerSpec::ADAM:
    case wire::OptimizerSpec::ADAMW:
      return optimizer.beta1() != 0;
    default:
      return false;
  }
}

absl::Status Refuse(const std::string& what, const char* why) {
  return absl::InvalidArgumentError(absl::StrCat(what, ": ", why));
}

absl::Status CheckCodec(const Combination& combination) {
  const Codec& codec = *combination.codec;
  const std::string name = absl::StrCat("codec ", codec.spec().name);
  if (codec.combine() == Combine::kMajority && combination.mode == wire::DIST_ASYNC) {
    return Refuse(absl::StrCat(name, " with dist_async"),
                  "expected dist_sync; its servers take the majority of a round's votes, and under "
                  "dist_async each push stands alone");
  }
  if (codec.refuses_server_momentum() && combination.optimizer.has_value() &&
      HasMomentum(*combination.optimizer)) {
    return Refuse(absl::StrCat(name, " with momentum at the servers"),
                  "expected an optimizer without momentum (plain sgd); the codec applies momentum "
                  "before it compresses, and a gradient would go through it twice");
  }
  return absl::OkStatus();
}

absl::Status CheckPullCodec(const Combination& combination) {
  const Codec& codec = *combination.pull_codec;
  if (codec.spec().name == "none") return absl::OkStatus();
  const std::string name = absl::StrCat("pull compression ", codec.spec().name);
  if (combination.mode == wire::DIST_ASYNC) {
    return Refuse(
        absl::StrCat(name, " with dist_async"),
        "expected dist_sync; changes are encoded once for all workers, which hold the same "
        "version, and dist_async gives each worker versions of its own");
  }
  if (codec.wants_momentum()) {
    return Refuse(name,
                  "expected a codec without momentum of its own; the change of the weights comes "
                  "after the optimizer, and would be carried on into weights that nobody computed");
  }
  if (codec.combine() == Combine::kMajority) {
    return Refuse(name,
                  "expected a codec that keeps magnitudes; a vote says which way, not how far");
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckCombination(const Combination& combination) {
  const bool async = combination.mode == wire::DIST_ASYNC;
  const bool sums = combination.optimizer.has_value() &&
                    combination.optimizer->kind() == wire::OptimizerSpec::NONE;
  if (combination.backup_model && async) {
    return Refuse("the backup model with dist_async",
                  "expected dist_sync; the backup model merges the weights of one round, and "
                  "dist_async has no rounds");
  }
  if (combination.backup_model && sums) {
    return Refuse("the backup model without a server optimizer",
                  "expected an optimizer; the store then holds sums of gradients, and there are no "
                  "global weights that a local step could go on from");
  }
  if (async && sums) {
    return Refuse("dist_async without a server optimizer",
                  "expected an optimizer; the store keeps the sum of a round's gradients, and "
                  "dist_async has no rounds");
  }
  if (combination.pull_codec != nullptr) {
    const absl::Status pulls = CheckPullCodec(combination);
    if (!pulls.ok()) return pulls;
  }
  return combination.codec == nullptr ? absl::OkStatus() : CheckCodec(combination);
}

}  // namespace slimps
