// SPDX-License-Identifier: Apache-2.0
// Reads a CodecSpec's options as typed values. Errors say what would have been valid. Thread-safe:
// all are pure functions.
//
//   SLIMPS_ASSIGN_OR_RETURN(const float mu, FloatOption(spec, "mu", FloatRange::kFactor, 0.9f));
//   SLIMPS_ASSIGN_OR_RETURN(const uint64_t passes, UintOption(spec, "passes", 0, 64, 30));
#ifndef SLIMPS_COMPRESS_CODEC_OPTIONS_H_
#define SLIMPS_COMPRESS_CODEC_OPTIONS_H_

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "compress/codec/codec.h"
#include "compress/spec/names.h"          // IWYU pragma: export
#include "compress/spec/option_reader.h"  // IWYU pragma: export

namespace slimps {

// Returns the index in `choices` of the option's value, or `fallback` if the option is not given.
// InvalidArgument: the value is not in `choices`.
[[nodiscard]] absl::StatusOr<size_t> ChoiceOption(const CodecSpec& spec, const std::string& option,
                                                  std::span<const std::string_view> choices,
                                                  size_t fallback);

// Returns the option's value, a decimal fp32 number, or `fallback` if the option is not given.
// InvalidArgument: the value is no finite number, or it is out of `range`.
[[nodiscard]] absl::StatusOr<float> FloatOption(const CodecSpec& spec, const std::string& option,
                                                FloatRange range, float fallback);

// Returns the option's value, a decimal integer in [smallest, largest], or `fallback` if the option
// is not given.
// InvalidArgument: the value is no integer, or it is out of that range.
[[nodiscard]] absl::StatusOr<uint64_t> UintOption(const CodecSpec& spec, const std::string& option,
                                                  uint64_t smallest, uint64_t largest,
                                                  uint64_t fallback);

enum class ErrorFeedback { kOff, kOn };

// Returns the option error_feedback=on|off, or `fallback` if it is not given.
// InvalidArgument: another value.
[[nodiscard]] absl::StatusOr<ErrorFeedback> ErrorFeedbackOption(const CodecSpec& spec,
                                                                ErrorFeedback fallback);

}  // namespace slimps

#endif  // SLIMPS_COMPRESS_CODEC_OPTIONS_H_
