// SPDX-License-Identifier: Apache-2.0
// Knows which keys may connect here, and whose they are. The scheduler fills it once, from its list
// of allowed nodes. A server fills it from each complete roster; who connects before waits.
//
//   allowed->Set({{public_key, "worker 1"}});
//   allowed->OwnerOf(public_key)                // "worker 1"
#ifndef SLIMPS_PROTO_NET_IDENTITY_ALLOWED_KEYS_H_
#define SLIMPS_PROTO_NET_IDENTITY_ALLOWED_KEYS_H_

#include <optional>
#include <string>
#include <unordered_map>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "proto/base/mutex.h"

namespace slimps {

// Thread-safe.
class AllowedKeys final {
 public:
  // By public key: the name of the node (NodeName), which is never empty.
  using Owners = std::unordered_map<std::string, std::string>;

  void Set(Owners owners) {
    MutexLock lock(&mutex_);
    owners_ = std::move(owners);
    changed_.NotifyAll();
  }

  // Lets nobody in from now on, and ends all waits.
  void Close() {
    MutexLock lock(&mutex_);
    closed_ = true;
    changed_.NotifyAll();
  }

  // Waits until Set or Close was called. Returns the node whose key this is; "" if the key may not
  // connect; nullopt after Close.
  std::optional<std::string> OwnerOf(const std::string& public_key) {
    MutexLock lock(&mutex_);
    while (!closed_ && !owners_.has_value()) changed_.Wait(&mutex_);
    if (closed_) return std::nullopt;
    const auto found = owners_->find(public_key);
    return found == owners_->end() ? std::string() : found->second;
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  std::optional<Owners> owners_ ABSL_GUARDED_BY(mutex_);
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace slimps

#endif  // SLIMPS_PROTO_NET_IDENTITY_ALLOWED_KEYS_H_
