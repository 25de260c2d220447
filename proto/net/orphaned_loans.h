// What stopped transports had lent to processes that live on: kept, for these may be reading it.
//
//   OrphanedLoans::OfProcess().Keep(pid, std::move(payload));
#ifndef SLIMPS_PROTO_NET_ORPHANED_LOANS_H_
#define SLIMPS_PROTO_NET_ORPHANED_LOANS_H_

#include <cstdint>
#include <map>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "proto/base/buffer.h"
#include "proto/base/mutex.h"
#include "proto/net/process_watch.h"

namespace slimps {

// Thread-safe.
class OrphanedLoans final {
 public:
  // Never destroyed: a borrower may outlive anything here.
  static OrphanedLoans& OfProcess();

  // Until a Sweep or Keep after the process has ended; for ever where it cannot be watched, for nobody would say that it
  // has. REQUIRES: the caller knows that the process lived just now.
  void Keep(uint64_t pid, Payload payload);
  // Lets go of what processes had that have ended since.
  void Sweep();
  // Payloads that are kept.
  size_t size() const;

 private:
  std::vector<Payload> TakeReleased() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  mutable Mutex mutex_;
  ProcessWatch watch_ ABSL_GUARDED_BY(mutex_);
  std::multimap<uint64_t, Payload> loans_ ABSL_GUARDED_BY(mutex_);  // by pid
  std::vector<Payload> unwatched_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace slimps

#endif  // SLIMPS_PROTO_NET_ORPHANED_LOANS_H_
