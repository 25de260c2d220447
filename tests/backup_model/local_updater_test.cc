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

// A job of several workers. The servers step by the mean gradient. Each worker predicts that step
// from the weights that it receives and from its own gradient.
class Following {
 public:
  Following(const LocalUpdaterOptions& servers, size_t workers, size_t elements)
      : servers_(Make(servers)), workers_(workers), states_(workers), weights_(elements) {
    for (size_t k = 0; k < elements; ++k) weights_[k] = std::sin(static_cast<float>(k) + 1);
  }

  // Runs one round. Returns the largest distance between a worker's prediction and the servers' new
  // weights, after subtracting `own` * rate * (gradient - mean), which a worker cannot know.
  double Round(const LocalUpdater& local, const std::vector<std::vector<float>>& gradients,
               Hyper hyper, double own) {
    std::vector<float> mean(weights_.size()), next(weights_.size());
    for (size_t k = 0; k < mean.size(); ++k) {
      for (const auto& gradient : gradients) mean[k] += gradient[k] / static_cast<float>(workers_);
    }
    servers_.Step(weights_, mean, hyper, server_state_, next);
    double worst = 0;
    squares_ = 0;
    for (size_t j = 0; j < workers_; ++j) {
      std::vector<float> predicted(weights_.size());
      local.Step(weights_, gradients[j], hyper, states_[j], predicted);
      for (size_t k = 0; k < mean.size(); ++k) {
        const double unknown = own * hyper.learning_rate * (gradients[j][k] - mean[k]);
        const double distance = std::abs(predicted[k] + unknown - next[k]);
        worst = std::max(worst, distance);
        squares_ += distance * distance;
      }
    }
    weights_ = next;
    return worst;
  }
  double squares() const { return squares_; }

 private:
  const LocalUpdater servers_;
  const size_t workers_;
  LocalUpdaterState server_state_;
  std::vector<LocalUpdaterState> states_;
  std::vector<float> weights_;
  double squares_ = 0;
};

// Returns each worker's gradient in round t: a drift that all workers share, plus `difference`
// times a part of the worker's own.
std::vector<std::vector<float>> GradientsOf(int t, size_t workers, size_t elements,
                                            float difference) {
  std::vector<std::vector<float>> gradients(workers, std::vector<float>(elements));
  for (size_t j = 0; j < workers; ++j) {
    for (size_t k = 0; k < elements; ++k) {
      const float shared = std::cos(static_cast<float>(k) + 0.2f * static_cast<float>(t));
      const float own = std::sin(static_cast<float>(t * 31 + static_cast<int>(j * 17 + k * 7)));
      gradients[j][k] = shared + difference * own;
    }
  }
  return gradients;
}

Hyper HyperOf(int t) {
  return {.learning_rate = 0.1 / (1 + 0.3 * t), .weight_decay = 0.01, .momentum = 0.95 - 0.02 * t};
}

TEST(LocalUpdater, TheServersMomentumIsReadOffTheWeights) {
  for (const bool nesterov : {false, true}) {
    LocalUpdaterOptions options{.update = {.momentum = 0.9, .nesterov = nesterov},
                                .learning_rate = 0.1};
    Following job(options, /*workers=*/3, /*elements=*/37);
    options.moments = Moments::kServers;
    const LocalUpdater local = Make(options);
    for (int t = 0; t < 12; ++t) {
      // Nesterov's gradient counts 1 + momentum times.
      const double own = nesterov ? 1 + *HyperOf(t).momentum : 1;
      const double worst = job.Round(local, GradientsOf(t, 3, 37, 1), HyperOf(t), own);
      EXPECT_LT(worst, 2e-6) << (nesterov ? "nesterov" : "heavy ball") << " round " << t;
    }
  }
}

TEST(LocalUpdater, LookingAheadLengthensTheStepByItsMomentum) {
  LocalUpdaterOptions options{.update = {.momentum = 0.5, .weight_decay = 0.25},
                              .moments = Moments::kServers,
                              .learning_rate = 0.5};
  const LocalUpdater local = Make(options);
  options.look_ahead = 0.75;
  const LocalUpdater ahead = Make(options);
  LocalUpdaterState state, ahead_state;
  std::vector<float> w = {1, -2, 0.5}, next(3), far(3);
  for (int t = 0; t < 4; ++t) {
    const std::vector<float> gradient = {0.5f, static_cast<float>(t), -0.25f};
    local.Step(w, gradient, local.learning_rate(), state, next);
    ahead.Step(w, gradient, ahead.learning_rate(), ahead_state, far);
    for (size_t k = 0; k < w.size(); ++k) {
      EXPECT_NEAR(far[k] - w[k], 1.375 * (next[k] - w[k]), 1e-6);
    }
    w = next;
  }
}

TEST(LocalUpdater, AdamsMomentsAreTheServersWhereGradientsAgree) {
  for (const UpdateKind kind : {UpdateKind::kAdam, UpdateKind::kAdamW}) {
    LocalUpdaterOptions options{.update = {.kind = kind}, .learning_rate = 0.01};
    Following job(options, /*workers=*/2, /*elements=*/37);
    options.moments = Moments::kServers;
    const LocalUpdater local = Make(options);
    for (int t = 0; t < 12; ++t) {
      const Hyper hyper{
          .learning_rate = 0.01 / (1 + t), .weight_decay = 0.1, .momentum = 0.95 - 0.02 * t};
      EXPECT_LT(job.Round(local, GradientsOf(t, 2, 37, 0), hyper, 0), 5e-6) << "round " << t;
    }
  }
}

TEST(LocalUpdater, AdamPredictsBetterByTheServersMomentsThanByItsOwn) {
  double distance[2] = {0, 0};
  for (const Moments moments : {Moments::kOwn, Moments::kServers}) {
    LocalUpdaterOptions options{.update = {.kind = UpdateKind::kAdam}, .learning_rate = 0.01};
    Following job(options, /*workers=*/4, /*elements=*/101);
    options.moments = moments;
    const LocalUpdater local = Make(options);
    for (int t = 0; t < 40; ++t) {
      job.Round(local, GradientsOf(t, 4, 101, 2), {.learning_rate = 0.01}, 0);
      if (t >= 10) distance[moments == Moments::kServers] += job.squares();
    }
  }
  EXPECT_LT(distance[1], 0.5 * distance[0]);
}

TEST(LocalUpdater, AServersMomentumThatWeightsCannotTellCountsAsZero) {
  const LocalUpdater local =
      Make({.update = {.momentum = 0.5}, .moments = Moments::kServers, .learning_rate = 1});
  LocalUpdaterState state;
  const float gradient = 2;
  float base = 1, updated = 0;
  const auto step = [&](float from, double learning_rate) {
    base = from;
    local.Step({&base, 1}, {&gradient, 1}, {.learning_rate = learning_rate}, state, {&updated, 1});
    return updated;
  };
  EXPECT_EQ(step(1, 1), -1) << "the first: no momentum yet";
  EXPECT_EQ(step(-3, 1), -3 - 0.5 * 4 - 2);
  EXPECT_EQ(step(-3, 1e-6), static_cast<float>(-3 - 2e-6)) << "the weights stood still";
  EXPECT_EQ(step(5, 1), 3) << "at a millionth of this rate 8 is no momentum";
  EXPECT_EQ(step(4, 0), 4);
  EXPECT_EQ(step(6, 1), 4) << "a rate of 0 tells nothing";
}

TEST(LocalUpdater, AStepWithoutGradientKeepsTheCourseOfTheWeights) {
  const LocalUpdater local =
      Make({.update = {.momentum = 0.5}, .moments = Moments::kServers, .learning_rate = 0.5});
  LocalUpdaterState state;
  const float gradient = 1;
  float base = 4, updated = 0;
  const Hyper hyper{.learning_rate = 0.5};
  local.Skip({&base, 1}, hyper, state, {&updated, 1});
  EXPECT_EQ(updated, 4);
  local.Step({&base, 1}, {&gradient, 1}, hyper, state, {&updated, 1});
  EXPECT_EQ(updated, 3.5f);
  base = 2;
  local.Skip({&base, 1}, hyper, state, {&updated, 1});
  EXPECT_EQ(updated, 2);
  base = 1;
  local.Step({&base, 1}, {&gradient, 1}, hyper, state, {&updated, 1});
  EXPECT_EQ(updated, 1 - 0.5f * 1 - 0.5f) << "momentum of the step that it had no part in";
}

TEST(LocalUpdater, OnlyOptimizersWithMomentsFollowTheServers) {
  EXPECT_FALSE(
      LocalUpdater::Create({.update = {.kind = UpdateKind::kAssign}, .moments = Moments::kServers})
          .ok());
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
