// SPDX-License-Identifier: Apache-2.0
// Cuts a message without payloads that is over the limits of one message into parts, and puts the
// parts together again. Messages between nodes and the scheduler travel so, because they grow with
// the model: they say something of each tensor. The whole is within kWholeLimits.
//
//   SLIMPS_ASSIGN_OR_RETURN(const std::vector<wire::Header> parts, CutIntoParts(header));
//   for (const wire::Header& part : parts) Send(part);
//
//   SLIMPS_ASSIGN_OR_RETURN(const std::optional<wire::Header> whole, received.Add(part));
//   if (whole.has_value()) Handle(*whole);
//
// Pure.
#ifndef SLIMPS_PROTO_MESSAGE_PARTS_H_
#define SLIMPS_PROTO_MESSAGE_PARTS_H_

#include <cstddef>
#include <cstdint>
#include <list>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/slimps.pb.h"

namespace slimps {

// Returns the header itself if one message can carry it, else its parts. Each part has the fields
// that come before the body.
// InvalidArgument: the whole is malformed or over kWholeLimits.
[[nodiscard]] absl::StatusOr<std::vector<wire::Header>> CutIntoParts(wire::Header header);

// The parts of one peer that has been let in. They may come in any order and more than once. The
// peer can make it keep kMostAtOnce times kWholeLimits.max_header_bytes. Thread-compatible.
class PartJoiner final {
 public:
  // A peer sends no more messages in parts than this at once. Of others the oldest are dropped, and
  // their sender repeats them.
  static constexpr size_t kMostAtOnce = 4;

  // Returns the whole if `part` is the last that was missing, nullopt if others are missing. After
  // an error the whole is forgotten.
  // REQUIRES: `part` is a Part that CheckHeader accepted.
  // InvalidArgument: the whole is malformed, or over kWholeLimits, or says another number of parts
  // than another of its parts.
  // DataLoss: the hash of the whole disagrees.
  [[nodiscard]] absl::StatusOr<std::optional<wire::Header>> Add(const wire::Header& part);

 private:
  struct Whole {
    uint64_t hash = 0;
    std::vector<std::string> pieces;
    size_t missing = 0;
  };

  std::list<Whole> wholes_;  // the oldest first
};

}  // namespace slimps

#endif  // SLIMPS_PROTO_MESSAGE_PARTS_H_
