// Typed reading of a CodecSpec's options, with errors that say what would have been valid.
#ifndef SLIMPS_COMPRESS_CODEC_OPTIONS_H_
#define SLIMPS_COMPRESS_CODEC_OPTIONS_H_

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "compress/codec/codec.h"

namespace slimps {

// InvalidArgument: "unknown WHAT 'got': did you mean 'nearest'? (a, b, c)".
absl::Status UnknownName(const std::string& what, std::string_view got,
                         std::span<const std::string_view> valid);

// Single-character insertions, deletions and replacements from one to the other.
size_t EditDistance(std::string_view a, std::string_view b);

// Index in `choices` of the option's value; `fallback` where the option is not given.
[[nodiscard]] absl::StatusOr<size_t> ChoiceOption(const CodecSpec& spec, const std::string& option,
                                                  std::span<const std::string_view> choices,
                                                  size_t fallback);

// kPositive: over 0; kFactor: from 0 to below 1.
enum class FloatRange { kFinite, kPositive, kFactor };
// A decimal fp32 number; `fallback` where the option is not given.
[[nodiscard]] absl::StatusOr<float> FloatOption(const CodecSpec& spec, const std::string& option,
                                                FloatRange range, float fallback);

// A decimal integer in [smallest, largest]; `fallback` where the option is not given.
[[nodiscard]] absl::StatusOr<uint64_t> UintOption(const CodecSpec& spec, const std::string& option,
                                                  uint64_t smallest, uint64_t largest,
                                                  uint64_t fallback);

enum class ErrorFeedback { kOff, kOn };
// The option error_feedback=on|off.
[[nodiscard]] absl::StatusOr<ErrorFeedback> ErrorFeedbackOption(const CodecSpec& spec,
                                                                ErrorFeedback fallback);

}  // namespace slimps

#endif  // SLIMPS_COMPRESS_CODEC_OPTIONS_H_
