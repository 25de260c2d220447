// Messages of workers that have seen a newer roster than this server, until it comes: so many, of so many bytes, and for so
// long, whatever epochs a peer makes up.
//
//   const absl::Status parked = messages.Add(std::move(early), now);   // not OK: answer it
//   for (EarlyMessage& early : messages.TakeAll()) ...                 // a newer roster has come
#ifndef SLIMPS_SERVER_PARKED_MESSAGES_H_
#define SLIMPS_SERVER_PARKED_MESSAGES_H_

#include <cstddef>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "proto/net/transport.h"

namespace slimps {

struct EarlyMessage {
  PeerId from{};
  Message message;
  absl::Time came;
};

// Thread-compatible. Pure: the caller brings the time.
class ParkedMessages final {
 public:
  static constexpr size_t kMostMessages = 256;
  static constexpr size_t kMostBytes = size_t{64} << 20;
  static constexpr absl::Duration kLongest = absl::Seconds(10);

  // ResourceExhausted, and `early` stays as it is: too many or too large, or it has waited for kLongest.
  [[nodiscard]] absl::Status Add(EarlyMessage&& early, absl::Time now);
  // Those that have waited for kLongest.
  std::vector<EarlyMessage> TakeLate(absl::Time now);
  std::vector<EarlyMessage> TakeAll();

 private:
  std::vector<EarlyMessage> messages_;
  size_t bytes_ = 0;
};

}  // namespace slimps

#endif  // SLIMPS_SERVER_PARKED_MESSAGES_H_
