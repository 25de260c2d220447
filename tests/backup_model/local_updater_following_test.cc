// SPDX-License-Identifier: Apache-2.0
// Local steps that follow the servers' moments.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "backup_model/local_updater.h"

namespace slimps {
namespace {

// A job of several workers. The servers step by the mean gradient. Each worker predicts that step
// from the weights that it receives and from its own gradient.
class Following {
 public:
  Following(const LocalUpdaterOptions& servers, size_t workers, size_t elements)
      : servers_(LocalUpdater::Create(servers).value()),
        workers_(workers),
        states_(workers),
        weights_(elements) {
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

TEST(LocalUpdaterFollowing, TheServersMomentumIsReadOffTheWeights) {
  for (const bool nesterov : {false, true}) {
    LocalUpdaterOptions options{.update = {.momentum = 0.9, .nesterov = nesterov},
                                .learning_rate = 0.1};
    Following job(options, /*workers=*/3, /*elements=*/37);
    options.moments = Moments::kServers;
    const LocalUpdater local = LocalUpdater::Create(options).value();
    for (int t = 0; t < 12; ++t) {
      // Nesterov's gradient counts 1 + momentum times.
      const double own = nesterov ? 1 + *HyperOf(t).momentum : 1;
      const double worst = job.Round(local, GradientsOf(t, 3, 37, 1), HyperOf(t), own);
      EXPECT_LT(worst, 2e-6) << (nesterov ? "nesterov" : "heavy ball") << " round " << t;
    }
  }
}

TEST(LocalUpdaterFollowing, LookingAheadLengthensTheStepByItsMomentum) {
  LocalUpdaterOptions options{.update = {.momentum = 0.5, .weight_decay = 0.25},
                              .moments = Moments::kServers,
                              .learning_rate = 0.5};
  const LocalUpdater local = LocalUpdater::Create(options).value();
  options.look_ahead = 0.75;
  const LocalUpdater ahead = LocalUpdater::Create(options).value();
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

TEST(LocalUpdaterFollowing, AdamsMomentsAreTheServersWhereGradientsAgree) {
  for (const UpdateKind kind : {UpdateKind::kAdam, UpdateKind::kAdamW}) {
    LocalUpdaterOptions options{.update = {.kind = kind}, .learning_rate = 0.01};
    Following job(options, /*workers=*/2, /*elements=*/37);
    options.moments = Moments::kServers;
    const LocalUpdater local = LocalUpdater::Create(options).value();
    for (int t = 0; t < 12; ++t) {
      const Hyper hyper{
          .learning_rate = 0.01 / (1 + t), .weight_decay = 0.1, .momentum = 0.95 - 0.02 * t};
      EXPECT_LT(job.Round(local, GradientsOf(t, 2, 37, 0), hyper, 0), 5e-6) << "round " << t;
    }
  }
}

TEST(LocalUpdaterFollowing, AdamPredictsBetterByTheServersMomentsThanByItsOwn) {
  double distance[2] = {0, 0};
  for (const Moments moments : {Moments::kOwn, Moments::kServers}) {
    LocalUpdaterOptions options{.update = {.kind = UpdateKind::kAdam}, .learning_rate = 0.01};
    Following job(options, /*workers=*/4, /*elements=*/101);
    options.moments = moments;
    const LocalUpdater local = LocalUpdater::Create(options).value();
    for (int t = 0; t < 40; ++t) {
      job.Round(local, GradientsOf(t, 4, 101, 2), {.learning_rate = 0.01}, 0);
      if (t >= 10) distance[moments == Moments::kServers] += job.squares();
    }
  }
  EXPECT_LT(distance[1], 0.5 * distance[0]);
}

TEST(LocalUpdaterFollowing, AServersMomentumThatWeightsCannotTellCountsAsZero) {
  const LocalUpdater local =
      LocalUpdater::Create(
          {.update = {.momentum = 0.5}, .moments = Moments::kServers, .learning_rate = 1})
          .value();
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

TEST(LocalUpdaterFollowing, AStepWithoutGradientKeepsTheCourseOfTheWeights) {
  const LocalUpdater local =
      LocalUpdater::Create(
          {.update = {.momentum = 0.5}, .moments = Moments::kServers, .learning_rate = 0.5})
          .value();
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

TEST(LocalUpdaterFollowing, OnlyOptimizersWithMomentsFollowTheServers) {
  EXPECT_FALSE(
      LocalUpdater::Create({.update = {.kind = UpdateKind::kAssign}, .moments = Moments::kServers})
          .ok());
}

}  // namespace
}  // namespace slimps
