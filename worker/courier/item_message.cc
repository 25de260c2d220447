// SPDX-License-Identifier: Apache-2.0
#include "worker/courier/item_message.h"

#include <variant>

#include "proto/header_body.h"

namespace slimps {

void PutItems(std::span<const OutgoingItem* const> items, wire::StoreMode mode, uint32_t staleness,
              Message* message) {
  bool pushes = false, pulls = false;
  for (const OutgoingItem* out : items) {
    pushes |= out->is<wire::PushItem>();
    pulls |= out->is<wire::PullItem>();
    if (!out->payload.empty()) message->payloads.push_back(out->payload);
  }
  wire::Header& header = message->header;
  GiveBody(pushes && pulls ? wire::Header::kPushPull
           : pushes        ? wire::Header::kPush
           : pulls         ? wire::Header::kPull
                           : wire::Header::kInit,
           &header);
  for (const OutgoingItem* out : items) {
    if (const auto* push = std::get_if<wire::PushItem>(&out->item)) {
      *(pulls ? header.mutable_push_pull()->add_push() : header.mutable_push()->add_items()) =
          *push;
    } else if (const auto* pull = std::get_if<wire::PullItem>(&out->item)) {
      *(pushes ? header.mutable_push_pull()->add_pull() : header.mutable_pull()->add_items()) =
          *pull;
    } else {
      header.mutable_init()->set_mode(mode);
      header.mutable_init()->set_staleness(staleness);
      *header.mutable_init()->add_items() = std::get<wire::InitItem>(out->item);
    }
  }
}

}  // namespace slimps
