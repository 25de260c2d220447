// SPDX-License-Identifier: Apache-2.0
// How many elements a key's shape declares. Scheduler and servers count alike. Pure; thread-safe.
#ifndef SLIMPS_PROTO_ELEMENT_COUNT_H_
#define SLIMPS_PROTO_ELEMENT_COUNT_H_

#include <cstdint>
#include <optional>

#include "proto/slimps.pb.h"

namespace slimps {

// Returns the product of the dimensions, or nullopt if one is negative or it exceeds `limit`.
std::optional<uint64_t> ElementCount(const wire::KeyInfo& info, uint64_t limit);

}  // namespace slimps

#endif  // SLIMPS_PROTO_ELEMENT_COUNT_H_
