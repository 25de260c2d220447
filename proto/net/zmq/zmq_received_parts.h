// SPDX-License-Identifier: Apache-2.0
// Makes a Message from the parts that ZeroMQ received and the payloads that were borrowed with
// them.
#ifndef SLIMPS_PROTO_NET_ZMQ_ZMQ_RECEIVED_PARTS_H_
#define SLIMPS_PROTO_NET_ZMQ_ZMQ_RECEIVED_PARTS_H_

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/frame.h"
#include "proto/limits.h"
#include "proto/net/shared/payload_sharing.h"
#include "proto/net/zmq/zmq_socket.h"

namespace slimps {

using ReceivedParts = std::vector<std::shared_ptr<ZmqPart>>;

// Parses the header part and the payloads as ParseFrame does. Each borrowed payload takes the place
// that it has in the frame. Thread-safe.
// REQUIRES: `borrowed` are in rising order of payload number.
// InvalidArgument, DataLoss: as for ParseFrame.
//
// Payloads are not copied, with two exceptions. ToPayload copies small or misaligned parts.
// Borrowed payloads of the formats that hold counts and places (LEVELS, SPARSE: the small ones) are
// copied before their hashes are checked: their lender can still write them, and a decoder believes
// what was checked. In a raw payload the lender can change nothing but values.
[[nodiscard]] absl::StatusOr<Message> ParseReceived(ReceivedParts parts,
                                                    std::vector<PayloadSharing::Borrowed> borrowed,
                                                    const Limits& limits);

}  // namespace slimps

#endif  // SLIMPS_PROTO_NET_ZMQ_ZMQ_RECEIVED_PARTS_H_
