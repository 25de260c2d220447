// SPDX-License-Identifier: Apache-2.0
// Reads options as typed values. Errors say what would have been valid.
//
//   const OptionReader options("policy gravac", spec.options);
//   SLIMPS_ASSIGN_OR_RETURN(const uint64_t window, options.Uint("window", 1, 1'000'000, 500));
#ifndef SLIMPS_COMPRESS_SPEC_OPTION_READER_H_
#define SLIMPS_COMPRESS_SPEC_OPTION_READER_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace slimps {

// kPositive: over 0. kFactor: at least 0 and below 1.
enum class FloatRange { kFinite, kPositive, kFactor };

// Thread-compatible. Each method returns `fallback` if the option is not given.
class OptionReader final {
 public:
  // `owner`: whose options they are, for errors ("codec topk"). `options` outlives the reader.
  OptionReader(std::string owner, const std::map<std::string, std::string>& options)
      : owner_(std::move(owner)), options_(options) {}

  // InvalidArgument: an option is not in `valid` (the message gives the nearest one that is).
  [[nodiscard]] absl::Status CheckNames(std::span<const std::string_view> valid) const;

  // Returns the index in `choices` of the option's value.
  // InvalidArgument: the value is not in `choices`.
  [[nodiscard]] absl::StatusOr<size_t> Choice(const std::string& option,
                                              std::span<const std::string_view> choices,
                                              size_t fallback) const;

  // Returns the option's value, a decimal fp32 number.
  // InvalidArgument: the value is no finite number, or it is out of `range`.
  [[nodiscard]] absl::StatusOr<float> Float(const std::string& option, FloatRange range,
                                            float fallback) const;

  // Returns the option's value, a decimal integer in [smallest, largest].
  // InvalidArgument: the value is no integer, or it is out of that range.
  [[nodiscard]] absl::StatusOr<uint64_t> Uint(const std::string& option, uint64_t smallest,
                                              uint64_t largest, uint64_t fallback) const;

  // Returns the option's value as written.
  std::string Text(const std::string& option, std::string_view fallback) const;

  // Returns InvalidArgument: "OWNER, option OPTION: expected EXPECTED, got 'GOT'".
  absl::Status BadValue(const std::string& option, const std::string& expected,
                        std::string_view got) const;

 private:
  const std::string* Find(const std::string& option) const;

  const std::string owner_;
  const std::map<std::string, std::string>& options_;
};

}  // namespace slimps

#endif  // SLIMPS_COMPRESS_SPEC_OPTION_READER_H_
