// SPDX-License-Identifier: Apache-2.0
// A thread that hands over answers which are known at once. So a caller never hears its answer on
// its own thread, where it may hold a lock.
//
//   AnswerThread answers;
//   answers.Post([done] { done(user_data, SLIMPS_OK, ""); });   // in order
//
// Thread-safe. The thread starts with the first answer. The destructor hands over all posted
// answers.
#ifndef SLIMPS_WORKER_CAPI_C_API_ANSWERS_H_
#define SLIMPS_WORKER_CAPI_C_API_ANSWERS_H_

#include <deque>
#include <functional>

#include "absl/base/thread_annotations.h"
#include "proto/base/mutex.h"
#include "proto/base/thread.h"

namespace slimps {

class AnswerThread final {
 public:
  AnswerThread() = default;
  ~AnswerThread();
  AnswerThread(const AnswerThread&) = delete;
  AnswerThread& operator=(const AnswerThread&) = delete;

  // Queues an answer. An answer may post another.
  void Post(std::function<void()> answer);

 private:
  void Run();

  Mutex mutex_;
  CondVar changed_;
  std::deque<std::function<void()>> answers_ ABSL_GUARDED_BY(mutex_);
  bool ending_ ABSL_GUARDED_BY(mutex_) = false;
  Thread thread_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace slimps

#endif  // SLIMPS_WORKER_CAPI_C_API_ANSWERS_H_
