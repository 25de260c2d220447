// SPDX-License-Identifier: Apache-2.0
#include "compress/codec/sparse/dgc.h"

#include <algorithm>
#include <optional>

#include "compress/codec/momentum_input.h"
#include "compress/codec/sparse/select/ranked_run.h"
#include "compress/codec/sparse/sparse_options.h"
#include "proto/base/status_macros.h"

namespace slimps {
namespace {

constexpr const char* kDefaultRatio = "0.001";
constexpr float kDefaultMu = 0.9f;

// Owned by one encoding.
class DgcRun final : public RankedRun {
 public:
  DgcRun(const Kernels& kernels, const EncodeInput& input, std::span<std::byte> payload,
         EncodeWorkspace& workspace, const MomentumRule& rule, size_t k, SparseValues values)
      : RankedRun(kernels, input, payload, workspace, {.rank = k}, values), rule_(rule) {}

  EncodeStats Run() override {
    EncodeStats stats = RankedRun::Run();
    stats.momentum_bound = MomentumBoundAfter(input(), rule_);
    return stats;
  }

 protected:
  // The x that CollectFirst will make of the element.
  float SampleInput(size_t element) const override {
    const float g = input().gradient[element] * rule_.grad_scale;
    const float u = input().momentum[element], v = input().residual[element];
    if (rule_.step == MomentumStep::kDgcNesterov) return v + (rule_.mu * (u + g) + g);
    return v + (rule_.mu * u + g);
  }

  Candidates CollectFirst(size_t block, float floor, uint32_t* index, float* value) override {
    const BlockInput in(input(), block);
    return kernels().momentum.correct(in.gradient, in.residual, in.momentum, rule_, floor,
                                      in.elements, index, value);
  }

  void PrefetchSent(size_t block, std::span<const uint32_t> index) const override {
    kernels().sparse.prefetch(index.data(), index.size(),
                              input().momentum.data() + block * kBlockElements);
  }

  void AfterSend(size_t block, std::span<const uint32_t> index) override {
    float* const momentum = input().momentum.data() + block * kBlockElements;
    for (const uint32_t i : index) momentum[i] = 0;
  }

 private:
  const MomentumRule rule_;
};

// Thread-safe: constant after construction.
class DgcCodec final : public CountedSparseCodec {
 public:
  DgcCodec(const CodecSpec& spec, const Kernels& kernels, SparseValues values, SentCount k,
           MomentumRule rule)
      : CountedSparseCodec(spec, kernels, values, ErrorFeedback::kOn, k), rule_(rule) {}

  std::optional<MomentumRule> Momentum(float grad_scale) const override {
    MomentumRule rule = rule_;
    rule.grad_scale = grad_scale;
    return rule;
  }
  EncodeStats EncodeValid(const EncodeInput& input, std::span<std::byte> payload,
                          EncodeWorkspace& workspace) const override {
    EncodeInput whole = input;
    if (input.residual.empty()) {  // what is not sent is lost then
      whole.residual = workspace.Take<float>(input.gradient.size());
      std::ranges::fill(whole.residual, 0.0f);
    }
    return DgcRun(kernels(), whole, payload, workspace, *Momentum(input.grad_scale),
                  k(input.gradient.size()), values())
        .Run();
  }

 private:
  const MomentumRule rule_;  // Momentum() sets its grad_scale
};

}  // namespace

absl::StatusOr<std::unique_ptr<Codec>> MakeDgcCodec(const CodecSpec& spec, const Kernels& kernels) {
  static constexpr std::string_view kOffOn[] = {"off", "on"};
  CodecSpec counted = spec;
  if (!spec.options.contains("k")) counted.options.try_emplace("ratio", kDefaultRatio);
  SLIMPS_ASSIGN_OR_RETURN(const SentCount k, SentCountOption(counted));
  SLIMPS_ASSIGN_OR_RETURN(const SparseValues values, ValueOption(spec));
  SLIMPS_ASSIGN_OR_RETURN(const size_t nesterov, ChoiceOption(spec, "nesterov", kOffOn, 0));
  MomentumRule rule;
  rule.step = nesterov == 1 ? MomentumStep::kDgcNesterov : MomentumStep::kHeavyBall;
  SLIMPS_ASSIGN_OR_RETURN(rule.mu, FloatOption(spec, "mu", FloatRange::kFactor, kDefaultMu));
  return std::make_unique<DgcCodec>(spec, kernels, values, k, rule);
}

}  // namespace slimps
