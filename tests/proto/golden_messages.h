// SPDX-License-Identifier: Apache-2.0
// One message per verb, fixed for ever. The golden files hold these messages.
#ifndef SLIMPS_TESTS_PROTO_GOLDEN_MESSAGES_H_
#define SLIMPS_TESTS_PROTO_GOLDEN_MESSAGES_H_

#include <span>
#include <string>
#include <vector>

#include "proto/frame.h"

namespace slimps {

struct GoldenMessage {
  std::string name;  // the verb's
  Message message;
};

std::vector<GoldenMessage> GoldenMessages();

// The worked example of proto/README.md.
Message ReadmeExample();

// Writes a frame as one file: before each part its length, u32 little-endian.
std::string ToFileBytes(const Frame& frame);

// Reads such a file back. REQUIRES: ToFileBytes made `bytes`.
Frame FromFileBytes(const std::string& bytes);

// Returns a listing of sixteen bytes a line: offset, hex, text.
std::string HexListing(std::span<const std::byte> bytes);

// Returns the contents of "golden_listing.txt": all messages, part by part.
std::string GoldenListing();

std::vector<std::span<const std::byte>> Spans(const Frame& frame);
Payload FloatPayload(const std::vector<float>& values);

}  // namespace slimps

#endif  // SLIMPS_TESTS_PROTO_GOLDEN_MESSAGES_H_
