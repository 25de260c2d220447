// SPDX-License-Identifier: Apache-2.0
#include "server/service/parked_messages.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "proto/base/clock.h"

namespace slimps {
namespace {

// Counts memory, not wire bytes: a header of many empty items takes far more memory than it did on
// the wire.
size_t BytesOf(const EarlyMessage& early) {
  size_t bytes = early.message.header.SpaceUsedLong();
  for (const Payload& payload : early.message.payloads) bytes += payload.size();
  return bytes;
}

}  // namespace

absl::Status ParkedMessages::Add(EarlyMessage&& early) {
  const size_t bytes = BytesOf(early);
  size_t of_peer = 0, of_all = 0;
  for (const EarlyMessage& waiting : messages_) {
    of_all += BytesOf(waiting);
    if (waiting.from == early.from) of_peer += BytesOf(waiting);
  }
  if (messages_.size() >= kMaxMessages || bytes > kMaxBytes - of_all ||
      bytes > kMaxBytesOfPeer - of_peer) {
    return absl::ResourceExhaustedError(
        absl::StrCat(messages_.size(), " messages of ", of_all, " bytes wait already, ", of_peer,
                     " bytes of this peer; this one has ", bytes, ", at most ", kMaxMessages,
                     " of ", kMaxBytes, " may, ", kMaxBytesOfPeer, " of a peer"));
  }
  messages_.push_back(std::move(early));
  return absl::OkStatus();
}

size_t ParkedMessages::DropLate(SteadyTime now) {
  return std::erase_if(messages_,
                       [now](const EarlyMessage& early) { return now - early.came >= kLongest; });
}

std::vector<EarlyMessage> ParkedMessages::TakeAll() { return std::exchange(messages_, {}); }

}  // namespace slimps
