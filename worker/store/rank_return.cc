// SPDX-License-Identifier: Apache-2.0
#include "worker/store/rank_return.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "glog/logging.h"
#include "proto/base/status_macros.h"
#include "proto/partition_limits.h"
#include "worker/courier/item_gathering.h"
#include "worker/store/store_init.h"

namespace slimps {
namespace {

// Until the servers are asked again.
void Pause() {
  Mutex mutex;
  CondVar pause;
  MutexLock lock(&mutex);
  pause.WaitFor(&mutex, absl::Milliseconds(100));
}

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
  for (size_t i = 0; i < answers.size(); ++i) {
    (*asked)[i].standing = answers[i].standing;
    (*asked)[i].rounds_ahead = answers[i].durable.has_value() ? kReplayedRoundsAhead : kRoundsAhead;
  }
  return absl::OkStatus();
}

bool RankReturn::RoundsMayBegin(const std::vector<Asked>& asked) {
  uint64_t newest = 0;
  bool all = true;
  for (const Asked& one : asked) {
    newest = std::max(newest, one.standing.newest());
    all = all && one.standing.newest() > 0;
  }
  return !all && newest > 0 && newest <= kRoundsAhead;
}

absl::Status RankReturn::TakeUp(const std::vector<TensorPlan>& tensors, Combine combine,
                                const char* hindrance) {
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
      one.nothing.set_left_out(true);
    }
  }
  const SteadyTime end = options_.clock->Now() + options_.patience;
  std::vector<Asked> all;
  uint64_t next_round = 0;
  {
    MutexLock lock(&mutex_);
    all = asked_;
    next_round = next_round_;
  }
  const auto before = static_cast<std::ptrdiff_t>(all.size());
  size_t pushes = 0;
  for (;;) {
    SLIMPS_RETURN_IF_ERROR(Ask(&asked));
    JoinTensors(&asked);
    all.erase(all.begin() + before, all.end());
    std::ranges::copy(asked, std::back_inserter(all));
    for (const Asked& one : all) next_round = std::max(next_round, one.standing.next_round());
    SLIMPS_RETURN_IF_ERROR(Check(all, next_round, hindrance));
    // Others may wait for these pushes before they begin another tensor's rounds.
    SLIMPS_ASSIGN_OR_RETURN(const size_t more, PushNothing(next_round, &all));
    pushes += more;
    if (next_round == 1 || !RoundsMayBegin(asked) || options_.clock->Now() >= end) break;
    Pause();
  }
  LOG(INFO) << "worker " << node_->rank() << " took its rank back and goes on with round "
            << next_round << "; its former process left " << pushes
            << " pushes out, whose rounds are complete without them, and its residuals are lost";
  SLIMPS_RETURN_IF_ERROR(node_->Persist());
  MutexLock lock(&mutex_);
  asked_ = std::move(all);
  next_round_ = next_round;
  return absl::OkStatus();
}

void RankReturn::JoinTensors(std::vector<Asked>* asked) {
  std::map<KeyId, uint64_t> newest;
  for (const Asked& one : *asked) {
    uint64_t& of_tensor = newest[one.key.id()];
    of_tensor = std::max(of_tensor, one.standing.newest());
  }
  for (Asked& one : *asked) one.standing.set_newest(newest[one.key.id()]);
}

absl::Status RankReturn::Check(const std::vector<Asked>& asked, uint64_t next_round,
                               const char* hindrance) const {
  if (next_round == 1) return absl::OkStatus();
  const std::string who = absl::StrCat("worker ", node_->rank(), " was started again");
  for (const Asked& one : asked) {
    const wire::Standing& standing = one.standing;
    if (standing.optimizer() == wire::OptimizerSpec::ONEBIT_ADAM) {
      hindrance = "its optimizer is onebit_adam";
    }
    if (standing.newest() == 0) continue;
    if (standing.next_round() + one.rounds_ahead < next_round ||
        standing.newest() > standing.next_round() + kReplayedRoundsAhead) {
      return absl::DataLossError(absl::StrCat(
          who, ": the job is done with its rounds up to ", next_round - 1, ", but of key ",
          one.key.typed_name(), ", which others pushed up to round ", standing.newest(),
          ", server ", one.server, " is done with its rounds up to ", standing.next_round() - 1,
          " alone: some were lost with the process and the server, or not every step pushes the "
          "key"));
    }
  }
  if (hindrance == nullptr) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat(who, ", but the job cannot go on with it: ", hindrance,
                   ", for which its former process knew what is lost; expected a fixed codec or a "
                   "threshold, and "
                   "another optimizer"));
}

absl::StatusOr<size_t> RankReturn::PushNothing(uint64_t next_round, std::vector<Asked>* all) {
  ItemGathering gathering(node_->courier(), {});
  size_t pushes = 0;
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
  return pushes;
}

}  // namespace slimps
