// SPDX-License-Identifier: Apache-2.0
#include "server/round/open_rounds.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "compress/kernels/frozen_variance.h"
#include "proto/base/simulation/simulation.h"
#include "proto/base/status_macros.h"
#include "proto/base/trace/trace.h"

namespace slimps {
namespace {

// Folding passes over the sum so far again. It must release at least 1 / kWorthFolding of a dense
// sum.
constexpr size_t kWorthFolding = 8;

}  // namespace

OpenRounds::OpenRounds(const PartitionSpec& spec)
    : spec_(spec),
      ledger_(spec.num_workers, spec.waiting, spec.rounds_ahead),
      partial_(spec.elements) {}

absl::StatusOr<PushVerdict> OpenRounds::Push(PushRecord push,
                                             std::shared_ptr<const ChangeCodec> change,
                                             std::optional<wire::Hyper> hyper,
                                             std::span<const uint32_t> unmasked) {
  const uint32_t worker = push.worker;
  const bool left_out = push.left_out;  // then it chooses nothing
  // Allocated before the push counts, so that nothing can fail afterwards. If the push throws, the
  // entry stays behind empty, and any worker overrides it.
  const auto [choice, is_first] = choices_.try_emplace(push.round, Choice());
  std::vector<uint32_t> all_unmasked = UnionOfRuns(choice->second.unmasked, unmasked);
  absl::StatusOr<PushVerdict> verdict = ledger_.Push(std::move(push));
  if (verdict.ok() && *verdict == PushVerdict::kAccepted) {
    Choice& chosen = choice->second;
    if (worker < chosen.worker && !left_out) {
      chosen.worker = worker;
      chosen.codec = std::move(change);
    }
    if (hyper.has_value() && worker < chosen.hyper_worker && !left_out) {
      chosen.hyper_worker = worker;
      chosen.hyper = std::move(hyper);
    }
    chosen.unmasked = std::move(all_unmasked);
    if (spec_.waiting->is_tight() && !ledger_.NextRoundComplete()) Fold();
  } else if (is_first) {
    choices_.erase(choice);
  }
  return verdict;
}

absl::Status OpenRounds::Leave(uint32_t worker, uint64_t from_round) {
  return ledger_.Leave(worker, from_round);
}

void OpenRounds::CloseNext() {
  Fold();
  ledger_.CloseNextRound();
}

void OpenRounds::Fold() {
  // A maximum is no sum. It is taken of numbers that are few.
  if (spec_.combine == Combine::kMaximum) return;
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
  if (simulation::Active()) {
    const std::string workers = absl::StrJoin(ledger_.Contributors(ledger_.version()), ",");
    simulation::Note(absl::StrCat("counts ", spec_.name, " ", spec_.index, " ", ledger_.version(),
                                  " ", workers));
  }
  return round;
}

void OpenRounds::ClearPartial() {
  spec_.waiting->Remove(partial_.bytes());
  partial_.Clear();
}

void OpenRounds::Save(saved::OpenRounds* fields, PartitionImage* image) const {
  ledger_.Save(fields->mutable_ledger(), image);
  partial_.Save(fields->mutable_partial(), image);
  for (const auto& [round, choice] : choices_) {
    saved::Choice& saved = *fields->add_choices();
    saved.set_round(round);
    saved.set_worker(choice.worker);
    if (choice.codec != nullptr) saved.set_codec(choice.codec->codec->spec().ToString());
    saved.set_hyper_worker(choice.hyper_worker);
    if (choice.hyper.has_value()) *saved.mutable_hyper() = *choice.hyper;
    saved.mutable_unmasked()->Add(choice.unmasked.begin(), choice.unmasked.end());
  }
}

absl::Status OpenRounds::Restore(const saved::OpenRounds& fields, const PartitionImage& image,
                                 ChangeCodecs* codecs) {
  SLIMPS_RETURN_IF_ERROR(ledger_.Restore(fields.ledger(), spec_.elements, image));
  SLIMPS_RETURN_IF_ERROR(partial_.Restore(fields.partial(), image));
  spec_.waiting->Add(partial_.bytes());
  for (const saved::Choice& saved : fields.choices()) {
    Choice& choice = choices_[saved.round()];
    choice.worker = saved.worker();
    SLIMPS_ASSIGN_OR_RETURN(choice.codec, codecs->Find(saved.codec()));
    choice.hyper_worker = saved.hyper_worker();
    if (saved.has_hyper()) choice.hyper = saved.hyper();
    choice.unmasked.assign(saved.unmasked().begin(), saved.unmasked().end());
    if (!AreRuns(choice.unmasked, spec_.elements)) {
      return BadImage(absl::StrCat("round ", saved.round(), " unmasks no runs of elements"));
    }
  }
  return absl::OkStatus();
}

}  // namespace slimps
