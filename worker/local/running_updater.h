// SPDX-License-Identifier: Apache-2.0
// RunningUpdater: while it lives, its thread runs an updater of a store. An updater must not call
// its own store. It may push to another one, whose updater then runs inside it.
//
//   const RunningUpdater running(store);
//   updater(key, gradient, weights);       // RunningUpdater::IsOf(store) is true meanwhile
//
// Owned by the thread that makes it.
#ifndef SLIMPS_WORKER_LOCAL_RUNNING_UPDATER_H_
#define SLIMPS_WORKER_LOCAL_RUNNING_UPDATER_H_

#include "worker/kvstore.h"

namespace slimps {

class RunningUpdater final {
 public:
  explicit RunningUpdater(const KVStore* store) : store_(store), outer_(innermost_) {
    innermost_ = this;
  }
  ~RunningUpdater() { innermost_ = outer_; }
  RunningUpdater(const RunningUpdater&) = delete;
  RunningUpdater& operator=(const RunningUpdater&) = delete;

  // True if the calling thread runs an updater of `store`.
  static bool IsOf(const KVStore* store) {
    for (const RunningUpdater* one = innermost_; one != nullptr; one = one->outer_) {
      if (one->store_ == store) return true;
    }
    return false;
  }

 private:
  const KVStore* const store_;
  const RunningUpdater* const outer_;
  static inline thread_local const RunningUpdater* innermost_ = nullptr;
};

}  // namespace slimps

#endif  // SLIMPS_WORKER_LOCAL_RUNNING_UPDATER_H_
