// SPDX-License-Identifier: Apache-2.0
// ServerService: what workers say at their start. First values, the optimizer's state, and
// questions where partitions stand.
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/base/status_copy.h"
#include "proto/base/status_macros.h"
#include "proto/partition_limits.h"
#include "server/service/server_service.h"

namespace slimps {

absl::StatusOr<size_t> ServerService::DeclareInit(const Origin& origin, const wire::Init& init,
                                                  const wire::InitItem& item, PartitionSpec* spec) {
  const wire::StoreMode mode = init.mode();
  if (origin.worker != 0) {
    return absl::PermissionDeniedError(
        absl::StrCat("only worker 0 initialises keys, not worker ", origin.worker));
  }
  if (mode_.value_or(mode) != mode) {
    return absl::FailedPreconditionError(absl::StrCat("the store is ", wire::StoreMode_Name(*mode_),
                                                      ", not ", wire::StoreMode_Name(mode)));
  }
  if (staleness_.value_or(init.staleness()) != init.staleness()) {
    return absl::FailedPreconditionError(
        absl::StrCat("the store has staleness ", *staleness_, ", not ", init.staleness()));
  }
  if (item.auxiliary() && mode != wire::DIST_SYNC) {
    return absl::InvalidArgumentError(absl::StrCat("an auxiliary key in a store of mode ",
                                                   wire::StoreMode_Name(mode),
                                                   ", expected DIST_SYNC: others have no rounds"));
  }
  SLIMPS_ASSIGN_OR_RETURN(const size_t shard, directory_.Declare(item, spec));
  spec->mode = mode;
  spec->staleness = init.staleness();
  staleness_ = init.staleness();
  spec->num_workers = options_.num_workers;
  spec->rounds_ahead = options_.snapshots.has_value() ? kReplayedRoundsAhead : kRoundsAhead;
  spec->waiting = waiting_;
  mode_ = mode;
  return shard;
}

absl::StatusOr<size_t> ServerService::FindInitialised(const wire::InitItem& item) const {
  const std::optional<size_t> shard =
      directory_.FindShard({.key = item.id().key(), .index = item.id().partition()});
  if (shard.has_value()) return *shard;
  return absl::NotFoundError("asked where it stands, but it was never initialised");
}

void ServerService::HandleInit(Request& request) {
  const wire::Init& init = request.message.header.init();
  for (const wire::InitItem& item : init.items()) {
    absl::StatusOr<Payload> payload = request.TakePayload(item.payload_bytes());
    const absl::StatusOr<PayloadFormat> format = FormatFromWire(item.format());
    absl::Status status = payload.status();
    status.Update(format.status());
    const bool asks = item.format() == wire::ABSENT && !item.has_state();
    PartitionSpec spec;
    const absl::StatusOr<size_t> shard = !status.ok() ? absl::StatusOr<size_t>(status)
                                         : asks       ? FindInitialised(item)
                                                : DeclareInit(request.origin, init, item, &spec);
    if (!shard.ok()) {
      status = Prefixed(
          shard.status(),
          absl::StrCat("init of ", DescribePartition(item.info().name(), item.id().partition())));
      request.refused.AddInit(request.origin, item.id(), status);
      continue;
    }
    request.by_shard[*shard].inits.push_back(
        {.id = item.id(),
         .asks_standing = asks,
         .spec = std::move(spec),
         .value = {.format = *format,
                   .payload = *std::move(payload),
                   .checksum = item.payload_hash()},
         .state = item.has_state() ? std::optional(item.state()) : std::nullopt});
  }
}

}  // namespace slimps
