// SPDX-License-Identifier: Apache-2.0
// Makes sure that a node can open the connections of its job. ZeroMQ ends the process, or waits for
// ever, where the system gives it no file descriptor.
//
//   SLIMPS_RETURN_IF_ERROR(ReserveDescriptors({.accepted = num_workers, .made = 1}));
//   ZmqTransport transport(options);
#ifndef SLIMPS_PROTO_NET_DESCRIPTORS_H_
#define SLIMPS_PROTO_NET_DESCRIPTORS_H_

#include <cstddef>

#include "absl/status/status.h"

namespace slimps {

// How many connections a node has at a time.
struct ConnectionCounts {
  size_t accepted = 0;  // others connect to its address
  size_t made = 0;      // it connects to theirs
};

// Returns how many file descriptors a transport with these connections opens at most.
[[nodiscard]] size_t DescriptorsFor(const ConnectionCounts& counts);

// Raises this process's soft limit of open files, where that is needed, so that DescriptorsFor the
// counts can be opened beside what is open. Call it before the transport is made.
// ResourceExhausted: the hard limit is too low. The message says what is needed, what is allowed
// and what to do.
[[nodiscard]] absl::Status ReserveDescriptors(const ConnectionCounts& counts);

}  // namespace slimps

#endif  // SLIMPS_PROTO_NET_DESCRIPTORS_H_
