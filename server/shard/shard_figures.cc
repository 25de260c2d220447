// SPDX-License-Identifier: Apache-2.0
#include "server/shard/shard_figures.h"

#include <algorithm>
#include <limits>

namespace slimps {
namespace {

constexpr uint32_t kNobody = std::numeric_limits<uint32_t>::max();

}  // namespace

class ShardFigures::Wait final {
 public:
  std::string name;
  bool open = false;
  uint64_t round = 0;
  SteadyTime since;
  std::vector<bool> lacks;   // by worker
  uint32_t alone = kNobody;  // the only worker that is lacking
};

ShardFigures::ShardFigures(const Clock* clock) : clock_(clock) {}
ShardFigures::~ShardFigures() = default;

ShardFigures::Wait* ShardFigures::AddPartition(const std::string& name, uint32_t workers) {
  MutexLock lock(&mutex_);
  if (alone_.size() < workers) alone_.resize(workers);
  Wait& wait = waits_.emplace_back();
  wait.name = name;
  wait.lacks.resize(workers);
  return &wait;
}

void ShardFigures::CountPush(PayloadFormat format, size_t bytes) {
  MutexLock lock(&mutex_);
  sums_.received[static_cast<size_t>(format)] += bytes;
}

void ShardFigures::CountRepeat() {
  MutexLock lock(&mutex_);
  ++sums_.repeats;
}

void ShardFigures::CountAnswer(PayloadFormat format, size_t bytes) {
  MutexLock lock(&mutex_);
  sums_.sent[static_cast<size_t>(format)] += bytes;
}

void ShardFigures::CountRound(absl::Duration step) {
  MutexLock lock(&mutex_);
  ++sums_.rounds;
  sums_.step += step;
}

void ShardFigures::SetAlone(Wait* wait, uint32_t worker, SteadyTime now) {
  if (wait->alone == worker) return;
  if (wait->alone != kNobody) {
    Alone& before = alone_[wait->alone];
    if (--before.partitions == 0) before.sum += now - before.since;
  }
  wait->alone = worker;
  if (worker == kNobody) return;
  Alone& after = alone_[worker];
  if (after.partitions++ == 0) after.since = now;
}

void ShardFigures::Open(Wait* wait, uint64_t round, absl::FunctionRef<bool(uint32_t)> lacks) {
  const SteadyTime now = clock_->Now();
  MutexLock lock(&mutex_);
  if (!wait->open || wait->round != round) wait->since = now;
  wait->open = true;
  wait->round = round;
  size_t lacking = 0;
  uint32_t last = kNobody;
  for (uint32_t worker = 0; worker < wait->lacks.size(); ++worker) {
    wait->lacks[worker] = lacks(worker);
    if (!wait->lacks[worker]) continue;
    ++lacking;
    last = worker;
  }
  SetAlone(wait, lacking == 1 ? last : kNobody, now);
}

void ShardFigures::Close(Wait* wait) {
  MutexLock lock(&mutex_);
  if (!wait->open) return;
  wait->open = false;
  if (wait->alone != kNobody) SetAlone(wait, kNobody, clock_->Now());
}

void ShardFigures::AddTo(ShardSums* sums) const {
  const SteadyTime now = clock_->Now();
  MutexLock lock(&mutex_);
  for (size_t i = 0; i < sums_.received.size(); ++i) {
    sums->received[i] += sums_.received[i];
    sums->sent[i] += sums_.sent[i];
  }
  sums->rounds += sums_.rounds;
  sums->repeats += sums_.repeats;
  sums->step += sums_.step;
  if (sums->waited.size() < alone_.size()) sums->waited.resize(alone_.size());
  for (size_t worker = 0; worker < alone_.size(); ++worker) {
    const Alone& one = alone_[worker];
    const absl::Duration under_way = one.partitions > 0 ? now - one.since : absl::ZeroDuration();
    // Shards wait at the same time, so their times do not add up.
    sums->waited[worker] = std::max(sums->waited[worker], one.sum + under_way);
  }
  for (const Wait& wait : waits_) {
    if (!wait.open) continue;
    OpenRoundFigures& round = sums->open[wait.round];
    round.since = std::min(round.since, wait.since);
    ++round.partitions;
    if (round.tensors.size() < OpenRoundFigures::kMaxTensors) round.tensors.insert(wait.name);
    for (uint32_t worker = 0; worker < wait.lacks.size(); ++worker) {
      if (wait.lacks[worker]) round.missing.insert(worker);
    }
  }
}

}  // namespace slimps
