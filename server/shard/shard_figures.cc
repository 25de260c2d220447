// SPDX-License-Identifier: Apache-2.0
#include "server/shard/shard_figures.h"

#include <algorithm>
#include <bit>
#include <limits>

namespace slimps {
namespace {

constexpr uint32_t kNobody = std::numeric_limits<uint32_t>::max();

// A set of workers, one bit each.
class Workers final {
 public:
  void Resize(size_t workers) { words_.resize((workers + 63) / 64); }
  void Set(uint32_t worker, bool in) {
    const uint64_t bit = uint64_t{1} << (worker % 64);
    uint64_t& word = words_[worker / 64];
    word = in ? word | bit : word & ~bit;
  }
  void Add(const Workers& others) {
    if (words_.size() < others.words_.size()) words_.resize(others.words_.size());
    for (size_t i = 0; i < others.words_.size(); ++i) words_[i] |= others.words_[i];
  }
  // Returns the only worker in it; kNobody: there is none or several.
  uint32_t Only() const {
    uint32_t only = kNobody;
    for (size_t i = 0; i < words_.size(); ++i) {
      if (words_[i] == 0) continue;
      if (only != kNobody || !std::has_single_bit(words_[i])) return kNobody;
      only = static_cast<uint32_t>(64 * i) + static_cast<uint32_t>(std::countr_zero(words_[i]));
    }
    return only;
  }
  void AddTo(std::set<uint32_t>* set) const {
    for (size_t i = 0; i < words_.size(); ++i) {
      for (uint64_t left = words_[i]; left != 0; left &= left - 1) {
        set->insert(static_cast<uint32_t>(64 * i) + static_cast<uint32_t>(std::countr_zero(left)));
      }
    }
  }

 private:
  std::vector<uint64_t> words_;
};

}  // namespace

// An open round while the lock is held.
struct ShardFigures::OpenRound {
  SteadyTime since = SteadyTime::InfiniteFuture();
  uint64_t partitions = 0;
  std::vector<const std::string*> tensors;  // which stay as long as the figures
  Workers missing;
};

class ShardFigures::Wait final {
 public:
  std::string name;
  uint32_t workers = 0;
  bool open = false;
  uint64_t round = 0;
  SteadyTime since;
  Workers lacks;
  uint32_t alone = kNobody;  // the only worker that is lacking
};

ShardFigures::ShardFigures(const Clock* clock) : clock_(clock) {}
ShardFigures::~ShardFigures() = default;

ShardFigures::Wait* ShardFigures::AddPartition(const std::string& name, uint32_t workers) {
  MutexLock lock(&mutex_);
  if (alone_.size() < workers) alone_.resize(workers);
  Wait& wait = waits_.emplace_back();
  wait.name = name;
  wait.workers = workers;
  wait.lacks.Resize(workers);
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
  for (uint32_t worker = 0; worker < wait->workers; ++worker) {
    wait->lacks.Set(worker, lacks(worker));
  }
  SetAlone(wait, wait->lacks.Only(), now);
}

bool ShardFigures::NotePush(Wait* wait, uint64_t round, uint32_t worker, bool lacks) {
  const SteadyTime now = clock_->Now();
  MutexLock lock(&mutex_);
  if (!wait->open || wait->round != round) return false;
  wait->lacks.Set(worker, lacks);
  SetAlone(wait, wait->lacks.Only(), now);
  return true;
}

void ShardFigures::Close(Wait* wait) {
  MutexLock lock(&mutex_);
  if (!wait->open) return;
  wait->open = false;
  if (wait->alone != kNobody) SetAlone(wait, kNobody, clock_->Now());
}

void ShardFigures::AddTo(ShardSums* sums) const {
  std::map<uint64_t, OpenRound> open;
  Collect(sums, &open);
  for (const auto& [number, part] : open) {
    OpenRoundFigures& round = sums->open[number];
    round.since = std::min(round.since, part.since);
    round.partitions += part.partitions;
    for (const std::string* name : part.tensors) {
      if (round.tensors.size() < OpenRoundFigures::kMaxTensors) round.tensors.insert(*name);
    }
    part.missing.AddTo(&round.missing);
  }
}

void ShardFigures::Collect(ShardSums* sums, std::map<uint64_t, OpenRound>* open) const {
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
    OpenRound& round = (*open)[wait.round];
    round.since = std::min(round.since, wait.since);
    ++round.partitions;
    round.missing.Add(wait.lacks);
    const auto is_it = [&wait](const std::string* name) { return *name == wait.name; };
    if (round.tensors.size() < OpenRoundFigures::kMaxTensors &&
        std::ranges::none_of(round.tensors, is_it)) {
      round.tensors.push_back(&wait.name);
    }
  }
}

}  // namespace slimps
