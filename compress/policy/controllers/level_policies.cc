// SPDX-License-Identifier: Apache-2.0
// The factories of the policies that level_controller.h serves.
#include <array>
#include <utility>

#include "absl/strings/str_cat.h"
#include "compress/policy/controllers/level_controller.h"
#include "compress/policy/controllers/policies.h"
#include "proto/base/status_macros.h"

namespace slimps {
namespace {

using Made = absl::StatusOr<std::unique_ptr<Controller>>;

// Reads what all but uniform share, and makes the controller.
Made MakeWith(const SpecText& spec, LevelPolicy policy) {
  const OptionReader options(OwnerOf(spec), spec.options);
  static constexpr std::array<std::string_view, 2> kObjectives = {"size", "time"};
  SLIMPS_ASSIGN_OR_RETURN(const size_t objective, options.Choice("objective", kObjectives, 0));
  policy.objective = objective == 0 ? Objective::kSize : Objective::kTime;
  if (spec.options.contains("budget")) {
    SLIMPS_ASSIGN_OR_RETURN(const float budget, options.Float("budget", FloatRange::kPositive, 0));
    policy.budget = static_cast<double>(budget);
  }
  SLIMPS_ASSIGN_OR_RETURN(policy.clusters, options.Uint("clusters", 1, 1000, policy.clusters));
  SLIMPS_ASSIGN_OR_RETURN(policy.every, EveryOption(spec, policy.every));
  SLIMPS_ASSIGN_OR_RETURN(policy.min_elements, MinElementsOption(spec));
  return std::make_unique<LevelController>(std::move(policy));
}

// Makes a policy whose uniform setting is one codec.
Made MakeAboutOneCodec(const SpecText& spec, Allocator allocator,
                       std::span<const std::string_view> option_names,
                       std::string_view codec_fallback) {
  SLIMPS_RETURN_IF_ERROR(OptionReader(OwnerOf(spec), spec.options).CheckNames(option_names));
  SLIMPS_ASSIGN_OR_RETURN(const SpecText codec, InnerCodecOption(spec, "codec", codec_fallback));
  SLIMPS_ASSIGN_OR_RETURN(CodecLevels levels, CodecLevels::About(OwnerOf(spec), codec, codec));
  return MakeWith(spec, {.spec = spec, .levels = std::move(levels), .allocator = allocator});
}

}  // namespace

Made MakeUniform(const SpecText& spec) {
  static constexpr std::string_view kOptions[] = {"codec", "min_elements"};
  return MakeAboutOneCodec(spec, Allocator::kUniform, kOptions, "qsgd:bits=4");
}

Made MakeClusters(const SpecText& spec) {
  static constexpr std::string_view kOptions[] = {"codec", "budget", "clusters", "every",
                                                  "min_elements"};
  return MakeAboutOneCodec(spec, Allocator::kClusters, kOptions, "qsgd:bits=4");
}

Made MakeGlobalTopK(const SpecText& spec) {
  static constexpr std::string_view kOptions[] = {"codec", "budget", "every", "min_elements"};
  SLIMPS_ASSIGN_OR_RETURN(const SpecText codec, InnerCodecOption(spec, "codec", "topk"));
  if (codec.name != "topk") {
    return absl::InvalidArgumentError(absl::StrCat(OwnerOf(spec),
                                                   ", option codec: expected topk, got '",
                                                   codec.name, "'; lgreco takes others"));
  }
  return MakeAboutOneCodec(spec, Allocator::kOneThreshold, kOptions, "topk:ratio=0.01");
}

Made MakeLgreco(const SpecText& spec) {
  static constexpr std::string_view kOptions[] = {"codec", "budget", "objective", "every",
                                                  "min_elements"};
  return MakeAboutOneCodec(spec, Allocator::kLeastCost, kOptions, "qsgd:bits=4");
}

Made MakeLgrecoAccordion(const SpecText& spec) {
  static constexpr std::string_view kOptions[] = {"low",       "high",  "eta",
                                                  "objective", "every", "min_elements"};
  const OptionReader options(OwnerOf(spec), spec.options);
  SLIMPS_RETURN_IF_ERROR(options.CheckNames(kOptions));
  SLIMPS_ASSIGN_OR_RETURN(const SpecText low, InnerCodecOption(spec, "low", "topk:ratio=0.1"));
  SLIMPS_ASSIGN_OR_RETURN(const SpecText high, InnerCodecOption(spec, "high", "topk:ratio=0.01"));
  SLIMPS_ASSIGN_OR_RETURN(CodecLevels levels, CodecLevels::About(OwnerOf(spec), low, high));
  SLIMPS_RETURN_IF_ERROR(levels.CheckSecondIsStronger(OwnerOf(spec)));
  SLIMPS_ASSIGN_OR_RETURN(const float eta, options.Float("eta", FloatRange::kPositive, 0.5f));
  return MakeWith(spec, {.spec = spec,
                         .levels = std::move(levels),
                         .regimes = CriticalRegimes(static_cast<double>(eta))});
}

}  // namespace slimps
