// SPDX-License-Identifier: Apache-2.0
// The network between transports inside one process: names, and the inbox behind each name.
//
//   std::shared_ptr<InProcessInbox> inbox = network->OpenInbox(wakeup);
//   SLIMPS_ASSIGN_OR_RETURN(std::string address, network->Bind("inproc://*", inbox));
//   while (std::optional<Packet> packet = inbox->Take()) ...
#ifndef SLIMPS_PROTO_NET_TESTING_IN_PROCESS_NETWORK_H_
#define SLIMPS_PROTO_NET_TESTING_IN_PROCESS_NETWORK_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/base/mutex.h"
#include "proto/frame.h"
#include "proto/net/queue/wakeup.h"
#include "proto/net/transport.h"

namespace slimps {

class InProcessInbox;

struct Packet {
  std::weak_ptr<InProcessInbox> from;
  uint64_t from_inbox = 0;   // the id of `from`, valid even after that inbox is gone
  PeerId from_peer{};        // the sender's number for the connection
  std::optional<PeerId> to;  // the receiver's number for it, if the sender knows that
  Frame frame;
};

// Holds the packets for one transport until its I/O thread takes them. Thread-safe.
class InProcessInbox final {
 public:
  enum class Delivery { kTaken, kFull, kClosed };

  InProcessInbox(uint64_t id, std::shared_ptr<Wakeup> wakeup)
      : id_(id), wakeup_(std::move(wakeup)) {}

  uint64_t id() const { return id_; }

  // Adds the packet. An empty inbox takes a packet of any size.
  // kFull: the inbox dropped the packet and will signal `sender` once there is room.
  // kClosed: the inbox dropped the packet and will never take one.
  [[nodiscard]] Delivery Deliver(Packet packet, const std::shared_ptr<Wakeup>& sender);

  // True if Deliver would not return kFull.
  bool IsReady() const;

  bool closed() const;

  // Returns the oldest packet; nullopt if there is none.
  std::optional<Packet> Take();

  // Drops all packets and refuses new ones from now on.
  void Close();

  void Wake() { wakeup_->Signal(); }

 private:
  const uint64_t id_;
  const std::shared_ptr<Wakeup> wakeup_;  // the owner's
  mutable Mutex mutex_;
  std::deque<Packet> packets_ ABSL_GUARDED_BY(mutex_);
  size_t bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::shared_ptr<Wakeup>> waiting_ ABSL_GUARDED_BY(mutex_);
};

// Thread-safe. Transports share it; a test usually has one.
class InProcessNetwork final {
 public:
  std::shared_ptr<InProcessInbox> OpenInbox(std::shared_ptr<Wakeup> wakeup);

  // Gives the inbox a name: `address` is "inproc://name", or "inproc://*" for a name that is not in
  // use. Returns the address.
  // InvalidArgument: `address` has another form.
  // Unavailable: the name is in use.
  [[nodiscard]] absl::StatusOr<std::string> Bind(const std::string& address,
                                                 const std::shared_ptr<InProcessInbox>& inbox);

  // Returns the inbox with this address; null if there is none.
  std::shared_ptr<InProcessInbox> Find(const std::string& address) const;

  // Closes the inbox and frees its addresses.
  void CloseInbox(const std::shared_ptr<InProcessInbox>& inbox);

 private:
  mutable Mutex mutex_;
  uint64_t last_id_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<std::string, std::shared_ptr<InProcessInbox>> bound_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::weak_ptr<InProcessInbox>> inboxes_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace slimps

#endif  // SLIMPS_PROTO_NET_TESTING_IN_PROCESS_NETWORK_H_
