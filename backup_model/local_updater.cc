// SPDX-License-Identifier: Apache-2.0
#include "backup_model/local_updater.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include "compress/kernels/kernels.h"
#include "compress/kernels/update.h"
#include "proto/base/status_macros.h"

namespace slimps {
namespace {

absl::Status OutOfRange(const char* option, double value, const char* expected) {
  return absl::InvalidArgumentError(
      absl::StrCat("local updater: ", option, " is ", value, ", expected ", expected));
}

// These checks say !(in range), so that they refuse NaN too.
absl::Status CheckNotNegative(const char* option, double value) {
  if (!(value >= 0 && std::isfinite(value))) return OutOfRange(option, value, "0 or more");
  return absl::OkStatus();
}

absl::Status CheckDecay(const char* option, double value) {
  if (!(value >= 0 && value < 1)) return OutOfRange(option, value, "at least 0 and below 1");
  return absl::OkStatus();
}

// Weights of a tensor over this size have left the caches before the next forward pass reads them,
// so they are written past the caches.
constexpr size_t kStreamedBytes = size_t{4} << 20;

// What one thread steps at a time: large enough to outweigh handing it over, and whole cache lines.
constexpr size_t kChunkElements = size_t{1} << 16;

UpdateBlock PartOf(UpdateBlock block, size_t first, size_t last) {
  block.before += first;
  block.sum += first;
  block.after += first;
  if (block.state0 != nullptr) block.state0 += first;
  if (block.state1 != nullptr) block.state1 += first;
  block.n = last - first;
  return block;
}

// Returns the moment; on the first step makes it, as zeros.
float* Moment(AlignedBuffer& moment, size_t elements) {
  if (moment.floats().size() != elements) {
    moment = AlignedBuffer::OfFloats(elements);
    std::ranges::fill(moment.floats(), 0.0f);
  }
  return moment.floats().data();
}

// Returns the weights one step ago; on the first step these are `base`.
float* PastWeights(AlignedBuffer& past, std::span<const float> base) {
  if (past.floats().size() != base.size()) {
    past = AlignedBuffer::OfFloats(base.size());
    std::ranges::copy(base, past.floats().begin());
  }
  return past.floats().data();
}

}  // namespace

absl::Status CheckHyper(const Hyper& hyper) {
  SLIMPS_RETURN_IF_ERROR(CheckNotNegative("learning_rate", hyper.learning_rate));
  SLIMPS_RETURN_IF_ERROR(CheckNotNegative("weight_decay", hyper.weight_decay));
  return CheckDecay("momentum", hyper.momentum.value_or(0));
}

absl::StatusOr<LocalUpdater> LocalUpdater::Create(const LocalUpdaterOptions& options) {
  const UpdateOptions& update = options.update;
  SLIMPS_RETURN_IF_ERROR(CheckNotNegative("learning_rate", options.learning_rate));
  SLIMPS_RETURN_IF_ERROR(CheckNotNegative("loc_lr", options.loc_lr.value_or(0)));
  SLIMPS_RETURN_IF_ERROR(CheckNotNegative("own_weight", options.own_weight));
  SLIMPS_RETURN_IF_ERROR(CheckNotNegative("weight_decay", update.weight_decay));
  SLIMPS_RETURN_IF_ERROR(CheckNotNegative("clip_gradient", update.clip));
  SLIMPS_RETURN_IF_ERROR(CheckNotNegative("momentum", update.momentum));
  SLIMPS_RETURN_IF_ERROR(CheckNotNegative("epsilon", update.epsilon));
  if (!(options.look_ahead >= 0 && options.look_ahead <= 1)) {
    return OutOfRange("look_ahead", options.look_ahead, "0 to 1");
  }
  if (options.threads < 0) return OutOfRange("threads", options.threads, "0 or more");
  SLIMPS_RETURN_IF_ERROR(CheckDecay("beta1", update.beta1));
  SLIMPS_RETURN_IF_ERROR(CheckDecay("beta2", update.beta2));
  if (!std::isfinite(update.scale)) {
    return OutOfRange("rescale_grad", update.scale, "a finite number");
  }
  if (update.momentum != 0 && update.kind != UpdateKind::kSgd) {
    return OutOfRange("momentum", update.momentum, "0 for any optimizer but SGD");
  }
  if (update.nesterov && update.momentum == 0) {
    return OutOfRange("momentum", update.momentum, "more than 0 with nesterov");
  }
  if (options.loc_lr.has_value() && options.learning_rate == 0) {
    return OutOfRange("learning_rate", options.learning_rate,
                      "more than 0 with a loc_lr, which is kept in proportion to it");
  }
  const bool steps = update.kind == UpdateKind::kSgd || update.kind == UpdateKind::kAdam ||
                     update.kind == UpdateKind::kAdamW;
  if (options.moments == Moments::kServers && !steps) {
    return absl::InvalidArgumentError(
        "local updater: moments are the servers', expected an optimizer that has some: SGD, Adam "
        "or AdamW");
  }
  return LocalUpdater(options);
}

LocalUpdater::LocalUpdater(const LocalUpdaterOptions& options)
    : options_(options),
      follow_{.own_weight = options.loc_lr.has_value() ? *options.loc_lr / options.learning_rate
                                                       : options.own_weight,
              .look_ahead = options.look_ahead},
      arena_(std::make_shared<const WorkArena>(options.threads)) {}

size_t LocalUpdater::state_tensors() const { return UpdateStateTensors(options_.update); }

void LocalUpdater::Step(std::span<const float> base, std::span<const float> gradient,
                        const Hyper& hyper, LocalUpdaterState& state,
                        std::span<float> updated) const {
  UpdateBlock block{
      .before = base.data(), .sum = gradient.data(), .after = updated.data(), .n = base.size()};
  const bool follows = options_.moments == Moments::kServers;
  UpdateOptions options = options_.update;
  const size_t moments = UpdateStateTensors(options);
  const UpdateRule& rule = follows ? FollowRuleOf(options, BestKernels().update)
                                   : UpdateRuleOf(options, BestKernels().update);
  options.weight_decay = hyper.weight_decay;
  if (hyper.momentum.has_value() && moments > 0) SetMomentum(*hyper.momentum, &options);
  if (moments > 0) {
    block.state0 =
        follows ? PastWeights(state.first_moment, base) : Moment(state.first_moment, base.size());
  }
  if (moments > 1) block.state1 = Moment(state.second_moment, base.size());
  const bool streams = updated.size_bytes() >= kStreamedBytes && updated.data() != base.data() &&
                       reinterpret_cast<uintptr_t>(updated.data()) % kBufferAlignment == 0;
  const auto step = static_cast<uint64_t>(++state.steps);
  const UpdateStep plan = follows
                              ? PlanFollow(options, hyper.learning_rate, follow_, step, state.past)
                              : PlanUpdate(options, hyper.learning_rate * follow_.own_weight, step);
  Update(streams ? rule.stream : rule.store, plan, block);
  if (!follows) return;
  state.past = {.learning_rate = hyper.learning_rate,
                .weight_decay = hyper.weight_decay,
                .momentum = MomentumOf(options),
                .step = step};
}

void LocalUpdater::Update(UpdatePass pass, const UpdateStep& plan, const UpdateBlock& block) const {
  if (threads() == 1 || block.n <= kChunkElements) return pass(plan, block);
  arena_->Run([&] {
    WorkArena::ForChunks(block.n, kChunkElements, [&](size_t first, size_t last) {
      pass(plan, PartOf(block, first, last));
    });
  });
}

void LocalUpdater::Skip(std::span<const float> base, const Hyper& hyper, LocalUpdaterState& state,
                        std::span<float> updated) const {
  std::ranges::copy(base, updated.begin());
  if (options_.moments != Moments::kServers || state.first_moment.size() == 0) return;
  // The other workers' gradients may move these weights, so the next step must measure from here.
  std::ranges::copy(base, state.first_moment.floats().begin());
  state.past.learning_rate = hyper.learning_rate;
  state.past.weight_decay = hyper.weight_decay;
  state.past.momentum = hyper.momentum.value_or(MomentumOf(options_.update));
}

}  // namespace slimps
