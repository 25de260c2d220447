// SPDX-License-Identifier: Apache-2.0
#include "compress/codec/catalogue/decorators.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "compress/codec/catalogue/warmup_codec.h"
#include "compress/codec/gradient_codec.h"
#include "compress/codec/options.h"
#include "proto/base/status_macros.h"

namespace slimps {
namespace {

constexpr std::string_view kOptions[] = {"momentum", "mu", "clip", "clip_workers", "warmup"};
// In the order of GradientMomentum.
constexpr std::string_view kMomenta[] = {"none", "nesterov", "dgc"};
constexpr float kDefaultMu = 0.9f;

// The ratios of the warm-up's steps: sparsity 75 %, 93.75 %, 98.4375 %, 99.6 %, 99.9 %.
constexpr std::string_view kWarmupRatios[] = {"0.25", "0.0625", "0.015625", "0.004", "0.001"};
// The tensor for which MakeWarmup compares the payloads of two ratios.
constexpr size_t kManyElements = size_t{1} << 24;

bool Has(const CodecEntry& entry, std::string_view option) {
  return std::ranges::find(entry.options, option) != entry.options.end();
}

absl::Status Refuse(const CodecSpec& spec, std::string_view option, const std::string& why) {
  return absl::InvalidArgumentError(
      absl::StrCat("codec ", spec.name, ", option ", std::string(option), ": ", why));
}

CodecSpec WithoutDecorators(const CodecEntry& entry, CodecSpec spec) {
  std::erase_if(spec.options,
                [&](const auto& option) { return IsDecoratorOption(entry, option.first); });
  return spec;
}

// InvalidArgument: a decorator's `option` is given without `of`, which it belongs to.
absl::Status CheckCompanion(const CodecEntry& entry, const CodecSpec& spec, const char* option,
                            const char* of) {
  if (!spec.options.contains(option) || Has(entry, option) || spec.options.contains(of)) {
    return absl::OkStatus();
  }
  return Refuse(spec, option, absl::StrCat("goes with option ", of, " only"));
}

// InvalidArgument: an option makes no sense for the codec.
absl::Status CheckSense(const CodecEntry& entry, const CodecSpec& spec) {
  for (const auto& [option, value] : spec.options) {
    if (!IsDecoratorOption(entry, option)) continue;
    if (entry.options.empty()) {
      return Refuse(spec, option, "gradients are sent as they are, nothing comes before that");
    }
    if (entry.has_phases) {
      return Refuse(spec, option, "the phases of its exchange see the gradient as it is");
    }
    if (option == "momentum" && Has(entry, "mu")) {
      return Refuse(spec, option, "it has momentum of its own, see its options mu and nesterov");
    }
    if (option == "warmup" && !Has(entry, "ratio")) {
      return Refuse(spec, option,
                    "a warm-up begins with larger ratios, and it has no option ratio");
    }
    if (option == "warmup" && spec.options.contains("k")) {
      return Refuse(spec, option, "a warm-up begins with larger ratios: give ratio instead of k");
    }
  }
  SLIMPS_RETURN_IF_ERROR(CheckCompanion(entry, spec, "mu", "momentum"));
  if (Has(entry, "clip") && spec.options.contains("clip_workers")) {
    return Refuse(spec, "clip_workers", "its option clip is another");
  }
  return CheckCompanion(entry, spec, "clip_workers", "clip");
}

// DGC clips a worker's whole gradient, which no encoding sees. So dgc and momentum=dgc refuse clip.
absl::Status CheckClipping(const CodecEntry& entry, const CodecSpec& spec) {
  const auto momentum = spec.options.find("momentum");
  const bool is_dgc =
      Has(entry, "mu") || (momentum != spec.options.end() && momentum->second == "dgc");
  if (!is_dgc || Has(entry, "clip") || !spec.options.contains("clip")) return absl::OkStatus();
  return Refuse(spec, "clip",
                "DGC clips a worker's whole gradient, all tensors of a step together, and a codec "
                "sees one partition of one tensor; clip before pushing: DistributedOptimizer with "
                "push_in_backward=False and clip_grad_norm_");
}

absl::StatusOr<GradientOptions> ReadOptions(const CodecEntry& entry, const CodecSpec& spec) {
  GradientOptions options;
  if (spec.options.contains("clip") && !Has(entry, "clip")) {
    SLIMPS_ASSIGN_OR_RETURN(const float clip, FloatOption(spec, "clip", FloatRange::kPositive, 1));
    SLIMPS_ASSIGN_OR_RETURN(const uint64_t workers,
                            UintOption(spec, "clip_workers", 1, uint64_t{1} << 32, 1));
    options.clip = static_cast<double>(clip) / std::sqrt(static_cast<double>(workers));
  }
  if (Has(entry, "mu")) return options;
  SLIMPS_ASSIGN_OR_RETURN(const size_t momentum, ChoiceOption(spec, "momentum", kMomenta, 0));
  options.momentum = static_cast<GradientMomentum>(momentum);
  SLIMPS_ASSIGN_OR_RETURN(options.mu, FloatOption(spec, "mu", FloatRange::kFactor, kDefaultMu));
  return options;
}

// Makes the codec of `spec`, which has no warm-up.
absl::StatusOr<std::unique_ptr<Codec>> MakeStep(const CodecEntry& entry, const CodecSpec& spec,
                                                const Kernels& kernels) {
  SLIMPS_ASSIGN_OR_RETURN(const GradientOptions options, ReadOptions(entry, spec));
  SLIMPS_ASSIGN_OR_RETURN(std::unique_ptr<Codec> codec,
                          entry.make(WithoutDecorators(entry, spec), kernels));
  if (options.momentum == GradientMomentum::kDgc &&
      (codec->format() != PayloadFormat::kSparse || !codec->wants_residual())) {
    return Refuse(spec, "momentum",
                  "dgc accumulates what was not sent and clears the momentum of what was: that is "
                  "for sparse codecs with error feedback; use nesterov");
  }
  if (!options.clip && options.momentum == GradientMomentum::kNone) return codec;
  return std::make_unique<GradientCodec>(spec, kernels, options, std::move(codec));
}

absl::StatusOr<std::unique_ptr<Codec>> MakeWarmup(const CodecEntry& entry, const CodecSpec& spec,
                                                  const Kernels& kernels) {
  SLIMPS_ASSIGN_OR_RETURN(const uint64_t rounds,
                          UintOption(spec, "warmup", 1, uint64_t{1} << 32, 1));
  CodecSpec step_spec = spec;
  step_spec.options.erase("warmup");
  SLIMPS_ASSIGN_OR_RETURN(std::unique_ptr<Codec> last, MakeStep(entry, step_spec, kernels));
  std::vector<std::unique_ptr<Codec>> steps;
  for (const std::string_view ratio : kWarmupRatios) {
    step_spec.options["ratio"] = ratio;
    SLIMPS_ASSIGN_OR_RETURN(std::unique_ptr<Codec> step, MakeStep(entry, step_spec, kernels));
    // A step that sends no more than the codec itself would warm nothing up.
    if (step->MaxPayloadBytes(kManyElements) <= last->MaxPayloadBytes(kManyElements)) break;
    steps.push_back(std::move(step));
  }
  steps.push_back(std::move(last));
  return std::make_unique<WarmupCodec>(spec, kernels, rounds, std::move(steps));
}

}  // namespace

bool IsDecoratorOption(const CodecEntry& entry, std::string_view option) {
  return !Has(entry, option) && std::ranges::find(kOptions, option) != std::end(kOptions);
}

std::vector<std::string_view> DecoratorOptions(const CodecEntry& entry) {
  std::vector<std::string_view> names;
  if (entry.options.empty() || entry.has_phases) return names;
  for (const std::string_view name : kOptions) {
    const bool refused = (name == "momentum" && Has(entry, "mu")) ||
                         (name == "warmup" && !Has(entry, "ratio")) ||
                         (name == "clip" && Has(entry, "mu")) ||
                         (name == "clip_workers" && (Has(entry, "clip") || Has(entry, "mu")));
    if (IsDecoratorOption(entry, name) && !refused) names.push_back(name);
  }
  return names;
}

absl::StatusOr<std::unique_ptr<Codec>> MakeDecorated(const CodecEntry& entry, const CodecSpec& spec,
                                                     const Kernels& kernels) {
  SLIMPS_RETURN_IF_ERROR(CheckSense(entry, spec));
  SLIMPS_RETURN_IF_ERROR(CheckClipping(entry, spec));
  if (spec.options.contains("warmup") && IsDecoratorOption(entry, "warmup")) {
    return MakeWarmup(entry, spec, kernels);
  }
  return MakeStep(entry, spec, kernels);
}

}  // namespace slimps
