// SPDX-License-Identifier: Apache-2.0
// What cannot go together, and why. A store refuses it before it sends anything, so that nobody has
// to find out from how a model trains.
//
//   SLIMPS_RETURN_IF_ERROR(
//       CheckCombination({.codec = codec, .mode = wire::DIST_ASYNC, .backup_model = true}));
//
// Everything else works: any codec, fp32 or half precision; dist_sync with or without an optimizer;
// dist_async and dist_ssp with one; tensors cut into partitions or whole; with or without the
// backup model; pulls compressed or not. Pure; thread-safe.
#ifndef SLIMPS_WORKER_COMBINATION_H_
#define SLIMPS_WORKER_COMBINATION_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "compress/codec/codec.h"
#include "proto/slimps.pb.h"

namespace slimps {

struct Combination {
  const Codec* codec = nullptr;           // nullptr: no compression
  const Codec* pull_codec = nullptr;      // what pulls carry; nullptr: weights in full precision
  std::string_view policy = "threshold";  // what decides the pushes' codecs
  wire::StoreMode mode = wire::DIST_SYNC;
  uint32_t staleness = 0;
  uint64_t remeasure_every = 0;
  // nullopt: not set yet, or not by this worker. Kind NONE: the store keeps sums. Any other kind:
  // the servers step.
  std::optional<wire::OptimizerSpec> optimizer;
  bool backup_model = false;
};

// Returns "dist_sync", "dist_async" or "dist_ssp".
const char* StoreModeName(wire::StoreMode mode);

// Returns the mode of that name; nullopt: there is none. "dist_device_sync" is dist_sync.
std::optional<wire::StoreMode> FindStoreMode(std::string_view type);

// InvalidArgument: says what does not go with what, and why.
[[nodiscard]] absl::Status CheckCombination(const Combination& combination);

// Checks that servers can clip the workers' mean gradient by its norm in a store of this type.
// `codec` null: no compression.
// InvalidArgument: says what does not go with what, and why.
[[nodiscard]] absl::Status CheckClipping(std::string_view type,
                                         const wire::OptimizerSpec& optimizer, const Codec* codec);

// Returns what is questionable about a combination that works, with what to do instead; "" if
// nothing is.
std::string WarningOf(const Combination& combination);

// Returns the factor for weight decay where `codec` applies the momentum in place of `optimizer`
// (nullopt: SGD). Momentum SGD passes the decay through its momentum too, so that 1 / (1 - mu)
// times as much of it takes effect over the steps that follow. An optimizer behind the codec's
// momentum applies the decay once, and the factor makes up for that. 1: the codec has no momentum,
// or the optimizer is not SGD.
double DecayFactor(const Codec& codec, const std::optional<wire::OptimizerSpec>& optimizer);

}  // namespace slimps

#endif  // SLIMPS_WORKER_COMBINATION_H_
