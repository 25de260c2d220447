// SPDX-License-Identifier: Apache-2.0
// Puts items into the message that carries them: pushes, pulls, pushes with pulls, or inits. Pure;
// thread-safe.
#ifndef SLIMPS_WORKER_COURIER_ITEM_MESSAGE_H_
#define SLIMPS_WORKER_COURIER_ITEM_MESSAGE_H_

#include <cstdint>
#include <span>

#include "proto/net/transport.h"
#include "proto/slimps.pb.h"
#include "worker/courier/outgoing_item.h"

namespace slimps {

// Gives `message` the body that fits the items, and their payloads in the same order. An init body
// also gets `mode` and `staleness`.
// REQUIRES: pushes and pulls, or inits alone.
void PutItems(std::span<const OutgoingItem* const> items, wire::StoreMode mode, uint32_t staleness,
              Message* message);

}  // namespace slimps

#endif  // SLIMPS_WORKER_COURIER_ITEM_MESSAGE_H_
