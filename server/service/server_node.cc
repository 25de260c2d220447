// SPDX-License-Identifier: Apache-2.0
#include "server/service/server_node.h"

#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/base/status_macros.h"
#include "proto/incarnation.h"

namespace slimps {
namespace {

MembershipOptions Registering(MembershipOptions options, const Beginning& beginning) {
  options.restored = beginning.restored;
  return options;
}

std::string OwnerName(const wire::Header& header) {
  const Incarnation own = IncarnationOf(header);
  return absl::StrCat(absl::Hex(own.high, absl::kZeroPad16), absl::Hex(own.low, absl::kZeroPad16));
}

}  // namespace

ServerNode::ServerNode(Transport* transport, const MembershipOptions& membership,
                       const ServerOptions& options, const Clock* clock)
    : ServerNode(transport, membership, options, clock, BeginEmpty(options, clock)) {}

ServerNode::ServerNode(Transport* transport, const MembershipOptions& membership,
                       const ServerOptions& options, const Clock* clock, Beginning beginning)
    : transport_(transport),
      membership_(transport, Registering(membership, beginning)),
      service_(
          transport, [this] { return membership_.MakeHeader(); }, options, clock,
          std::move(beginning)) {}

ServerNode::~ServerNode() {
  membership_.Stop();  // its thread may be in RequestStop
  service_.Stop();
  transport_->Stop();
}

absl::Status ServerNode::Serve() {
  SLIMPS_RETURN_IF_ERROR(transport_->Start(this));
  membership_.SetDownHandler([this](absl::Status why) { RequestStop(why); });
  membership_.SetReporter([this](bool) { return Report().SerializeAsString(); });
  absl::Status result = membership_.Join();
  if (result.ok()) {
    result = service_.StartSnapshots(OwnerName(membership_.MakeHeader()),
                                     [this](const absl::Status& why) { RequestStop(why); });
  }
  if (result.ok()) {
    MutexLock lock(&mutex_);
    joined_ = true;
    while (!ended_.has_value()) changed_.Wait(&mutex_);
    result = *ended_;
  }
  // The service stops first: what was accepted is answered before the goodbye, and leaves before
  // the transport stops.
  if (result.ok()) {
    service_.Stop();
  } else {
    service_.FailPending(result);
    service_.Stop(result);
  }
  const std::optional<absl::Status> down = membership_.down();
  if (down.has_value() && down->ok()) service_.RemoveSnapshots();
  const absl::Status left = membership_.Leave();
  transport_->Stop();
  return result.ok() ? left : result;
}

bool ServerNode::joined() const {
  MutexLock lock(&mutex_);
  return joined_;
}

void ServerNode::RequestStop(const absl::Status& why) {
  MutexLock lock(&mutex_);
  if (!ended_.has_value()) ended_ = why;
  changed_.NotifyAll();
}

void ServerNode::OnMessage(PeerId from, Message message) {
  if (membership_.HandleMessage(from, message)) {
    if (message.header.has_roster()) service_.SetRoster(membership_.roster());
    membership_.SetSavedEpoch(service_.saved_epoch());
    return;
  }
  service_.OnMessage(from, std::move(message));
}

void ServerNode::OnBadFrame(PeerId from, const absl::Status& why) {
  service_.OnBadFrame(from, why);
}

void ServerNode::OnUndeliverable(PeerId to, const absl::Status& why) {
  membership_.HandleUndeliverable(to, why);
  service_.OnUndeliverable(to, why);
}

}  // namespace slimps
