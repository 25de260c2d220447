// The network of transports inside one process: names and the inboxes behind them.
#ifndef SLIMPS_PROTO_NET_IN_PROCESS_NETWORK_H_
#define SLIMPS_PROTO_NET_IN_PROCESS_NETWORK_H_

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
#include "proto/net/transport.h"
#include "proto/net/wakeup.h"

namespace slimps {

class InProcessInbox;

struct Packet {
  std::weak_ptr<InProcessInbox> from;
  uint64_t from_inbox = 0;   // from's id, which outlives it
  PeerId from_peer{};        // the connection as the sender numbers it
  std::optional<PeerId> to;  // the connection as the receiver numbers it, where the sender knows
  Frame frame;
};

// Where packets for one transport wait until its I/O thread takes them. Thread-safe.
class InProcessInbox final {
 public:
  enum class Delivery { kTaken, kFull, kClosed };

  InProcessInbox(uint64_t id, std::shared_ptr<Wakeup> wakeup)
      : id_(id), wakeup_(std::move(wakeup)) {}

  uint64_t id() const { return id_; }
  // kFull: `sender` is signalled once there is room. An empty inbox takes a packet of any size.
  [[nodiscard]] Delivery Deliver(Packet packet, const std::shared_ptr<Wakeup>& sender);
  // Whether Deliver would take a packet, or say that it is closed.
  bool IsReady() const;
  bool closed() const;
  std::optional<Packet> Take();
  // Refuses and drops everything from now on.
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

// Thread-safe. Shared by its transports; usually one per test.
class InProcessNetwork final {
 public:
  std::shared_ptr<InProcessInbox> OpenInbox(std::shared_ptr<Wakeup> wakeup);
  // Address "inproc://name", or "inproc://*" for a name that is not in use. Returns the address.
  // InvalidArgument: another form. Unavailable: in use.
  [[nodiscard]] absl::StatusOr<std::string> Bind(const std::string& address,
                                                 const std::shared_ptr<InProcessInbox>& inbox);
  // Null: nobody listens there.
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

#endif  // SLIMPS_PROTO_NET_IN_PROCESS_NETWORK_H_
