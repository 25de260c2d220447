// SPDX-License-Identifier: Apache-2.0
#include "worker/push/push_queue.h"

#include <algorithm>

#include "proto/net/send_priority.h"

namespace slimps {

void PushQueue::Add(std::vector<EncodeWork> works) {
  Works made;
  for (EncodeWork& work : works) {
    const int64_t priority = SendPriority(work.job->round, work.job->priority);
    made.emplace(std::pair(-priority, next_sequence_++), std::move(work));
  }
  waiting_.merge(made);
}

PushQueue::Works::const_iterator PushQueue::Next() const {
  if (is_closed_) return waiting_.end();
  for (auto next = waiting_.begin(); next != waiting_.end(); ++next) {
    const EncodeWork& work = next->second;
    // Nothing passes a measured tensor: it would wait for ever, and not be alone.
    if (work.whole_tensor) return encoded_.empty() ? next : waiting_.end();
    const auto same = std::pair(work.job->tensor, work.partition);
    if (std::ranges::find(encoded_, same) == encoded_.end()) return next;
  }
  return waiting_.end();
}

std::optional<EncodeWork> PushQueue::Begin() {
  const auto next = Next();
  if (next == waiting_.end()) return std::nullopt;
  EncodeWork work = std::move(waiting_.extract(next).mapped());
  encoded_.emplace_back(work.job->tensor, work.partition);
  is_closed_ = work.whole_tensor;
  return work;
}

void PushQueue::End(const EncodeWork& work) {
  encoded_.erase(std::ranges::find(encoded_, std::pair(work.job->tensor, work.partition)));
  if (work.whole_tensor) is_closed_ = false;
}

}  // namespace slimps
