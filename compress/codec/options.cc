// SPDX-License-Identifier: Apache-2.0
#include "compress/codec/options.h"

#include "absl/strings/str_cat.h"
#include "proto/base/status_macros.h"

namespace slimps {
namespace {

OptionReader ReaderOf(const CodecSpec& spec) {
  return OptionReader(absl::StrCat("codec ", spec.name), spec.options);
}

}  // namespace

absl::StatusOr<size_t> ChoiceOption(const CodecSpec& spec, const std::string& option,
                                    std::span<const std::string_view> choices, size_t fallback) {
  return ReaderOf(spec).Choice(option, choices, fallback);
}

absl::StatusOr<float> FloatOption(const CodecSpec& spec, const std::string& option,
                                  FloatRange range, float fallback) {
  return ReaderOf(spec).Float(option, range, fallback);
}

absl::StatusOr<uint64_t> UintOption(const CodecSpec& spec, const std::string& option,
                                    uint64_t smallest, uint64_t largest, uint64_t fallback) {
  return ReaderOf(spec).Uint(option, smallest, largest, fallback);
}

absl::StatusOr<ErrorFeedback> ErrorFeedbackOption(const CodecSpec& spec, ErrorFeedback fallback) {
  static constexpr std::string_view kChoices[] = {"off", "on"};
  SLIMPS_ASSIGN_OR_RETURN(
      const size_t choice,
      ChoiceOption(spec, "error_feedback", kChoices, fallback == ErrorFeedback::kOn ? 1 : 0));
  return choice == 1 ? ErrorFeedback::kOn : ErrorFeedback::kOff;
}

}  // namespace slimps
