// SPDX-License-Identifier: Apache-2.0
// One message that ServerService has admitted. It takes the message's payloads in the order of its
// items, and has the items sorted by shard.
#ifndef SLIMPS_SERVER_SERVICE_REQUEST_H_
#define SLIMPS_SERVER_SERVICE_REQUEST_H_

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "proto/net/transport.h"
#include "server/shard/reply_outbox.h"
#include "server/shard/shard_state.h"

namespace slimps {

// Thread-compatible.
struct Request {
  Request(PeerId from, Message received, size_t shards)
      : message(std::move(received)),
        origin{.peer = from,
               .worker = message.header.sender().rank(),
               .request_id = message.header.request_id()},
        by_shard(shards) {}

  // Checks the size again: an in-process transport may not have compared items with frames.
  absl::StatusOr<Payload> TakePayload(uint64_t declared_bytes) {
    if (declared_bytes == 0) return Payload();
    if (next_payload >= message.payloads.size()) {
      return absl::InvalidArgumentError("the message has fewer payload frames than its items say");
    }
    Payload payload = std::move(message.payloads[next_payload++]);
    if (payload.size() == declared_bytes) return payload;
    return absl::DataLossError(absl::StrCat("a payload of ", declared_bytes,
                                            " bytes was declared, ", payload.size(), " came"));
  }

  Message message;
  Origin origin;
  size_t next_payload = 0;
  std::vector<ShardItems> by_shard;
  ReplyOutbox refused;
};

}  // namespace slimps

#endif  // SLIMPS_SERVER_SERVICE_REQUEST_H_
