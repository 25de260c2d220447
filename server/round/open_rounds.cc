// SPDX-License-Identifier: Apache-2.0
#include "server/round/open_rounds.h"

#include <algorithm>
#include <utility>

#include "proto/base/trace/trace.h"

namespace slimps {
namespace {

// Folding passes over the sum so far again. It must release at least 1 / kWorthFolding of a dense
// sum.
constexpr size_t kWorthFolding = 8;

}  // namespace

OpenRounds::OpenRounds(const PartitionSpec& spec)
    : spec_(spec), ledger_(spec.num_workers, spec.waiting), partial_(spec.elements) {}

absl::StatusOr<PushVerdict> OpenRounds::Push(PushRecord push,
                                             std::shared_ptr<const ChangeCodec> change,
                                             std::optional<wire::Hyper> hyper) {
  const uint32_t worker = push.worker;
  // Allocated before the push counts, so that nothing can fail afterwards. If the push throws, the
  // entry stays behind empty, and any worker overrides it.
  const auto [choice, is_first] = choices_.try_emplace(push.round, Choice());
  absl::StatusOr<PushVerdict> verdict = ledger_.Push(std::move(push));
  if (verdict.ok() && *verdict == PushVerdict::kAccepted) {
    Choice& chosen = choice->second;
    if (worker < chosen.worker) {
      chosen.worker = worker;
      chosen.codec = std::move(change);
    }
    if (hyper.has_value() && worker < chosen.hyper_worker) {
      chosen.hyper_worker = worker;
      chosen.hyper = std::move(hyper);
    }
    FoldIfTight();
  } else if (is_first) {
    choices_.erase(choice);
  }
  return verdict;
}

absl::Status OpenRounds::Leave(uint32_t worker, uint64_t from_round) {
  return ledger_.Leave(worker, from_round);
}

void OpenRounds::FoldIfTight() {
  // A maximum is no sum. It is taken of numbers that are few.
  if (spec_.combine == Combine::kMaximum) return;
  if (!spec_.waiting->is_tight() || ledger_.NextRoundComplete()) return;
  // Folding must free more than the sum grows, and enough to pay for a pass over the sum so far.
  const size_t before = partial_.bytes(), dense = partial_.dense_bytes();
  const size_t growth = dense > before ? dense - before : 0;
  const size_t bytes = ledger_.prefix_bytes();
  if (bytes == 0 || bytes < std::max(growth, dense / kWorthFolding)) return;
  const std::vector<Contribution> prefix = ledger_.Prefix();
  // One alone may be stepped by as it came (partial_sum.h).
  if (partial_.contributors() + prefix.size() < 2) return;
  const TraceSpan span(TraceStage::kAggregate, {spec_.name, spec_.index, ledger_.version() + 1});
  partial_.Add(prefix);
  ledger_.ReleasePrefix();
  spec_.waiting->Add(partial_.bytes());
  spec_.waiting->Remove(before);
}

OpenRounds::Round OpenRounds::TakeNext() {
  Round round;
  if (auto choice = choices_.extract(ledger_.version() + 1)) {
    round.choice = std::move(choice.mapped());
  }
  round.contributions = ledger_.TakeNextRound();
  return round;
}

void OpenRounds::ClearPartial() {
  spec_.waiting->Remove(partial_.bytes());
  partial_.Clear();
}

}  // namespace slimps
