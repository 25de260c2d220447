// SPDX-License-Identifier: Apache-2.0
#include "worker/store/rank_return.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "glog/logging.h"
#include "proto/base/status_macros.h"
#include "proto/partition_limits.h"
#include "worker/courier/item_gathering.h"
#include "worker/store/store_init.h"

namespace slimps {
namespace {

// How long a tensor that no worker has pushed yet is waited for in a job's first rounds.
constexpr absl::Duration kPatience = absl::Seconds(5);
constexpr absl::Duration kAskAgain = absl::Milliseconds(100);

}  // namespace

uint64_t RankReturn::rounds() const {
  MutexLock lock(&mutex_);
  return next_round_ - 1;
}

void RankReturn::AddRounds() {
  MutexLock lock(&mutex_);
  for (const Asked& one : asked_) {
    if (one.standing.newest() > 0) keys_->SkipRounds(one.key, next_round_ - 1);
  }
}

absl::Status RankReturn::Ask(std::vector<Asked>* asked) {
  ItemGathering gathering(node_->courier(), {});
  for (const Asked& one : *asked) {
    gathering.Add(
        one.server,
        {.item = one.question, .payload = {}, .key_name = one.key.typed_name(), .done = {}});
  }
  SLIMPS_ASSIGN_OR_RETURN(const std::vector<Answer> answers, node_->AwaitAnswers(gathering));
  for (size_t i = 0; i < answers.size(); ++i) (*asked)[i].standing = answers[i].standing;
  return absl::OkStatus();
}

absl::Status RankReturn::AskWhileRoundsBegin(std::vector<Asked>* asked) {
  const SteadyTime end = clock_->Now() + kPatience;
  for (;;) {
    SLIMPS_RETURN_IF_ERROR(Ask(asked));
    uint64_t newest = 0;
    bool all = true;
    for (const Asked& one : *asked) {
      newest = std::max(newest, one.standing.newest());
      all = all && one.standing.newest() > 0;
    }
    if (all || newest == 0 || newest > kRoundsAhead || clock_->Now() >= end) {
      return absl::OkStatus();
    }
    Mutex mutex;
    CondVar pause;
    MutexLock lock(&mutex);
    pause.WaitFor(&mutex, kAskAgain);
  }
}

absl::Status RankReturn::TakeUp(const std::vector<TensorPlan>& tensors, Combine combine) {
  std::vector<Asked> asked;
  for (const TensorPlan& tensor : tensors) {
    for (size_t i = 0; i < tensor.partitions.size(); ++i) {
      Asked& one = asked.emplace_back(Asked{.server = tensor.partitions[i].server,
                                            .key = tensor.key,
                                            .question = MakeInitItem(tensor, i, combine)});
      one.question.set_format(wire::ABSENT);
      *one.nothing.mutable_id() = one.question.id();
      one.nothing.set_elements(tensor.partitions[i].elements);
      one.nothing.set_format(wire::ABSENT);
    }
  }
  SLIMPS_RETURN_IF_ERROR(AskWhileRoundsBegin(&asked));
  MutexLock lock(&mutex_);
  std::ranges::move(asked, std::back_inserter(asked_));
  uint64_t next_round = next_round_;
  for (const Asked& one : asked_) next_round = std::max(next_round, one.standing.next_round());
  for (const Asked& one : asked_) {
    if (one.standing.newest() == 0 || one.standing.next_round() + kRoundsAhead >= next_round) {
      continue;
    }
    return absl::DataLossError(absl::StrCat(
        "worker ", node_->rank(), " was started again: its former process pushed rounds up to ",
        next_round - 1, ", but of key ", one.key.typed_name(), " server ", one.server, " has ",
        one.standing.next_round() - 1, ": some were lost with both, or not every step pushes it"));
  }
  SLIMPS_RETURN_IF_ERROR(PushNothing(next_round, &asked_));
  next_round_ = next_round;
  SLIMPS_RETURN_IF_ERROR(node_->Persist());
  node_->NoteFormerSaved();
  return absl::OkStatus();
}

absl::Status RankReturn::PushNothing(uint64_t next_round, std::vector<Asked>* all) {
  size_t pushes = 0;
  ItemGathering gathering(node_->courier(), {});
  const auto push = [&](const Asked& one, uint64_t round) {
    wire::PushItem nothing = one.nothing;
    nothing.set_round(round);
    gathering.Add(
        one.server,
        {.item = std::move(nothing), .payload = {}, .key_name = one.key.typed_name(), .done = {}});
    ++pushes;
  };
  for (Asked& one : *all) {
    if (one.standing.newest() == 0) continue;
    for (const uint64_t round : one.standing.holes()) push(one, round);
    for (uint64_t round = one.standing.next_round(); round < next_round; ++round) push(one, round);
    one.standing.clear_holes();
    one.standing.set_next_round(next_round);
  }
  SLIMPS_RETURN_IF_ERROR(node_->AwaitAnswers(gathering).status());
  LOG(INFO) << "worker " << node_->rank() << " took its rank back and goes on with round "
            << next_round << "; its former process left " << pushes
            << " pushes out, whose rounds are complete without them, and its residuals are lost";
  return absl::OkStatus();
}

}  // namespace slimps
