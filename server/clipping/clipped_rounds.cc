// SPDX-License-Identifier: Apache-2.0
#include "server/clipping/clipped_rounds.h"

#include "absl/strings/str_cat.h"

namespace slimps {

absl::Status ClippedRounds::SetScale(uint64_t round, double scale) {
  std::optional<double>& known = rounds_[round].scale;
  if (known.value_or(scale) != scale) {
    return absl::AlreadyExistsError(
        absl::StrCat("its gradient is scaled by ", scale, ", and another worker said ", *known,
                     "; expected the same clip_norm and the same parameters on all workers"));
  }
  known = scale;
  return absl::OkStatus();
}

std::optional<double> ClippedRounds::Norm2(uint64_t round) const {
  const Round* const found = Find(round);
  return found == nullptr ? std::nullopt : found->norm2;
}

std::optional<double> ClippedRounds::Scale(uint64_t round) const {
  const Round* const found = Find(round);
  return found == nullptr || !found->clipped ? std::nullopt : found->scale;
}

void ClippedRounds::Applied(uint64_t version) {
  while (!rounds_.empty() && rounds_.begin()->first + 1 < version) rounds_.erase(rounds_.begin());
}

uint64_t ClippedRounds::ScaledUpTo(uint64_t version, uint64_t counted) const {
  for (auto next = rounds_.upper_bound(version); next != rounds_.end(); ++next) {
    if (next->first > counted) break;
    if (AwaitsScale(next->first)) return next->first - 1;
  }
  return counted;
}

void ClippedRounds::Save(saved::Partition* fields) const {
  for (const auto& [number, round] : rounds_) {
    saved::ClippedRound& saved = *fields->add_clipped();
    saved.set_round(number);
    saved.set_clipped(round.clipped);
    if (round.norm2.has_value()) saved.set_norm2(*round.norm2);
    if (round.scale.has_value()) saved.set_scale(*round.scale);
  }
}

void ClippedRounds::Restore(const saved::Partition& fields) {
  for (const saved::ClippedRound& saved : fields.clipped()) {
    Round& round = rounds_[saved.round()];
    round.clipped = saved.clipped();
    if (saved.has_norm2()) round.norm2 = saved.norm2();
    if (saved.has_scale()) round.scale = saved.scale();
  }
}

}  // namespace slimps
