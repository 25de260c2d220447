// SPDX-License-Identifier: Apache-2.0
#include "worker/capi/c_api_answers.h"

#include <utility>

namespace slimps {

AnswerThread::~AnswerThread() {
  Thread thread;
  {
    MutexLock lock(&mutex_);
    ending_ = true;
    changed_.NotifyAll();
    thread = std::move(thread_);
  }
  if (thread.joinable()) thread.Join();
}

void AnswerThread::Post(std::function<void()> answer) {
  MutexLock lock(&mutex_);
  answers_.push_back(std::move(answer));
  try {
    if (!thread_.joinable() && !ending_) thread_ = Thread("answers", [this] { Run(); });
  } catch (...) {
    answers_.pop_back();  // the exception tells the caller that the answer will not come
    throw;
  }
  changed_.NotifyAll();
}

void AnswerThread::Run() {
  for (;;) {
    std::function<void()> answer;
    {
      MutexLock lock(&mutex_);
      while (answers_.empty() && !ending_) changed_.Wait(&mutex_);
      if (answers_.empty()) return;
      answer = std::move(answers_.front());
      answers_.pop_front();
    }
    answer();
  }
}

}  // namespace slimps
