// SPDX-License-Identifier: Apache-2.0
// Keeps payloads that stopped transports had lent to processes that still live, because those may
// be reading them.
//
//   OrphanedLoans::OfProcess().Keep(pid, std::move(payload));
#ifndef SLIMPS_PROTO_NET_SHARED_ORPHANED_LOANS_H_
#define SLIMPS_PROTO_NET_SHARED_ORPHANED_LOANS_H_

#include <cstdint>
#include <map>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "proto/base/buffer.h"
#include "proto/base/mutex.h"
#include "proto/net/shared/process_watch.h"

namespace slimps {

// Thread-safe.
class OrphanedLoans final {
 public:
  // Returns the process's own, which is never destroyed: a borrower may outlive anything here.
  static OrphanedLoans& OfProcess();

  // Keeps the payload until the first Sweep or Keep after the process has ended. Keeps it for ever
  // if the process cannot be watched, because nothing would report its end. Drops it if the process
  // has ended already.
  // REQUIRES: the caller knows that the process lived just now.
  void Keep(uint64_t pid, Payload payload);

  // Drops the payloads that were lent to processes which have ended since.
  void Sweep();

  // Returns the number of payloads kept.
  size_t size() const;

 private:
  std::vector<Payload> TakeReleased() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  mutable Mutex mutex_;
  ProcessWatch watch_ ABSL_GUARDED_BY(mutex_);
  std::multimap<uint64_t, Payload> loans_ ABSL_GUARDED_BY(mutex_);  // by pid
  std::vector<Payload> unwatched_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace slimps

#endif  // SLIMPS_PROTO_NET_SHARED_ORPHANED_LOANS_H_
