// One message per verb, fixed for ever: what the golden files hold.
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

// A frame as one file: each part behind its length, u32 little-endian.
std::string ToFileBytes(const Frame& frame);
// The inverse. REQUIRES: made by ToFileBytes.
Frame FromFileBytes(const std::string& bytes);

// Sixteen bytes a line: offset, hex, text.
std::string HexListing(std::span<const std::byte> bytes);

// "golden/listing.txt": all messages, part by part.
std::string GoldenListing();

std::vector<std::span<const std::byte>> Spans(const Frame& frame);
Payload FloatPayload(const std::vector<float>& values);

}  // namespace slimps

#endif  // SLIMPS_TESTS_PROTO_GOLDEN_MESSAGES_H_
