// SPDX-License-Identifier: Apache-2.0
#include "compress/policy/controllers/codec_levels.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "compress/spec/names.h"
#include "compress/spec/option_reader.h"
#include "proto/base/status_macros.h"

namespace slimps {
namespace {

constexpr double kLevelsPerDecade = 8;
constexpr uint64_t kLargestRank = 1024;  // powersgd's

// A family's level: its option, its value unless given, and its values in a range.
struct Family {
  std::string_view codec;
  std::string_view option;
  double fallback = 0;
  double range = 0;  // levels reach from the smaller setting / range to the larger one * range
  std::string_view refused = "";  // an option that says the level in another way
};

constexpr std::array<Family, 3> kFamilies = {{
    {.codec = "qsgd", .option = "bits", .fallback = 4, .range = 2},
    {.codec = "topk", .option = "ratio", .fallback = 0.01, .range = 10, .refused = "k"},
    {.codec = "powersgd", .option = "rank", .fallback = 4, .range = 2},
}};

std::string Decimal(double value) { return absl::StrFormat("%.3g", value); }

// Returns all of the family's values in [low, high], rising.
std::vector<double> ValuesBetween(const Family& family, double low, double high) {
  std::vector<double> values;
  if (family.option == "bits") {
    for (const double bits : {2.0, 4.0, 8.0}) {
      if (low <= bits && bits <= high) values.push_back(bits);
    }
  } else if (family.option == "rank") {
    high = std::min(high, static_cast<double>(kLargestRank));
    for (double rank = std::max(1.0, std::ceil(low)); rank <= high; ++rank) values.push_back(rank);
  } else {
    const double steps = std::round(std::log10(high / low) * kLevelsPerDecade);
    for (double step = 0; step <= steps; ++step) {
      const double ratio = low * std::pow(high / low, step / std::max(steps, 1.0));
      if (ratio <= 1) values.push_back(ratio);
    }
  }
  return values;
}

absl::Status CheckLevel(const Family& family, const OptionReader& options, double value,
                        const std::string& text) {
  if (family.option == "bits" && value != 2 && value != 4 && value != 8) {
    return options.BadValue(std::string(family.option), "2, 4 or 8", text);
  }
  if (family.option == "ratio" && value > 1) {
    return options.BadValue(std::string(family.option), "a number over 0 and at most 1", text);
  }
  if (family.option == "rank" && (value != std::floor(value) || value > kLargestRank)) {
    return options.BadValue(std::string(family.option),
                            absl::StrCat("an integer from 1 to ", kLargestRank), text);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::pair<double, std::string>> ReadLevel(const std::string& owner,
                                                         const Family& family,
                                                         const SpecText& codec) {
  const OptionReader options(absl::StrCat(owner, ", codec ", codec.name), codec.options);
  const std::string option(family.option);
  if (!family.refused.empty() && codec.options.contains(std::string(family.refused))) {
    return absl::InvalidArgumentError(absl::StrCat(owner, ", codec ", codec.name,
                                                   ": levels are values of ", option, "; expected ",
                                                   option, ", got ", std::string(family.refused)));
  }
  const std::string text = options.Text(option, Decimal(family.fallback));
  SLIMPS_ASSIGN_OR_RETURN(const float value, options.Float(option, FloatRange::kPositive,
                                                           static_cast<float>(family.fallback)));
  SLIMPS_RETURN_IF_ERROR(CheckLevel(family, options, static_cast<double>(value), text));
  return std::pair(static_cast<double>(value), text);
}

}  // namespace

absl::StatusOr<SpecText> ParseInnerCodec(const std::string& owner, std::string_view text) {
  std::string outer(text);
  std::ranges::replace(outer, ';', ',');
  SLIMPS_ASSIGN_OR_RETURN(SpecText codec, ParseSpecText(absl::StrCat(owner, ": codec"), outer));
  if (codec.name.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(owner, ": expected a codec, got nothing"));
  }
  return codec;
}

std::string ToInnerCodec(const SpecText& codec) {
  std::string text = ToCodecSpec(codec);
  std::ranges::replace(text, ',', ';');
  return text;
}

absl::StatusOr<CodecLevels> CodecLevels::About(const std::string& owner, const SpecText& first,
                                               const SpecText& second) {
  const auto family = std::ranges::find(kFamilies, std::string_view(first.name), &Family::codec);
  if (family == kFamilies.end()) {
    std::vector<std::string_view> names;
    for (const Family& known : kFamilies) names.push_back(known.codec);
    return UnknownName(absl::StrCat("codec for ", owner), first.name, names);
  }
  CodecLevels levels;
  levels.option_ = std::string(family->option);
  SLIMPS_ASSIGN_OR_RETURN(auto first_level, ReadLevel(owner, *family, first));
  SLIMPS_ASSIGN_OR_RETURN(auto second_level, ReadLevel(owner, *family, second));
  levels.first_ = {first_level.first, std::move(first_level.second)};
  levels.second_ = {second_level.first, std::move(second_level.second)};
  levels.codec_ = first;
  levels.codec_.options.erase(levels.option_);
  SpecText other = second;
  other.options.erase(levels.option_);
  if (other.name != first.name || other.options != levels.codec_.options) {
    return absl::InvalidArgumentError(
        absl::StrCat(owner, ": expected two codecs that differ in ", levels.option_, " alone, got ",
                     ToInnerCodec(first), " and ", ToInnerCodec(second)));
  }
  const auto [low, high] = std::minmax(levels.first_.value, levels.second_.value);
  for (const double value : ValuesBetween(*family, low / family->range, high * family->range)) {
    levels.levels_.push_back({value, Decimal(value)});
  }
  // The settings themselves are levels, written as they were given.
  for (const Level& given : {levels.first_, levels.second_}) {
    std::erase_if(levels.levels_, [&](const Level& level) {
      return std::abs(level.value - given.value) <= 0.01 * given.value;
    });
    levels.levels_.push_back(given);
  }
  std::ranges::sort(levels.levels_, {}, &Level::value);
  return levels;
}

bool SuitsTensor(const SpecText& codec, const TensorInfo& tensor) {
  if (codec.name == "atomo") return tensor.rows > 1 && tensor.columns > 1;
  if (codec.name != "powersgd") return tensor.elements > 0;
  const auto rank = codec.options.find("rank");
  double value = 0;
  if (rank == codec.options.end() || !absl::SimpleAtod(rank->second, &value)) {
    value = std::ranges::find(kFamilies, "powersgd", &Family::codec)->fallback;
  }
  const auto rows = static_cast<double>(tensor.rows), columns = static_cast<double>(tensor.columns);
  return tensor.rows > 1 && 2 * value * (rows + columns) <= rows * columns;
}

bool CodecLevels::Suits(const TensorInfo& tensor, const Level& level) const {
  SpecText codec = codec_;
  codec.options[option_] = level.text;
  return SuitsTensor(codec, tensor);
}

std::string CodecLevels::SpecAt(const Level& level) const {
  SpecText codec = codec_;
  codec.options[option_] = level.text;
  // Two bits have a layout of their own, with one scale per 4096 elements.
  if (option_ == "bits" && level.value == 2) codec.options.erase("bucket");
  return ToCodecSpec(codec);
}

std::vector<std::string> CodecLevels::For(const TensorInfo& tensor) const {
  std::vector<std::string> specs;
  for (const Level& level : levels_) {
    if (Suits(tensor, level)) specs.push_back(SpecAt(level));
  }
  return specs;
}

std::string CodecLevels::Nearest(const TensorInfo& tensor, const Level& wanted) const {
  const Level* nearest = nullptr;
  for (const Level& level : levels_) {
    if (!Suits(tensor, level)) continue;
    if (nearest == nullptr ||
        std::abs(level.value - wanted.value) < std::abs(nearest->value - wanted.value)) {
      nearest = &level;
    }
  }
  return nearest == nullptr ? "none" : SpecAt(*nearest);
}

absl::Status CodecLevels::CheckSecondIsStronger(const std::string& owner) const {
  if (second_.value < first_.value) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(owner, ": high compresses more than low; expected ", option_,
                   " of high below that of low, ", first_.text, ", got ", second_.text));
}

std::string CodecLevels::ToString() const {
  return absl::StrCat(codec_.name, " with ", option_, " from ", levels_.front().text, " to ",
                      levels_.back().text);
}

}  // namespace slimps
