// SPDX-License-Identifier: Apache-2.0
#include "server/shard/run_on_shard.h"

#include <memory>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "proto/base/mutex.h"

namespace slimps {
namespace {

class OnShard final {
 public:
  static absl::Status Run(Shard* shard, const Shard::Control& control) {
    auto call = std::make_shared<OnShard>();
    // The token is destroyed with the control, run or not.
    auto token = std::shared_ptr<void>(nullptr, [call](void*) { call->Finish(); });
    shard->PostOwnControl([call, &control, token = std::move(token)](ShardState& state) {
      control(state);
      call->ran_ = true;
    });
    token.reset();
    MutexLock lock(&call->mutex_);
    while (!call->finished_) call->changed_.Wait(&call->mutex_);
    return call->ran_ ? absl::OkStatus() : absl::UnavailableError("the server is stopping");
  }

 private:
  void Finish() {
    MutexLock lock(&mutex_);
    finished_ = true;
    changed_.NotifyAll();
  }

  Mutex mutex_;
  CondVar changed_;
  bool ran_ = false;  // written before Finish takes the lock, read after finished_
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace

absl::Status RunOnShard(Shard* shard, const Shard::Control& control) {
  return OnShard::Run(shard, control);
}

}  // namespace slimps
