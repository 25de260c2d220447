// SPDX-License-Identifier: Apache-2.0
// Collects borrowed payloads that any thread has let go of, until the I/O loop tells their lenders.
//
//   Payload payload(std::make_shared<BorrowedBytes>(returns, lease), bytes);
//   ... its last copy is gone: BorrowedBytes adds the lease to `returns` ...
//   for (const ReturnedLease& lease : returns->Take()) ...   // tell lease.peer
#ifndef SLIMPS_PROTO_NET_SHARED_LEASE_RETURNS_H_
#define SLIMPS_PROTO_NET_SHARED_LEASE_RETURNS_H_

#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "proto/base/buffer.h"
#include "proto/base/mutex.h"
#include "proto/net/queue/wakeup.h"
#include "proto/net/shared/segment_mapping.h"
#include "proto/net/transport.h"

namespace slimps {

struct ReturnedLease {
  PeerId peer{};     // the lender
  uint64_t pid = 0;  // the lender's process, which may have come back as another peer
  uint64_t lease = 0;
};

// Thread-safe. Shared by the PayloadSharing that takes the leases and by all borrowed payloads.
// Those may outlive the PayloadSharing.
class LeaseReturns final {
 public:
  explicit LeaseReturns(std::shared_ptr<Wakeup> wakeup) : wakeup_(std::move(wakeup)) {}

  // Adds the lease and wakes the I/O thread, unless this is closed.
  void Add(const ReturnedLease& returned) {
    bool wake = false;
    {
      MutexLock lock(&mutex_);
      if (closed_) return;
      wake = returned_.empty();
      returned_.push_back(returned);
    }
    if (wake) wakeup_->Signal();
  }

  // Returns what was added since the last call.
  std::vector<ReturnedLease> Take() {
    MutexLock lock(&mutex_);
    return std::exchange(returned_, {});
  }

  // Drops all leases, now and from now on.
  void Close() {
    MutexLock lock(&mutex_);
    closed_ = true;
    returned_.clear();
  }

 private:
  const std::shared_ptr<Wakeup> wakeup_;
  Mutex mutex_;
  std::vector<ReturnedLease> returned_ ABSL_GUARDED_BY(mutex_);
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
};

// Owns the bytes of one borrowed payload. Its destructor unmaps them and returns the lease.
// Thread-compatible.
class BorrowedBytes final {
 public:
  BorrowedBytes(std::shared_ptr<LeaseReturns> returns, const ReturnedLease& lease)
      : returns_(std::move(returns)), lease_(lease) {}
  ~BorrowedBytes() {
    mapping_.reset();
    returns_->Add(lease_);
  }
  BorrowedBytes(const BorrowedBytes&) = delete;
  BorrowedBytes& operator=(const BorrowedBytes&) = delete;

  void Keep(std::shared_ptr<const SegmentMapping> mapping) { mapping_ = std::move(mapping); }

 private:
  const std::shared_ptr<LeaseReturns> returns_;
  const ReturnedLease lease_;
  std::shared_ptr<const SegmentMapping> mapping_;
};

}  // namespace slimps

#endif  // SLIMPS_PROTO_NET_SHARED_LEASE_RETURNS_H_
