// SPDX-License-Identifier: Apache-2.0
// How golden files hold frames.
#ifndef SLIMPS_TESTS_PROTO_GOLDEN_FILES_H_
#define SLIMPS_TESTS_PROTO_GOLDEN_FILES_H_

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "proto/frame.h"

namespace slimps {

// Writes a frame as one file: before each part its length, u32 little-endian.
std::string ToFileBytes(const Frame& frame);

// Reads such a file back. REQUIRES: ToFileBytes made `bytes`.
Frame FromFileBytes(const std::string& bytes);

// Returns a listing of sixteen bytes a line: offset, hex, text.
std::string HexListing(std::span<const std::byte> bytes);

std::vector<std::span<const std::byte>> Spans(const Frame& frame);

}  // namespace slimps

#endif  // SLIMPS_TESTS_PROTO_GOLDEN_FILES_H_
