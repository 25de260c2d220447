// SPDX-License-Identifier: Apache-2.0
#include "proto/net/zmq/zmq_link.h"

#include <utility>

#include "absl/status/statusor.h"

namespace slimps {

void ZmqLink::Watch(void* context) {
  absl::StatusOr<ZmqMonitor> watching = ZmqMonitor::Watch(
      context, socket.get(), is_router ? ZmqMonitor::Side::kBound : ZmqMonitor::Side::kConnecting);
  // Without a monitor, connections are known only by the messages that come from them.
  if (!watching.ok()) return;
  monitor = *std::move(watching);
  // ZeroMQ signals new events only to a reader that has found none.
  TakeEvents();
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
