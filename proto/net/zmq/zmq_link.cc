// SPDX-License-Identifier: Apache-2.0
#include "proto/net/zmq/zmq_link.h"

#include <utility>

#include "absl/status/statusor.h"

namespace slimps {

void ZmqLink::Watch(void* context) {
  absl::StatusOr<ZmqMonitor> watching = ZmqMonitor::Watch(context, socket.get());
  // Without a monitor, connections are known only by the messages that come from them.
  if (watching.ok()) monitor = *std::move(watching);
}

void ZmqLink::TakeEvents() {
  for (const ZmqMonitor::Event& event : monitor.Take()) events.push_back(event);
}

void ZmqLink::CheckReadiness() {
  if (!std::exchange(unchecked, false)) return;
  const int flags = Events(socket.get());
  readable = (flags & ZMQ_POLLIN) != 0;
  writable = (flags & ZMQ_POLLOUT) != 0;
}

}  // namespace slimps
