// SPDX-License-Identifier: Apache-2.0
#include "compress/policy/controllers/policies.h"

#include "absl/strings/str_cat.h"

namespace slimps {
namespace {

constexpr uint64_t kMostRounds = 1'000'000;
constexpr uint64_t kMostElements = uint64_t{1} << 40;
constexpr uint64_t kMinElements = 256;

}  // namespace

std::string OwnerOf(const SpecText& spec) { return absl::StrCat("policy ", spec.name); }

absl::StatusOr<SpecText> InnerCodecOption(const SpecText& spec, const std::string& option,
                                          std::string_view fallback) {
  const OptionReader options(OwnerOf(spec), spec.options);
  return ParseInnerCodec(absl::StrCat(OwnerOf(spec), ", option ", option),
                         options.Text(option, fallback));
}

absl::StatusOr<uint64_t> EveryOption(const SpecText& spec, uint64_t fallback) {
  return OptionReader(OwnerOf(spec), spec.options).Uint("every", 1, kMostRounds, fallback);
}

absl::StatusOr<uint64_t> MinElementsOption(const SpecText& spec) {
  return OptionReader(OwnerOf(spec), spec.options)
      .Uint("min_elements", 0, kMostElements, kMinElements);
}

}  // namespace slimps
