// SPDX-License-Identifier: Apache-2.0
#include "worker/capi/c_api_handle.h"

#include "proto/base/thread.h"

namespace slimps {

SharedStore::~SharedStore() {
  MutexLock lock(&mutex_);
  while (threads_ > 0) ended_.Wait(&mutex_);
}

void SharedStore::RunOnThread(std::function<void()> work) {
  {
    MutexLock lock(&mutex_);
    ++threads_;
  }
  const auto end = [this] {
    MutexLock lock(&mutex_);
    if (--threads_ == 0) ended_.NotifyAll();
  };
  try {
    Thread::StartDetached("call", [end, work = std::move(work)]() mutable {
      work();
      work = nullptr;
      end();
    });
  } catch (...) {
    end();
    throw;
  }
}

slimps_status StartOnThread(const char* function, const slimps_store& store,
                            std::function<absl::Status(KVStore*)> body) {
  const absl::Status begun = store.call->Begin();
  if (!begun.ok()) return Report(OutcomeOf(function, begun));
  try {
    store.shared->RunOnThread([function, call = store.call, open = store.shared->store(),
                               body = std::move(body)]() mutable {
      Outcome outcome = Caught(function, [&] { return body(open); });
      body = nullptr;
      call->End(std::move(outcome));
    });
  } catch (...) {
    store.call->End(OutcomeOfException(function));
  }
  return store.call->Return();
}

}  // namespace slimps
