// SPDX-License-Identifier: Apache-2.0
// The optimizers' kernels against the formulas of server/round/optimizer.h as plain loops, bit for
// bit.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <string>
#include <vector>

#include "compress/kernels/kernels.h"
#include "compress/kernels/update_plan.h"
#include "gtest/gtest.h"
#include "proto/base/buffer.h"
#include "server/round/optimizer.h"
#include "tests/compress/test_data.h"
#include "tests/server/round/server_test_util.h"

namespace slimps {
namespace {

struct Tensors {
  Tensors(size_t n, uint64_t seed)
      : before(AwkwardFloats(n, seed)),
        sum(NonFiniteFloats(n, seed + 1)),
        state0(AwkwardFloats(n, seed + 2)),
        state1(AwkwardFloats(n, seed + 3)),
        after(AlignedBuffer::OfFloats(n)) {
    for (float& v : state1) v = std::abs(v);
  }
  Tensors(const Tensors& other)
      : before(other.before),
        sum(other.sum),
        state0(other.state0),
        state1(other.state1),
        after(AlignedBuffer::OfFloats(other.sum.size())) {}

  UpdateBlock Block() {
    return {before.data(), sum.data(),    after.floats().data(),
            state0.data(), state1.data(), sum.size()};
  }
  std::string DifferenceTo(const Tensors& other) const {
    return Difference(after.floats(), other.after.floats()) + Difference(state0, other.state0) +
           Difference(state1, other.state1);
  }

  std::vector<float> before, sum, state0, state1;
  AlignedBuffer after;  // not copied
};

float Flushed(float x) { return std::abs(x) < std::numeric_limits<float>::min() ? 0 : x; }

// Steps one element. Each operation is rounded to fp32, in the order written. std::fma rounds once.
void StepElement(const wire::OptimizerSpec& spec, const UpdateStep& s, float sum, float w,
                 float& out, float& buf, float& var) {
  const float scaled = sum * s.scale;
  const float capped = scaled > s.clip ? s.clip : scaled;
  const float g = capped < -s.clip ? -s.clip : capped;
  const float d = std::fma(s.weight_decay, w, g);
  switch (spec.kind()) {
    case wire::OptimizerSpec::TEST:
      out = w + g;
      return;
    case wire::OptimizerSpec::SGD:
      if (!(spec.momentum() > 0)) {
        out = std::fma(-s.learning_rate, d, w);
        return;
      }
      buf = Flushed(s.momentum * buf + d);
      out = std::fma(-s.learning_rate, spec.nesterov() ? std::fma(s.momentum, buf, d) : buf, w);
      return;
    case wire::OptimizerSpec::ADAM:
    case wire::OptimizerSpec::ADAMW:
      buf = Flushed(std::fma(s.one_minus_beta1, d, s.beta1 * buf));
      var = Flushed(std::fma(s.one_minus_beta2 * d, d, s.beta2 * var));
      out = w * s.shrink - s.adam_step * buf / (std::sqrt(var) / s.root_correction2 + s.epsilon);
      return;
    default:
      out = g;
      return;
  }
}

std::vector<wire::OptimizerSpec> Specs() {
  std::vector<wire::OptimizerSpec> specs(7);
  specs[1].set_kind(wire::OptimizerSpec::TEST);
  specs[2] = SgdSpec(0.1);
  specs[3] = SgdSpec(0.1, 0.9);
  specs[4] = SgdSpec(0.1, 0.9);
  specs[4].set_nesterov(true);
  specs[5].set_kind(wire::OptimizerSpec::ADAM);
  specs[6].set_kind(wire::OptimizerSpec::ADAMW);
  for (wire::OptimizerSpec& spec : specs) {
    spec.set_learning_rate(0.01);
    spec.set_beta1(0.9);
    spec.set_beta2(0.999);
    spec.set_epsilon(1e-8);
  }
  const size_t plain = specs.size();
  for (size_t i = 0; i < plain; ++i) {
    wire::OptimizerSpec spec = specs[i];
    spec.set_weight_decay(0.03);
    spec.set_clip_gradient(0.7);
    spec.set_rescale_grad(-0.3);
    specs.push_back(spec);
  }
  return specs;
}

using Rule = void (*)(const UpdateStep&, const UpdateBlock&);

TEST(UpdateKernels, EverySetDoesWhatTheFormulasSayBitForBit) {
  const std::vector<wire::OptimizerSpec> specs = Specs();
  for (const size_t n : InterestingLengths()) {
    const Tensors given(n, n + 1);
    for (const wire::OptimizerSpec& spec : specs) {
      const auto optimizer = MakeOptimizer(spec);
      const UpdateStep step = optimizer->PlanStep({.round = 3, .updates = 2, .contributors = 2});
      Tensors expected = given;
      for (size_t i = 0; i < n; ++i) {
        StepElement(spec, step, given.sum[i], given.before[i], expected.after.floats()[i],
                    expected.state0[i], expected.state1[i]);
      }
      for (const Kernels* kernels : AllKernels()) {
        if (!kernels->runs_here()) continue;
        const UpdateRule& rule = optimizer->RuleOf(*kernels);
        for (const Rule function : {rule.store, rule.stream}) {
          Tensors got = given;
          function(step, got.Block());
          ASSERT_EQ(got.DifferenceTo(expected), "") << kernels->name << spec.ShortDebugString();
        }
      }
    }
  }
}

// Steps one element as StepElement does, but by FollowRuleOf: it recovers the momentum from the
// past weights.
void FollowElement(const UpdateOptions& options, const UpdateStep& s, float sum, float w,
                   float& out, float& past, float& var) {
  const float scaled = sum * s.scale;
  const float capped = scaled > s.clip ? s.clip : scaled;
  const float g = capped < -s.clip ? -s.clip : capped;
  const float d = std::fma(s.weight_decay, w, g);
  if (options.kind == UpdateKind::kSgd) {
    const float moved = past - w;
    past = std::fma(s.remembered, moved, w);
    out = std::fma(-s.learning_rate, d, std::fma(-s.carried, moved, w));
    return;
  }
  const float moved = past * s.past_shrink - w;
  const float m = moved * s.past_unstep * (std::sqrt(var) / s.past_root_correction2 + s.epsilon);
  const float next = Flushed(std::fma(s.one_minus_beta1, d, s.beta1 * m));
  var = Flushed(std::fma(s.one_minus_beta2 * d, d, s.beta2 * var));
  past = w;
  out = w * s.shrink - s.adam_step * next / (std::sqrt(var) / s.root_correction2 + s.epsilon);
}

TEST(UpdateKernels, EverySetFollowsAsTheFormulasSayBitForBit) {
  const std::vector<UpdateOptions> all = {
      {.momentum = 0.9, .weight_decay = 0.03, .scale = -0.3, .clip = 0.7},
      {.momentum = 0.9, .nesterov = true},
      {.kind = UpdateKind::kAdam, .beta1 = 0.9, .beta2 = 0.999, .epsilon = 1e-8},
      {.kind = UpdateKind::kAdamW, .weight_decay = 0.1, .beta1 = 0.9, .beta2 = 0.99, .epsilon = 1}};
  for (const size_t n : InterestingLengths()) {
    const Tensors given(n, n + 1);
    for (const UpdateOptions& options : all) {
      const UpdateStep step = PlanFollow(options, /*learning_rate=*/0.1,
                                         {.own_weight = 0.5, .look_ahead = 0.25}, /*step=*/3,
                                         {.learning_rate = 0.2,
                                          .weight_decay = options.weight_decay,
                                          .momentum = MomentumOf(options),
                                          .step = 2});
      Tensors expected = given;
      for (size_t i = 0; i < n; ++i) {
        FollowElement(options, step, given.sum[i], given.before[i], expected.after.floats()[i],
                      expected.state0[i], expected.state1[i]);
      }
      for (const Kernels* kernels : AllKernels()) {
        if (!kernels->runs_here()) continue;
        const UpdateRule& rule = FollowRuleOf(options, kernels->update);
        for (const Rule function : {rule.store, rule.stream}) {
          Tensors got = given;
          function(step, got.Block());
          ASSERT_EQ(got.DifferenceTo(expected), "") << kernels->name << " n=" << n;
        }
      }
    }
  }
}

// Decaying state must become zero. Without a flush, products of the smallest numbers round up
// again: 4 of them times 0.9 stay 4 for ever, and each step with them takes several times as long.
TEST(UpdateKernels, StateThatDecaysEndsInZero) {
  constexpr size_t kElements = 37;  // whole groups of lanes and a rest
  constexpr float kLeast = std::numeric_limits<float>::min();
  for (const Kernels* kernels : AllKernels()) {
    if (!kernels->runs_here()) continue;
    for (const auto kind : {wire::OptimizerSpec::SGD, wire::OptimizerSpec::ADAM}) {
      wire::OptimizerSpec spec = SgdSpec(0.1, kind == wire::OptimizerSpec::SGD ? 0.9 : 0);
      spec.set_kind(kind);
      spec.set_beta1(0.9);
      spec.set_beta2(0.9);
      spec.set_epsilon(1e-8);
      const auto optimizer = MakeOptimizer(spec);
      std::vector<float> weights(kElements, 1), sum(kElements, 0), state0(kElements),
          state1(kElements);
      for (size_t i = 0; i < kElements; ++i) {
        state0[i] = (i % 2 == 0 ? 4 : -4) * kLeast;
        state1[i] = 4 * kLeast;
      }
      for (uint64_t step = 1; step <= 30; ++step) {
        optimizer->RuleOf(*kernels).store(
            optimizer->PlanStep({.updates = step}),
            {weights.data(), sum.data(), weights.data(), state0.data(), state1.data(), kElements});
        for (const float state : state0) {
          ASSERT_TRUE(state == 0 || std::abs(state) >= kLeast) << kernels->name << " " << state;
        }
      }
      EXPECT_EQ(state0, std::vector<float>(kElements, 0.0f)) << kernels->name;
      if (kind == wire::OptimizerSpec::ADAM) {
        EXPECT_EQ(state1, state0) << kernels->name;
      }
    }
  }
}

TEST(UpdateKernels, WeightsMayBeUpdatedInPlace) {
  for (const wire::OptimizerSpec& spec : Specs()) {
    const auto optimizer = MakeOptimizer(spec);
    const UpdateStep step = optimizer->PlanStep({});
    for (const Kernels* kernels : AllKernels()) {
      if (!kernels->runs_here()) continue;
      Tensors apart(1000, 1), in_place(1000, 1);
      optimizer->RuleOf(*kernels).store(step, apart.Block());
      UpdateBlock block = in_place.Block();
      block.after = in_place.before.data();
      optimizer->RuleOf(*kernels).store(step, block);
      EXPECT_EQ(Difference(in_place.before, apart.after.floats()), "") << kernels->name;
    }
  }
}

TEST(UpdateKernels, NothingPastTheEndIsWritten) {
  for (const wire::OptimizerSpec& spec : Specs()) {
    const auto optimizer = MakeOptimizer(spec);
    const UpdateStep step = optimizer->PlanStep({});
    for (const Kernels* kernels : AllKernels()) {
      if (!kernels->runs_here()) continue;
      const UpdateRule& rule = optimizer->RuleOf(*kernels);
      for (const Rule function : {rule.store, rule.stream}) {
        Tensors tensors(80, 2), untouched(80, 2);
        std::fill(tensors.after.floats().begin(), tensors.after.floats().end(), 7.0f);
        UpdateBlock block = tensors.Block();
        block.n = 53;
        function(step, block);
        for (size_t i = block.n; i < 80; ++i) {
          EXPECT_EQ(tensors.after.floats()[i], 7.0f) << kernels->name;
          EXPECT_EQ(tensors.state0[i], untouched.state0[i]) << kernels->name;
          EXPECT_EQ(tensors.state1[i], untouched.state1[i]) << kernels->name;
        }
      }
    }
  }
}

TEST(UpdateKernels, DifferenceKeepsWhatWasThere) {
  for (const Kernels* kernels : AllKernels()) {
    if (!kernels->runs_here()) continue;
    for (const size_t n : InterestingLengths()) {
      const std::vector<float> weights = AwkwardFloats(n, n), seen = AwkwardFloats(n, n + 1);
      std::vector<float> change = seen, before(n), expected(n);
      for (size_t i = 0; i < n; ++i) expected[i] = weights[i] - seen[i];
      kernels->update.difference(weights.data(), n, change.data(), before.data());
      ASSERT_EQ(Difference(change, expected), "") << kernels->name;
      ASSERT_EQ(Difference(before, seen), "") << kernels->name;
    }
  }
}

}  // namespace
}  // namespace slimps
