// Messages of workers that have seen a newer roster than this server, until it comes: so many, of so many bytes of memory, of
// one peer and of all, and for so long, whatever epochs a stranger makes up.
//
//   const absl::Status parked = messages.Add(std::move(early));     // not OK: drop it, its sender asks again
//   for (EarlyMessage& early : messages.TakeAll()) ...                 // a newer roster has come
#ifndef SLIMPS_SERVER_PARKED_MESSAGES_H_
#define SLIMPS_SERVER_PARKED_MESSAGES_H_

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
  static constexpr size_t kMostMessages = 256;
  static constexpr size_t kMostBytes = size_t{16} << 20;
  static constexpr size_t kMostBytesOfPeer = size_t{64} << 10;
  static constexpr absl::Duration kLongest = absl::Seconds(10);

  // ResourceExhausted, and `early` stays as it is: too many or too large.
  [[nodiscard]] absl::Status Add(EarlyMessage&& early);
  // Drops those that have waited for kLongest, and returns how many they were.
  size_t DropLate(SteadyTime now);
  std::vector<EarlyMessage> TakeAll();

 private:
  std::vector<EarlyMessage> messages_;
};

}  // namespace slimps

#endif  // SLIMPS_SERVER_PARKED_MESSAGES_H_
