// SPDX-License-Identifier: Apache-2.0
// The momentum kernels of every set against "scalar", bit for bit, and scalar against the formulas.
#include <algorithm>
#include <cmath>

#include "compress/kernels/kernels.h"
#include "gtest/gtest.h"
#include "tests/compress/test_data.h"

namespace slimps {
namespace {

constexpr MomentumStep kSteps[] = {MomentumStep::kHeavyBall, MomentumStep::kNesterov,
                                   MomentumStep::kDgcNesterov};
constexpr float kCanary = -12345.5f;

MomentumRule RuleOf(MomentumStep step) { return {.step = step, .mu = 0.9f, .grad_scale = 0.75f}; }

// One element's result by the formulas of momentum.h.
struct Stepped {
  float u, p;
};
Stepped StepOf(const MomentumRule& rule, float gradient, float u) {
  const float g = gradient * rule.grad_scale;
  if (rule.step == MomentumStep::kDgcNesterov) {
    const float next = rule.mu * (u + g);
    return {next, next + g};
  }
  const float next = rule.mu * u + g;
  return {next, rule.step == MomentumStep::kNesterov ? rule.mu * next + g : next};
}

class MomentumKernelsTest : public ::testing::TestWithParam<const Kernels*> {
 protected:
  void SetUp() override {
    if (!GetParam()->runs_here()) GTEST_SKIP() << "this CPU lacks " << GetParam()->name;
  }
  static const MomentumKernels& kernels() { return GetParam()->momentum; }
  static const MomentumKernels& scalar() { return FindKernels("scalar")->momentum; }
};

INSTANTIATE_TEST_SUITE_P(All, MomentumKernelsTest,
                         ::testing::ValuesIn(AllKernels().begin(), AllKernels().end()),
                         [](const auto& info) { return std::string(info.param->name); });

TEST_P(MomentumKernelsTest, AStepFollowsTheFormulas) {
  for (const MomentumStep step : kSteps) {
    const MomentumRule rule = RuleOf(step);
    for (const size_t n : BlockLengths()) {
      const std::vector<float> gradient = AwkwardFloats(n, n);
      std::vector<float> u = AwkwardFloats(n, n + 1), out(n + 16, kCanary), next(n), handed_on(n);
      for (size_t i = 0; i < n; ++i) {
        const Stepped stepped = StepOf(rule, gradient[i], u[i]);
        next[i] = stepped.u;
        handed_on[i] = stepped.p;
      }
      kernels().advance(gradient.data(), u.data(), rule, n, out.data());
      ASSERT_EQ(Difference(u, next), "") << n;
      ASSERT_EQ(Difference(std::span(out).first(n), handed_on), "") << n;
      ASSERT_TRUE(std::all_of(out.begin() + static_cast<long>(n), out.end(),
                              [](float value) { return value == kCanary; }));
    }
  }
}

TEST_P(MomentumKernelsTest, CorrectionListsWhatReachesTheFloor) {
  for (const MomentumStep step : kSteps) {
    const MomentumRule rule = RuleOf(step);
    for (const size_t n : BlockLengths()) {
      for (const float floor : {1e-45f, 0.5f, 3.0f, 1e30f}) {
        const std::vector<float> gradient = AwkwardFloats(n, n), u0 = AwkwardFloats(n, n + 1),
                                 v0 = AwkwardFloats(n, n + 2);
        std::vector<float> u = u0, v = v0, wanted_u = u0, wanted_v = v0;
        std::vector<uint32_t> index(n + 16), wanted_index;
        std::vector<float> value(n + 16), wanted_value;
        const Candidates found = kernels().correct(gradient.data(), v.data(), u.data(), rule, floor,
                                                   n, index.data(), value.data());
        for (size_t i = 0; i < n; ++i) {
          const Stepped stepped = StepOf(rule, gradient[i], u0[i]);
          wanted_u[i] = stepped.u;
          wanted_v[i] = v0[i] + stepped.p;
          if (!(std::fabs(wanted_v[i]) >= floor)) continue;
          wanted_index.push_back(static_cast<uint32_t>(i));
          wanted_value.push_back(wanted_v[i]);
        }
        ASSERT_EQ(Difference(u, wanted_u), "") << n;
        ASSERT_EQ(Difference(v, wanted_v), "") << n;
        index.resize(found.count);
        value.resize(found.count);
        ASSERT_EQ(index, wanted_index) << n << " floor " << floor;
        ASSERT_EQ(Difference(value, wanted_value), "");
        std::vector<float> other_u = u0, other_v = v0, other_value(n + 16);
        std::vector<uint32_t> other_index(n + 16);
        const Candidates other =
            scalar().correct(gradient.data(), other_v.data(), other_u.data(), rule, floor, n,
                             other_index.data(), other_value.data());
        ASSERT_EQ(Difference({&found.rest2, 1}, {&other.rest2, 1}), "");
      }
    }
  }
}

TEST_P(MomentumKernelsTest, NormsAndMasksEqualScalar) {
  for (const size_t n : BlockLengths()) {
    const std::vector<float> gradient = AwkwardFloats(n, n);
    const float mine = kernels().norm2(gradient.data(), 1e-3f, n);
    const float wanted = scalar().norm2(gradient.data(), 1e-3f, n);
    ASSERT_EQ(Difference({&mine, 1}, {&wanted, 1}), "") << n;
    std::vector<float> sent = AwkwardFloats(n, n + 1), u = RandomFloats(n, n + 2), masked = u;
    for (size_t i = 0; i < n; ++i) {
      if (i % 7 != 0) sent[i] = 0;
      if (sent[i] != 0) masked[i] = 0;
    }
    kernels().mask(sent.data(), n, u.data());
    ASSERT_EQ(Difference(u, masked), "") << n;
  }
}

TEST_P(MomentumKernelsTest, FindsTheFirstUnencodable) {
  for (const MomentumStep step : kSteps) {
    const MomentumRule rule = RuleOf(step);
    for (const size_t n : {1, 15, 16, 33, 257}) {
      const std::vector<float> gradient = RandomFloats(n, n), v = RandomFloats(n, n + 1),
                               u = RandomFloats(n, n + 2);
      EXPECT_EQ(kernels().find_unencodable(gradient.data(), v.data(), u.data(), rule, 100, n), n);
      for (size_t bad = 0; bad < n; bad += 1 + n / 5) {
        for (const float value : {NAN, INFINITY, 3e38f, 300.0f}) {
          std::vector<float> broken = gradient;
          broken[bad] = broken[n - 1] = value;
          EXPECT_EQ(kernels().find_unencodable(broken.data(), nullptr, u.data(), rule, 100, n),
                    bad);
          broken = u;
          broken[bad] = broken[n - 1] = -value;
          EXPECT_EQ(
              kernels().find_unencodable(gradient.data(), v.data(), broken.data(), rule, 100, n),
              bad);
        }
      }
    }
  }
}

}  // namespace
}  // namespace slimps
