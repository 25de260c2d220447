// SPDX-License-Identifier: Apache-2.0
#include "tools/bench/codec/codec_settings.h"

#include <algorithm>
#include <string_view>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "compress/codec/catalogue/registry.h"
#include "compress/codec/options.h"
#include "proto/base/status_macros.h"

namespace slimps {
namespace {

// The usual settings that differ from a codec's defaults, and variants. Codecs that are not listed
// here are measured with their defaults.
const std::vector<CodecSetting>& KnownSettings() {
  constexpr ResidualStart kAged = ResidualStart::kAged;
  static const std::vector<CodecSetting> settings = {
      {.label = "1bit", .spec = "1bit"},
      {.label = "1bit+check", .spec = "1bit", .bounds = Bounds::kChecked},
      {.label = "1bit:scaling=two_mean", .spec = "1bit:scaling=two_mean"},
      {.label = "1bit:scaling=none", .spec = "1bit:scaling=none"},
      {.label = "2bit", .spec = "2bit"},
      {.label = "2bit+check", .spec = "2bit", .bounds = Bounds::kChecked},
      {.label = "qsgd", .spec = "qsgd:bits=4"},
      {.label = "dithering", .spec = "dithering"},
      {.label = "dithering:partition=natural", .spec = "dithering:partition=natural"},
      {.label = "topk", .spec = "topk:ratio=0.01", .residual = kAged},
      {.label = "topk:value=fp16", .spec = "topk:ratio=0.01,value=fp16", .residual = kAged},
      {.label = "randomk", .spec = "randomk:ratio=0.01", .residual = kAged},
      {.label = "mstopk", .spec = "mstopk:ratio=0.01", .residual = kAged},
      {.label = "redsync", .spec = "redsync:ratio=0.01", .residual = kAged},
      {.label = "threshold", .spec = "threshold:tau=10", .residual = kAged},  // sends about 1 %
      {.label = "adacomp", .spec = "adacomp", .residual = kAged},
      {.label = "local_selection", .spec = "local_selection", .residual = kAged},
      {.label = "dryden", .spec = "dryden", .residual = kAged},
      {.label = "dgc", .spec = "dgc:ratio=0.01", .residual = kAged},
  };
  return settings;
}

// Splits a list of specs at commas. Commas also separate a spec's options, so a part that has an
// option but no codec belongs to the part before it.
std::vector<std::string> SplitSpecs(const std::string& list) {
  std::vector<std::string> specs;
  for (const std::string& part : std::vector<std::string>(absl::StrSplit(list, ','))) {
    const bool option = part.find('=') != part.npos && part.find(':') == part.npos;
    if (option && !specs.empty()) {
      specs.back() += "," + part;
    } else {
      specs.push_back(part);
    }
  }
  return specs;
}

// Returns the codec's name, without its options.
std::string_view NameOf(const CodecSetting& setting) {
  return std::string_view(setting.spec).substr(0, setting.spec.find(':'));
}

std::vector<CodecSetting>::const_iterator Find(const std::vector<CodecSetting>& settings,
                                               std::string_view label) {
  return std::find_if(settings.begin(), settings.end(),
                      [&](const CodecSetting& setting) { return setting.label == label; });
}

}  // namespace

std::vector<CodecSetting> AllCodecSettings() {
  std::vector<CodecSetting> all;
  for (const CodecEntry& entry : AllCodecs()) {
    bool named = false;
    for (const CodecSetting& setting : KnownSettings()) {
      if (NameOf(setting) != entry.name) continue;
      named = true;
      all.push_back(setting);
    }
    if (!named) all.push_back({.label = std::string(entry.name), .spec = std::string(entry.name)});
  }
  return all;
}

absl::StatusOr<std::vector<CodecSetting>> ChooseCodecSettings(const std::string& list) {
  const std::vector<CodecSetting> all = AllCodecSettings();
  if (list.empty()) return all;
  std::vector<CodecSetting> chosen;
  for (const std::string& word : SplitSpecs(list)) {
    if (const auto found = Find(all, word); found != all.end()) {
      chosen.push_back(*found);
      continue;
    }
    if (word.find(':') == word.npos) {
      std::vector<std::string_view> labels;
      for (const CodecSetting& setting : all) labels.push_back(setting.label);
      return UnknownName("codec", word, labels);
    }
    SLIMPS_ASSIGN_OR_RETURN(const CodecSpec spec, ParseCodecSpec(word));
    SLIMPS_RETURN_IF_ERROR(slimps::MakeCodec(spec).status());
    // The spec starts from the same residual as the codec's usual setting.
    const auto usual = Find(all, spec.name);
    chosen.push_back({.label = word,
                      .spec = word,
                      .residual = usual == all.end() ? ResidualStart::kZero : usual->residual});
  }
  return chosen;
}

bool HasPhases(const CodecSetting& setting) {
  const std::string_view name = NameOf(setting);
  const std::vector<CodecEntry> all = AllCodecs();
  return std::any_of(all.begin(), all.end(), [&](const CodecEntry& entry) {
    return entry.name == name && entry.has_phases;
  });
}

bool HasLevels(const CodecSetting& setting) {
  const absl::StatusOr<CodecSpec> spec = ParseCodecSpec(setting.spec);
  return spec.ok() && spec->name == "topk" && spec->options.contains("ratio");
}

CodecSetting LowerLevel(const CodecSetting& setting, int times) {
  CodecSpec spec = *ParseCodecSpec(setting.spec);
  double ratio = 0;
  static_cast<void>(absl::SimpleAtod(spec.options["ratio"], &ratio));  // a valid setting's
  spec.options["ratio"] = absl::StrCat(std::min(1.0, times * ratio));
  CodecSetting lower = setting;
  lower.spec = spec.ToString();
  return lower;
}

absl::StatusOr<std::unique_ptr<Codec>> MakeCodec(const CodecSetting& setting,
                                                 const Kernels& kernels) {
  SLIMPS_ASSIGN_OR_RETURN(const CodecSpec spec, ParseCodecSpec(setting.spec));
  return MakeCodec(spec, kernels);
}

}  // namespace slimps
