// SPDX-License-Identifier: Apache-2.0
#include "compress/codec/momentum_input.h"

#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "compress/codec/encode_run.h"

namespace slimps {
namespace {

// A factor that outweighs all roundings of a bound together.
constexpr double kRounding = 1.000001;

// Bounds after a step: of the momentum and of what the step hands on.
struct StepBounds {
  double momentum, handed_on;
};

StepBounds BoundsOf(const EncodeInput& input, const MomentumRule& rule) {
  const double g =
      static_cast<double>(input.gradient_bound) * std::fabs(static_cast<double>(rule.grad_scale));
  const double before = static_cast<double>(input.momentum_bound);
  const auto mu = static_cast<double>(rule.mu);
  switch (rule.step) {
    case MomentumStep::kNesterov:
      return {mu * before + g, mu * (mu * before + g) + g};
    case MomentumStep::kDgcNesterov:
      return {mu * (before + g), mu * (before + g) + g};
    case MomentumStep::kHeavyBall:
      break;
  }
  return {mu * before + g, mu * before + g};
}

}  // namespace

bool KnownEncodable(const EncodeInput& input, const MomentumRule& rule, float limit) {
  const double residual = input.residual.empty() ? 0 : static_cast<double>(input.residual_bound);
  return (BoundsOf(input, rule).handed_on + residual) * kRounding <= static_cast<double>(limit);
}

size_t FindUnencodable(const Kernels& kernels, const EncodeInput& input, const MomentumRule& rule,
                       float limit, size_t first_block, size_t last_block) {
  for (size_t block = first_block; block < last_block; ++block) {
    const BlockInput in(input, block);
    const size_t bad = kernels.momentum.find_unencodable(in.gradient, in.residual, in.momentum,
                                                         rule, limit, in.elements);
    if (bad != in.elements) return block * kBlockElements + bad;
  }
  return Codec::kEncodable;
}

absl::StatusOr<float> StepMomentum(const Kernels& kernels, const EncodeInput& input,
                                   const MomentumRule& rule, std::span<float> out) {
  constexpr float kLimit = std::numeric_limits<float>::max();
  if (!KnownEncodable(input, rule, kLimit)) {
    const size_t bad =
        FindUnencodable(kernels, input, rule, kLimit, 0, Codec::Blocks(input.gradient.size()));
    if (bad != Codec::kEncodable) {
      return absl::InvalidArgumentError(absl::StrCat(
          "gradient element ", bad, " of ", input.gradient.size(), " is ", input.gradient[bad],
          "; times grad_scale ", input.grad_scale, ", with a momentum of ", input.momentum[bad],
          ", it exceeds fp32 or is no number"));
    }
  }
  kernels.momentum.advance(input.gradient.data(), input.momentum.data(), rule,
                           input.gradient.size(), out.data());
  return MomentumBoundAfter(input, rule);
}

float MomentumBoundAfter(const EncodeInput& input, const MomentumRule& rule) {
  return static_cast<float>(BoundsOf(input, rule).momentum * kRounding);
}

}  // namespace slimps
