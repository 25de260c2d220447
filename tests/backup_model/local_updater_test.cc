// SPDX-License-Identifier: Apache-2.0
#include "backup_model/local_updater.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "proto/base/buffer.h"

namespace slimps {
namespace {

LocalUpdater Make(const LocalUpdaterOptions& options) {
  auto updater = LocalUpdater::Create(options);
  EXPECT_TRUE(updater.ok()) << updater.status();
  return *std::move(updater);
}

// Returns a scalar weight's value after each gradient. The steps are in place.
std::vector<float> Walk(const LocalUpdaterOptions& options, float weight,
                        const std::vector<float>& gradients) {
  const LocalUpdater updater = Make(options);
  LocalUpdaterState state;
  std::vector<float> path;
  for (const float gradient : gradients) {
    updater.Step({&weight, 1}, {&gradient, 1}, updater.learning_rate(), state, {&weight, 1});
    path.push_back(weight);
  }
  return path;
}

void ExpectPath(const std::vector<float>& path, const std::vector<double>& expected) {
  ASSERT_EQ(path.size(), expected.size());
  for (size_t k = 0; k < path.size(); ++k) EXPECT_NEAR(path[k], expected[k], 1e-6) << "step " << k;
}

TEST(LocalUpdater, SgdIsThePapersEquation8) {
  const LocalUpdater updater = Make({.learning_rate = 0.5});
  const std::vector<float> base = {1, 2, -3}, gradient = {2, -1, 0.5};
  std::vector<float> updated(3);
  LocalUpdaterState state;
  updater.Step(base, gradient, 0.5, state, updated);
  EXPECT_EQ(updated, (std::vector<float>{0, 2.5, -3.25}));
  EXPECT_EQ(base, (std::vector<float>{1, 2, -3}));
  EXPECT_EQ(state.first_moment.size(), 0u) << "plain SGD keeps no state";
}

TEST(LocalUpdater, LocLrStaysInProportionToTheGlobalLearningRate) {
  ExpectPath(Walk({.learning_rate = 0.25}, 1, {1}), {0.75});
  ExpectPath(Walk({.learning_rate = 0.25, .loc_lr = 0.125}, 1, {1}), {0.875});
  ExpectPath(Walk({.learning_rate = 0.25, .loc_lr = 0.0}, 1, {1}), {1});
  float weight = 1;
  const float gradient = 1;
  LocalUpdaterState state;
  Make({.learning_rate = 0.25, .loc_lr = 0.125})
      .Step({&weight, 1}, {&gradient, 1}, /*learning_rate=*/0.5, state, {&weight, 1});
  EXPECT_EQ(weight, 0.75f);
}

TEST(LocalUpdater, MomentumOfAConstantGradientIsTheGeometricSum) {
  // m_t = (1 - 0.5^t) / (1 - 0.5) for g = 1; w_t = 0 - 0.1 * sum of m.
  ExpectPath(Walk({.update = {.momentum = 0.5}, .learning_rate = 0.1}, 0, {1, 1, 1, 1}),
             {-0.1, -0.25, -0.425, -0.6125});
}

TEST(LocalUpdater, NesterovLooksOneStepAhead) {
  // step_t = g + 0.5 * m_t: 1.5, 1.75, 1.875.
  ExpectPath(
      Walk({.update = {.momentum = 0.5, .nesterov = true}, .learning_rate = 0.1}, 0, {1, 1, 1}),
      {-0.15, -0.325, -0.5125});
}

TEST(LocalUpdater, AdamStepsByTheLearningRateUnderAConstantGradient) {
  // With bias correction m/(1-b1^t) = g and v/(1-b2^t) = g*g, so each step is lr * g / (|g| + eps).
  ExpectPath(Walk({.update = {.kind = UpdateKind::kAdam}, .learning_rate = 0.1}, 1, {4, 4, 4}),
             {0.9, 0.8, 0.7});
}

TEST(LocalUpdater, AdamOfAChangingGradientIsTheClosedForm) {
  const double b1 = 0.8, b2 = 0.9, lr = 0.01, eps = 1e-3;
  const double g1 = 2, g2 = -1;
  const double m2 = b1 * (1 - b1) * g1 + (1 - b1) * g2;
  const double v2 = b2 * (1 - b2) * g1 * g1 + (1 - b2) * g2 * g2;
  const double w1 = 0.5 - lr * g1 / (g1 + eps);
  const double w2 = w1 - lr * (m2 / (1 - b1 * b1)) / (std::sqrt(v2 / (1 - b2 * b2)) + eps);
  ExpectPath(Walk({.update = {.kind = UpdateKind::kAdam, .beta1 = b1, .beta2 = b2, .epsilon = eps},
                   .learning_rate = lr},
                  0.5, {2, -1}),
             {w1, w2});
}

TEST(LocalUpdater, WeightDecayIsCoupledInSgdAndAdamAndDecoupledInAdamW) {
  ExpectPath(Walk({.update = {.weight_decay = 0.1}, .learning_rate = 0.5}, 2, {0}),
             {2 - 0.5 * 0.2});
  ExpectPath(Walk({.update = {.momentum = 0.9, .weight_decay = 0.1}, .learning_rate = 0.5}, 2, {1}),
             {2 - 0.5 * 1.2});
  // Adam: the decayed gradient alone decides the sign, and the step is lr.
  ExpectPath(
      Walk({.update = {.kind = UpdateKind::kAdam, .weight_decay = 0.1}, .learning_rate = 0.5}, 2,
           {0}),
      {1.5});
  ExpectPath(
      Walk({.update = {.kind = UpdateKind::kAdamW, .weight_decay = 0.1}, .learning_rate = 0.5}, 2,
           {0}),
      {2 * (1 - 0.05)});
}

TEST(LocalUpdater, TheGradientIsRescaledThenClipped) {
  ExpectPath(Walk({.update = {.scale = 0.5, .clip = 2}, .learning_rate = 1}, 0, {1, 6, -9}),
             {-0.5, -2.5, -0.5});
  const std::vector<float> path = Walk({.update = {.clip = 2}, .learning_rate = 1}, 0,
                                       {std::numeric_limits<float>::quiet_NaN()});
  EXPECT_TRUE(std::isnan(path[0])) << "clipping must not hide a NaN";
}

// The lengths lie around vector widths. A vectorised loop's remainder must agree with its body bit
// for bit.
TEST(LocalUpdater, AnElementsResultDoesNotDependOnItsPlaceOrNeighbours) {
  for (const LocalUpdaterOptions& options :
       {LocalUpdaterOptions{.update = {.weight_decay = 0.01}, .learning_rate = 0.1},
        LocalUpdaterOptions{.update = {.momentum = 0.9, .nesterov = true}, .learning_rate = 0.1},
        LocalUpdaterOptions{.update = {.kind = UpdateKind::kAdam, .clip = 1.5}},
        LocalUpdaterOptions{.update = {.kind = UpdateKind::kAdamW, .weight_decay = 0.1}}}) {
    const LocalUpdater updater = Make(options);
    for (size_t n = 0; n <= 67; ++n) {
      std::vector<float> base(n), gradient(n), together(n);
      for (size_t k = 0; k < n; ++k) {
        base[k] = std::sin(static_cast<float>(k));
        gradient[k] = 3 * std::cos(static_cast<float>(7 * k));
      }
      LocalUpdaterState state;
      updater.Step(base, gradient, 0.1, state, together);
      updater.Step(base, gradient, 0.1, state, together);
      for (size_t k = 0; k < n; ++k) {
        LocalUpdaterState alone_state;
        float alone = 0;
        updater.Step({&base[k], 1}, {&gradient[k], 1}, 0.1, alone_state, {&alone, 1});
        updater.Step({&base[k], 1}, {&gradient[k], 1}, 0.1, alone_state, {&alone, 1});
        ASSERT_EQ(std::bit_cast<uint32_t>(alone), std::bit_cast<uint32_t>(together[k]))
            << "element " << k << " of " << n;
      }
    }
  }
}

TEST(LocalUpdater, StepsAreTheSameWithAnyNumberOfThreads) {
  constexpr size_t kElements = 5 * 65'536 + 77;
  AlignedBuffer base = AlignedBuffer::OfFloats(kElements);
  std::vector<float> gradient(kElements);
  for (size_t k = 0; k < kElements; ++k) {
    base.floats()[k] = std::sin(static_cast<float>(k));
    gradient[k] = 3 * std::cos(static_cast<float>(7 * k));
  }
  for (LocalUpdaterOptions options :
       {LocalUpdaterOptions{.update = {.weight_decay = 0.01}, .learning_rate = 0.1},
        LocalUpdaterOptions{.update = {.momentum = 0.9, .nesterov = true}, .learning_rate = 0.1},
        LocalUpdaterOptions{.update = {.kind = UpdateKind::kAdam, .clip = 1.5}}}) {
    std::vector<float> one;
    for (const int threads : {1, 2, 3, 8}) {
      options.threads = threads;
      const LocalUpdater updater = Make(options);
      LocalUpdaterState state;
      AlignedBuffer updated = AlignedBuffer::OfFloats(kElements);
      for (int step = 0; step < 2; ++step) {
        updater.Step(base.floats(), gradient, 0.1, state, updated.floats());
      }
      const std::vector<float> stepped(updated.floats().begin(), updated.floats().end());
      if (threads == 1) one = stepped;
      EXPECT_TRUE(std::ranges::equal(stepped, one)) << threads << " threads";
    }
  }
}

TEST(LocalUpdater, ByDefaultAllCoresStepALargeTensor) {
  cpu_set_t cores;
  ASSERT_EQ(sched_getaffinity(0, sizeof(cores), &cores), 0);
  EXPECT_EQ(Make({}).threads(), CPU_COUNT(&cores));
  EXPECT_EQ(Make({.threads = 3}).threads(), 3);
}

TEST(LocalUpdater, NumbersOfAStepTakeThePlaceOfTheOptions) {
  for (const UpdateKind kind : {UpdateKind::kSgd, UpdateKind::kAdam, UpdateKind::kAdamW}) {
    LocalUpdaterOptions options{.update = {.kind = kind, .weight_decay = 0.25},
                                .learning_rate = 0.5};
    if (kind == UpdateKind::kSgd) options.update.momentum = 0.25;
    const LocalUpdater updater = Make(options);
    LocalUpdaterState state, state_of_other;
    float weight = 2, weight_of_other = 2;
    for (int step = 1; step <= 4; ++step) {
      const Hyper hyper{
          .learning_rate = 0.1 / step, .weight_decay = 0.01 * step, .momentum = 1 - 0.1 * step};
      options.learning_rate = hyper.learning_rate;
      options.update.weight_decay = hyper.weight_decay;
      SetMomentum(*hyper.momentum, &options.update);
      const LocalUpdater other = Make(options);
      const float gradient = static_cast<float>(step) - 2.25f;
      updater.Step({&weight, 1}, {&gradient, 1}, hyper, state, {&weight, 1});
      other.Step({&weight_of_other, 1}, {&gradient, 1}, other.learning_rate(), state_of_other,
                 {&weight_of_other, 1});
      ASSERT_EQ(weight, weight_of_other) << "step " << step;
    }
    const float zero = 0;
    updater.Step({&weight, 1}, {&zero, 1}, Hyper{.learning_rate = 0}, state, {&weight, 1});
    EXPECT_EQ(weight, weight_of_other) << "neither a rate nor a decay";
  }
}

TEST(LocalUpdater, OptionsOutOfRangeAreRefusedByName) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const std::vector<std::pair<LocalUpdaterOptions, const char*>> cases = {
      {{.learning_rate = -1}, "learning_rate"},
      {{.learning_rate = nan}, "learning_rate"},
      {{.loc_lr = -0.1}, "loc_lr"},
      {{.own_weight = -0.1}, "own_weight"},
      {{.look_ahead = -0.1}, "look_ahead"},
      {{.look_ahead = 1.5}, "look_ahead"},
      {{.update = {.momentum = -0.9}}, "momentum"},
      {{.update = {.nesterov = true}}, "momentum"},
      {{.update = {.kind = UpdateKind::kAdam, .momentum = 0.9}}, "momentum"},
      {{.update = {.weight_decay = -1}}, "weight_decay"},
      {{.update = {.beta1 = 1}}, "beta1"},
      {{.update = {.beta2 = -0.1}}, "beta2"},
      {{.update = {.epsilon = nan}}, "epsilon"},
      {{.update = {.scale = nan}}, "rescale_grad"},
      {{.update = {.clip = -2}}, "clip_gradient"},
  };
  for (const auto& [options, name] : cases) {
    const absl::Status status = LocalUpdater::Create(options).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << name;
    EXPECT_NE(status.message().find(name), absl::string_view::npos) << status;
  }
}

}  // namespace
}  // namespace slimps
