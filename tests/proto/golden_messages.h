// SPDX-License-Identifier: Apache-2.0
// One message per verb, fixed for ever. The golden files hold these messages.
#ifndef SLIMPS_TESTS_PROTO_GOLDEN_MESSAGES_H_
#define SLIMPS_TESTS_PROTO_GOLDEN_MESSAGES_H_

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

// Returns the contents of "golden_listing.txt": all messages, part by part.
std::string GoldenListing();

Payload FloatPayload(const std::vector<float>& values);

}  // namespace slimps

#endif  // SLIMPS_TESTS_PROTO_GOLDEN_MESSAGES_H_
