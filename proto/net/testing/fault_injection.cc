// SPDX-License-Identifier: Apache-2.0
#include "proto/net/testing/fault_injection.h"

#include <span>
#include <vector>

#include "absl/strings/str_cat.h"
#include "proto/base/simulation/simulation.h"

namespace slimps {

// For a simulation's trace.
void FaultySink::Note(const char* fault, const Message& message) const {
  if (plan_.on_fault != nullptr) plan_.on_fault(fault, message);
  if (!simulation::Active()) return;
  const auto* const field =
      wire::Header::descriptor()->FindFieldByNumber(static_cast<int>(message.header.body_case()));
  simulation::Note(absl::StrCat("the network ", fault, " ", field ? field->name() : "nothing"));
}

bool FaultySink::Strikes(double probability) {
  // std::uniform_real_distribution would give other values with another library.
  const double draw = static_cast<double>(random_() >> 11) * 0x1p-53;
  return draw < probability;
}

void FaultySink::OnMessage(PeerId from, Message message) {
  // All draws are made for each message, so changing one probability does not change where the
  // other faults strike.
  const bool drop = Strikes(plan_.drop);
  const bool duplicate = Strikes(plan_.duplicate);
  const bool truncate = Strikes(plan_.truncate);
  const bool reorder = Strikes(plan_.reorder);
  const bool delay = Strikes(plan_.delay);
  if (ceased()) {
    sink_->OnMessage(from, std::move(message));
  } else if (drop) {
    Note("drops", message);
  } else if (duplicate) {
    Note("doubles", message);
    sink_->OnMessage(from, message);
    sink_->OnMessage(from, std::move(message));
  } else if (truncate && !message.payloads.empty()) {
    Note("truncates", message);
    DeliverTruncated(from, std::move(message));
  } else if (reorder || delay) {
    Note("holds back", message);
    // One more than asked for, because ReleaseHeldBack below counts this arrival too.
    held_back_.push_back({from, std::move(message), (reorder ? 1 : plan_.delay_messages) + 1});
  } else {
    sink_->OnMessage(from, std::move(message));
  }
  ReleaseHeldBack();
}

void FaultySink::DeliverTruncated(PeerId from, Message message) {
  absl::StatusOr<Frame> frame = BuildFrame(std::move(message), kDefaultLimits);
  if (!frame.ok()) {
    sink_->OnBadFrame(from, frame.status());
    return;
  }
  std::vector<std::span<const std::byte>> parts;
  for (const Payload& part : *frame) parts.push_back(part.bytes());
  parts.back() = parts.back().first(parts.back().size() - 1);
  sink_->OnBadFrame(from, ParseFrame(parts, kDefaultLimits).status());
}

void FaultySink::ReleaseHeldBack() {
  for (auto it = held_back_.begin(); it != held_back_.end();) {
    if (--it->wait > 0 && !ceased()) {
      ++it;
      continue;
    }
    sink_->OnMessage(it->from, std::move(it->message));
    it = held_back_.erase(it);
  }
}

absl::Status FaultyTransport::Start(MessageSink* sink) {
  if (sink_ != nullptr) return absl::FailedPreconditionError("a transport starts once");
  sink_ = std::make_unique<FaultySink>(sink, plan_);
  return inner_->Start(sink_.get());
}

}  // namespace slimps
