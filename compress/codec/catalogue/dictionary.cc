// SPDX-License-Identifier: Apache-2.0
#include "compress/codec/catalogue/dictionary.h"

#include <algorithm>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "compress/codec/options.h"
#include "proto/base/status_macros.h"

namespace slimps {
namespace {

using Dictionary = std::map<std::string, std::string>;

constexpr std::string_view kPrefix = "byteps_";

constexpr std::string_view kMxnetKeys[] = {"type", "threshold"};

constexpr std::string_view kBytepsKeys[] = {"compressor_type",
                                            "compressor_onebit_scaling",
                                            "compressor_k",
                                            "ef_type",
                                            "momentum_type",
                                            "momentum_mu",
                                            "seed",
                                            "dithering_partition",
                                            "dithering_normalize"};
// The names that BytePS's trainer uses.
constexpr std::pair<std::string_view, std::string_view> kShortNames[] = {
    {"compressor", "compressor_type"},
    {"scaling", "compressor_onebit_scaling"},
    {"k", "compressor_k"},
    {"ef", "ef_type"},
    {"momentum", "momentum_type"},
    {"partition", "dithering_partition"},
    {"normalize", "dithering_normalize"},
};

absl::Status Bad(const std::string& what) {
  return absl::InvalidArgumentError(absl::StrCat("compression dictionary: ", what));
}

absl::Status CheckKey(const std::string& dialect, std::string_view key,
                      std::span<const std::string_view> valid) {
  if (std::ranges::find(valid, key) != valid.end()) return absl::OkStatus();
  return UnknownName(absl::StrCat("key of a ", dialect, " compression dictionary"), key, valid);
}

// Returns the value's place in `choices`; 0 if the key is not given.
absl::StatusOr<size_t> Choose(const Dictionary& dictionary, const std::string& key,
                              std::span<const std::string_view> choices) {
  const auto given = dictionary.find(key);
  if (given == dictionary.end()) return 0;
  const auto choice = std::ranges::find(choices, given->second);
  if (choice != choices.end()) return static_cast<size_t>(choice - choices.begin());
  return UnknownName(absl::StrCat("value of ", key, " in a compression dictionary"), given->second,
                     choices);
}

absl::StatusOr<DictionaryCodec> FromMxnet(const Dictionary& dictionary) {
  for (const auto& [key, value] : dictionary) {
    SLIMPS_RETURN_IF_ERROR(CheckKey("MXNet", key, kMxnetKeys));
  }
  static constexpr std::string_view kTypes[] = {"1bit", "2bit"};
  SLIMPS_ASSIGN_OR_RETURN(const size_t type, Choose(dictionary, "type", kTypes));
  DictionaryCodec codec{.spec = {.name = std::string(kTypes[type]), .options = {}},
                        .every_key = true};
  if (type == 0) codec.spec.options["scaling"] = "none";
  const auto threshold = dictionary.find("threshold");
  codec.spec.options["threshold"] = threshold == dictionary.end() ? "0.5" : threshold->second;
  return codec;
}

// Returns the dictionary with full names, without prefix.
absl::StatusOr<Dictionary> BytepsNames(const Dictionary& dictionary) {
  Dictionary named;
  for (const auto& [key, value] : dictionary) {
    std::string_view name = key;
    if (name.starts_with(kPrefix)) name.remove_prefix(kPrefix.size());
    for (const auto& [short_name, full] : kShortNames) {
      if (name == short_name) name = full;
    }
    SLIMPS_RETURN_IF_ERROR(CheckKey("BytePS", name, kBytepsKeys));
    if (!named.emplace(name, value).second) {
      return Bad(absl::StrCat(std::string(name), " is given twice"));
    }
  }
  return named;
}

// Checks the keys that only some compressors take.
absl::Status CheckCompressorsKeys(const Dictionary& byteps, std::string_view compressor) {
  static constexpr std::pair<std::string_view, std::string_view> kOwn[] = {
      {"compressor_onebit_scaling", "onebit"}, {"compressor_k", "topk randomk dithering"},
      {"seed", "randomk dithering"},           {"dithering_partition", "dithering"},
      {"dithering_normalize", "dithering"},
  };
  for (const auto& [key, compressors] : kOwn) {
    if (!byteps.contains(std::string(key)) ||
        compressors.find(compressor) != std::string_view::npos) {
      continue;
    }
    return Bad(absl::StrCat(std::string(key), " goes with ", std::string(compressors),
                            ", got compressor_type ", std::string(compressor)));
  }
  if (compressor != "onebit" && !byteps.contains("compressor_k")) {
    return Bad(absl::StrCat(std::string(compressor), " needs compressor_k"));
  }
  return absl::OkStatus();
}

absl::Status AddMomentum(const Dictionary& byteps, CodecSpec& spec) {
  static constexpr std::string_view kTypes[] = {"nesterov"};
  SLIMPS_RETURN_IF_ERROR(Choose(byteps, "momentum_type", kTypes).status());
  const auto mu = byteps.find("momentum_mu");
  if (byteps.contains("momentum_type") != (mu != byteps.end())) {
    return Bad("momentum_type and momentum_mu go together, got only one of them");
  }
  if (mu == byteps.end()) return absl::OkStatus();
  spec.options["momentum"] = "nesterov";
  spec.options["mu"] = mu->second;
  return absl::OkStatus();
}

absl::Status AddDithering(const Dictionary& byteps, CodecSpec& spec) {
  // The spellings of one choice have places that differ by 2.
  static constexpr std::string_view kPartitions[] = {"linear", "natural", "0", "1"};
  static constexpr std::string_view kNorms[] = {"max", "l2", "0", "1"};
  SLIMPS_ASSIGN_OR_RETURN(const size_t partition,
                          Choose(byteps, "dithering_partition", kPartitions));
  SLIMPS_ASSIGN_OR_RETURN(const size_t norm, Choose(byteps, "dithering_normalize", kNorms));
  spec.options["partition"] = kPartitions[partition % 2];
  spec.options["normalize"] = kNorms[norm % 2];
  return absl::OkStatus();
}

absl::Status AddOneBit(const Dictionary& byteps, CodecSpec& spec) {
  // The spellings of "true" have the odd places.
  static constexpr std::string_view kScalings[] = {"false", "true", "False", "True", "0", "1"};
  SLIMPS_ASSIGN_OR_RETURN(const size_t scaling,
                          Choose(byteps, "compressor_onebit_scaling", kScalings));
  spec.options["scaling"] = scaling % 2 == 1 ? "l1" : "none";
  return absl::OkStatus();
}

absl::StatusOr<DictionaryCodec> FromByteps(const Dictionary& dictionary) {
  SLIMPS_ASSIGN_OR_RETURN(const Dictionary byteps, BytepsNames(dictionary));
  static constexpr std::string_view kCompressors[] = {"onebit", "topk", "randomk", "dithering"};
  SLIMPS_ASSIGN_OR_RETURN(const size_t type, Choose(byteps, "compressor_type", kCompressors));
  const std::string_view compressor = kCompressors[type];
  SLIMPS_RETURN_IF_ERROR(CheckCompressorsKeys(byteps, compressor));
  static constexpr std::string_view kFeedback[] = {"vanilla"};
  SLIMPS_RETURN_IF_ERROR(Choose(byteps, "ef_type", kFeedback).status());
  const bool feedback = byteps.contains("ef_type");

  DictionaryCodec codec;
  CodecSpec& spec = codec.spec;
  spec.name = compressor == "onebit" ? "1bit" : compressor;
  spec.options["error_feedback"] = feedback ? "on" : "off";
  if (compressor == "onebit") SLIMPS_RETURN_IF_ERROR(AddOneBit(byteps, spec));
  if (compressor == "dithering") SLIMPS_RETURN_IF_ERROR(AddDithering(byteps, spec));
  if (compressor == "randomk") spec.options["scaled"] = feedback ? "off" : "on";
  if (const auto k = byteps.find("compressor_k"); k != byteps.end()) spec.options["k"] = k->second;
  if (const auto seed = byteps.find("seed"); seed != byteps.end()) {
    if (seed->second == "0") return Bad("seed: expected a number over 0, got '0'");
    spec.options["seed"] = seed->second;
  }
  SLIMPS_RETURN_IF_ERROR(AddMomentum(byteps, spec));
  return codec;
}

}  // namespace

absl::StatusOr<DictionaryCodec> CodecSpecFromDictionary(const Dictionary& dictionary) {
  const bool byteps = std::ranges::any_of(dictionary, [](const auto& entry) {
    std::string_view key = entry.first;
    if (key.starts_with(kPrefix)) key.remove_prefix(kPrefix.size());
    return key == "compressor_type" || key == "compressor";
  });
  if (!byteps && !dictionary.contains("type")) {
    // It is neither dialect: a misspelt key may be why, so name the nearest of both.
    std::vector<std::string_view> known(std::begin(kMxnetKeys), std::end(kMxnetKeys));
    known.insert(known.end(), std::begin(kBytepsKeys), std::end(kBytepsKeys));
    for (const auto& [key, value] : dictionary) {
      std::string_view name = key;
      if (name.starts_with(kPrefix)) name.remove_prefix(kPrefix.size());
      if (std::ranges::find(known, name) == known.end()) {
        return UnknownName("key of a compression dictionary", key, known);
      }
    }
    return Bad("expected a key type (MXNet's) or compressor_type (BytePS's)");
  }
  SLIMPS_ASSIGN_OR_RETURN(DictionaryCodec codec,
                          byteps ? FromByteps(dictionary) : FromMxnet(dictionary));
  // The codec itself checks its options' ranges.
  if (const auto made = MakeCodec(codec.spec); !made.ok()) {
    return Bad(absl::StrCat(codec.spec.ToString(), ": ", made.status().message()));
  }
  return codec;
}

}  // namespace slimps
