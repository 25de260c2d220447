// SPDX-License-Identifier: Apache-2.0
// Answers a name that does not exist with the nearest one that does. Thread-safe: pure functions.
//
//   return UnknownName("codec", "1bits", names);
//   // unknown codec '1bits': did you mean '1bit'? Valid are none, 1bit, 2bit
#ifndef SLIMPS_COMPRESS_SPEC_NAMES_H_
#define SLIMPS_COMPRESS_SPEC_NAMES_H_

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace slimps {

// Characters of a name or value that are compared and shown: a peer may send a long one.
inline constexpr size_t kLongestShown = 64;

// Returns InvalidArgument: "unknown WHAT 'GOT': did you mean 'NEAREST'? Valid are A, B, C".
absl::Status UnknownName(const std::string& what, std::string_view got,
                         std::span<const std::string_view> valid);

// Returns how many insertions, deletions and replacements of one character turn `a` into `b`.
size_t EditDistance(std::string_view a, std::string_view b);

}  // namespace slimps

#endif  // SLIMPS_COMPRESS_SPEC_NAMES_H_
