// SPDX-License-Identifier: Apache-2.0
#include "proto/net/testing/in_process_network.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace slimps {
namespace {

// Bounds what is on its way to a slow receiver, as the buffers of a socket would.
constexpr size_t kInboxBytes = size_t{64} << 20;
constexpr size_t kInboxPackets = 4096;
constexpr char kScheme[] = "inproc://";

size_t FrameBytes(const Frame& frame) {
  size_t bytes = 0;
  for (const Payload& part : frame) bytes += part.size();
  return bytes;
}

}  // namespace

InProcessInbox::Delivery InProcessInbox::Deliver(Packet packet,
                                                 const std::shared_ptr<Wakeup>& sender) {
  {
    MutexLock lock(&mutex_);
    if (closed_) return Delivery::kClosed;
    if (bytes_ >= kInboxBytes || packets_.size() >= kInboxPackets) {
      waiting_.push_back(sender);
      return Delivery::kFull;
    }
    bytes_ += FrameBytes(packet.frame);
    packets_.push_back(std::move(packet));
  }
  wakeup_->Signal();
  return Delivery::kTaken;
}

bool InProcessInbox::IsReady() const {
  MutexLock lock(&mutex_);
  return closed_ || (bytes_ < kInboxBytes && packets_.size() < kInboxPackets);
}

bool InProcessInbox::closed() const {
  MutexLock lock(&mutex_);
  return closed_;
}

std::optional<Packet> InProcessInbox::Take() {
  std::vector<std::shared_ptr<Wakeup>> waiting;
  std::optional<Packet> packet;
  {
    MutexLock lock(&mutex_);
    if (packets_.empty()) return std::nullopt;
    packet = std::move(packets_.front());
    packets_.pop_front();
    bytes_ -= FrameBytes(packet->frame);
    waiting.swap(waiting_);
  }
  for (const auto& sender : waiting) sender->Signal();
  return packet;
}

void InProcessInbox::Close() {
  std::vector<std::shared_ptr<Wakeup>> waiting;
  std::deque<Packet> dropped;
  {
    MutexLock lock(&mutex_);
    closed_ = true;
    dropped.swap(packets_);
    bytes_ = 0;
    waiting.swap(waiting_);
  }
  for (const auto& sender : waiting) sender->Signal();
}

std::shared_ptr<InProcessInbox> InProcessNetwork::OpenInbox(std::shared_ptr<Wakeup> wakeup) {
  MutexLock lock(&mutex_);
  auto inbox = std::make_shared<InProcessInbox>(++last_id_, std::move(wakeup));
  std::erase_if(inboxes_, [](const auto& weak) { return weak.expired(); });
  inboxes_.push_back(inbox);
  return inbox;
}

absl::StatusOr<std::string> InProcessNetwork::Bind(const std::string& address,
                                                   const std::shared_ptr<InProcessInbox>& inbox) {
  constexpr size_t kSchemeBytes = sizeof(kScheme) - 1;
  if (address.compare(0, kSchemeBytes, kScheme) != 0 || address.size() == kSchemeBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", address, "' is no address: expected inproc://name"));
  }
  std::string name = address;
  std::vector<std::shared_ptr<InProcessInbox>> wake;
  {
    MutexLock lock(&mutex_);
    for (uint64_t i = 1; address == "inproc://*"; ++i) {
      name = absl::StrCat(kScheme, "unnamed-", i);
      if (bound_.count(name) == 0) break;
    }
    if (!bound_.emplace(name, inbox).second) {
      return absl::UnavailableError(
          absl::StrCat("cannot listen on ", address, ": Address already in use"));
    }
    for (const auto& weak : inboxes_) {
      if (auto other = weak.lock()) wake.push_back(std::move(other));
    }
  }
  // Transports that wait for this name look again.
  for (const auto& other : wake) other->Wake();
  return name;
}

std::shared_ptr<InProcessInbox> InProcessNetwork::Find(const std::string& address) const {
  MutexLock lock(&mutex_);
  const auto found = bound_.find(address);
  return found == bound_.end() ? nullptr : found->second;
}

void InProcessNetwork::CloseInbox(const std::shared_ptr<InProcessInbox>& inbox) {
  {
    MutexLock lock(&mutex_);
    std::erase_if(bound_, [&](const auto& entry) { return entry.second == inbox; });
  }
  inbox->Close();
}

}  // namespace slimps
