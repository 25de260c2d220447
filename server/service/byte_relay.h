// SPDX-License-Identifier: Apache-2.0
// ByteRelay: holds a chunk of bytes that worker 0 gives to other workers until all of them have it.
//
//   for (Reply& reply : relay.Handle(origin, request, std::move(payload))) Send(std::move(reply));
//
//   worker 0                        server                        each other worker
//   Relay(chunk 0, bytes) ------->  holds chunk 0
//                                   <--------------------  Relay(chunk 0)
//                                   chunk 0 ------------>
//                                   <--------------------  Relay(chunk 1): it has chunk 0
//   <------------------------- Ack  forgets chunk 0
//                                   <--------------------  Relay(end): it has all chunks
//                                   Ack ---------------->  once all have sent their `end`
//
// Worker 0 repeats a chunk until its Ack comes. Each other worker repeats its last message until it
// is answered. A server that was started again learns from them which chunk is given and which
// workers have it. For this an `end` is answered late, because its worker then repeats it no more.
// Holds one chunk at most. Pure. Owned by ServerService's I/O thread.
#ifndef SLIMPS_SERVER_SERVICE_BYTE_RELAY_H_
#define SLIMPS_SERVER_SERVICE_BYTE_RELAY_H_

#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <vector>

#include "proto/base/buffer.h"
#include "proto/slimps.pb.h"
#include "server/shard/pull_queue.h"
#include "server/shard/reply_outbox.h"

namespace slimps {

class ByteRelay final {
 public:
  // Handles a worker's message. Returns the answers to it and to others that waited for it. A
  // message that a later one of its sender has overtaken is dropped. An error is an Ack with
  // PermissionDenied: another worker than 0 sent bytes;
  // InvalidArgument: worker 0 sent none.
  [[nodiscard]] std::vector<Reply> Handle(const Origin& from, const wire::Relay& request,
                                          Payload payload);

 private:
  static constexpr uint64_t kEnd = std::numeric_limits<uint64_t>::max();

  // What a worker has asked for last: it has all chunks before.
  struct Wish {
    uint64_t broadcast = 0;
    uint64_t chunk = 0;             // kEnd: it has all
    std::optional<Origin> waiting;  // not answered yet
  };

  void Hold(const Origin& from, const wire::Relay& request, Payload payload);
  void Ask(const Origin& from, const wire::Relay& request);

  wire::Relay given_;  // by worker 0, the newest
  Payload payload_;    // of it; empty: all takers have it
  std::optional<Origin> giver_;
  std::map<uint32_t, Wish> wishes_;  // by worker
};

}  // namespace slimps

#endif  // SLIMPS_SERVER_SERVICE_BYTE_RELAY_H_
