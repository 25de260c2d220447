// SPDX-License-Identifier: Apache-2.0
// PushesUnderWay: counts the bytes of a store's pushes that may still be under way, to tell whether
// a push may have to wait. A push that need not wait only copies: it runs on the caller's thread,
// since a thread of its own would cost more.
//
//   const bool may_wait = pushes.Add(key.id(), bytes);          // then push; before a pull:
//   const PushesUnderWay::Mark mark = pushes.MarkOf(key.id());
//   pushes.Acknowledged({mark});                                // once the pull has ended well
//
// Thread-safe.
#ifndef SLIMPS_WORKER_CAPI_PUSHES_UNDER_WAY_H_
#define SLIMPS_WORKER_CAPI_PUSHES_UNDER_WAY_H_

#include <cstddef>
#include <unordered_map>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "proto/base/key.h"
#include "proto/base/mutex.h"

namespace slimps {

class PushesUnderWay final {
 public:
  // A key, and the bytes of it that were under way at one moment.
  struct Mark {
    KeyId key;
    size_t bytes;
  };

  // Adds a push of so many bytes. Returns true if it may have to wait: for room in grad_buf, which
  // has room for one push of each key, or for the network, once as much waits for it as the store
  // allows.
  bool Add(KeyId key, size_t bytes);

  Mark MarkOf(KeyId key) const;

  // Removes the marks' bytes: those pushes have been acknowledged. Does not allocate.
  void Acknowledged(const std::vector<Mark>& marks);

  void AllAcknowledged();

 private:
  struct OfKey {
    size_t first = 0, later = 0;  // bytes of the first push, and of the pushes after it
  };
  size_t BytesOf(KeyId key) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  mutable Mutex mutex_;
  std::unordered_map<KeyId, OfKey> by_key_ ABSL_GUARDED_BY(mutex_);
  // Sums over all keys: all bytes, and those of later pushes.
  size_t bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  size_t later_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace slimps

#endif  // SLIMPS_WORKER_CAPI_PUSHES_UNDER_WAY_H_
