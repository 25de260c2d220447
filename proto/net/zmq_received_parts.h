// From the parts that ZeroMQ received, and the payloads that were borrowed beside them, to a Message.
#ifndef SLIMPS_PROTO_NET_ZMQ_RECEIVED_PARTS_H_
#define SLIMPS_PROTO_NET_ZMQ_RECEIVED_PARTS_H_

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/frame.h"
#include "proto/limits.h"
#include "proto/net/payload_sharing.h"
#include "proto/net/zmq_socket.h"

namespace slimps {

using ReceivedParts = std::vector<std::shared_ptr<ZmqPart>>;

// ParseFrame over the header part and the payloads, each borrowed one in the place that it has in the frame. `borrowed`
// are in rising order. InvalidArgument, DataLoss: as ParseFrame. Thread-safe.
//
// Payloads are not copied, save as ToPayload does, and borrowed ones of formats that hold counts and places (LEVELS,
// SPARSE: the small ones), before their hashes are checked. Their lender could still write what a decoder has checked and
// will believe; of a raw payload it can change but values.
[[nodiscard]] absl::StatusOr<Message> ParseReceived(ReceivedParts parts,
                                                    std::vector<PayloadSharing::Borrowed> borrowed,
                                                    const Limits& limits);

}  // namespace slimps

#endif  // SLIMPS_PROTO_NET_ZMQ_RECEIVED_PARTS_H_
