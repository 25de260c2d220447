// SPDX-License-Identifier: Apache-2.0
// Keeps messages of workers that have seen a newer roster than this server, until it comes. Their
// number, their bytes in memory (of one peer and of all) and their waiting time are bounded,
// because a stranger may make up any epoch. Owned by ServerService.
//
//   const absl::Status parked = messages.Add(std::move(early));  // not OK: the sender retries
//   for (EarlyMessage& early : messages.TakeAll()) ...           // a newer roster has come
#ifndef SLIMPS_SERVER_SERVICE_PARKED_MESSAGES_H_
#define SLIMPS_SERVER_SERVICE_PARKED_MESSAGES_H_

#include <cstddef>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "proto/base/clock.h"
#include "proto/net/transport.h"

namespace slimps {

struct EarlyMessage {
  PeerId from{};
  Message message;
  SteadyTime came;
};

// Thread-compatible. Pure: the caller brings the time.
class ParkedMessages final {
 public:
  static constexpr size_t kMaxMessages = 256;
  static constexpr size_t kMaxBytes = size_t{16} << 20;
  static constexpr size_t kMaxBytesOfPeer = size_t{64} << 10;
  static constexpr absl::Duration kLongest = absl::Seconds(10);

  // Keeps `early`.
  // ResourceExhausted: too many or too large; `early` stays as it is.
  [[nodiscard]] absl::Status Add(EarlyMessage&& early);

  // Drops the messages that have waited for kLongest. Returns how many.
  size_t DropLate(SteadyTime now);
  std::vector<EarlyMessage> TakeAll();

 private:
  std::vector<EarlyMessage> messages_;
};

}  // namespace slimps

#endif  // SLIMPS_SERVER_SERVICE_PARKED_MESSAGES_H_
