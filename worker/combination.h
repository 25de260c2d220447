// What cannot go together, and why. Refused before anything is sent, so that nobody finds out from how a model trains.
//
//   SLIMPS_RETURN_IF_ERROR(CheckCombination({.codec = codec, .mode = wire::DIST_ASYNC, .backup_model = true}));
//
// Everything else works: any codec, fp32 or half precision, synchronous with or without an optimizer, asynchronous or with
// bounded staleness with one, cut into partitions or whole, with or without the backup model, pulls compressed or not.
#ifndef SLIMPS_WORKER_COMBINATION_H_
#define SLIMPS_WORKER_COMBINATION_H_

#include <optional>
#include <string_view>

#include "absl/status/status.h"
#include "compress/codec/codec.h"
#include "proto/slimps.pb.h"

namespace slimps {

struct Combination {
  const Codec* codec = nullptr;       // nullptr: no compression
  const Codec* pull_codec = nullptr;  // what pulls carry; nullptr: weights in full precision
  wire::StoreMode mode = wire::DIST_SYNC;
  // nullopt: not set yet, or not by this worker. Of kind NONE the store keeps sums; else the servers step.
  std::optional<wire::OptimizerSpec> optimizer;
  bool backup_model = false;
};

// "dist_sync", "dist_async", "dist_ssp".
const char* StoreModeName(wire::StoreMode mode);
// nullopt: no mode of that name. "dist_device_sync" is dist_sync.
std::optional<wire::StoreMode> FindStoreMode(std::string_view type);

// InvalidArgument: says what does not go with what, and the reason.
[[nodiscard]] absl::Status CheckCombination(const Combination& combination);

// What weight decay is multiplied by where `codec` has the momentum that `optimizer` (nullopt: SGD) lacks. Momentum SGD puts
// the decay through its momentum too, and 1 / (1 - mu) times as much comes of it over the steps that follow; an optimizer
// behind the codec's momentum takes it once, so it takes that much at once. 1: no momentum, or no SGD.
double DecayFactor(const Codec& codec, const std::optional<wire::OptimizerSpec>& optimizer);

}  // namespace slimps

#endif  // SLIMPS_WORKER_COMBINATION_H_
