// SPDX-License-Identifier: Apache-2.0
#include "compress/policy/threshold_choice.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <utility>

#include "compress/policy/link_model.h"
#include "compress/policy/measured_rounds.h"

namespace slimps {
namespace {

// A move must save so much of the time of the sizes that change sides. On a fast link whole classes
// differ by a few percent only, so that a move within one class needs more.
constexpr double kMoveOneClass = 1.05;
constexpr double kMoveFurther = 1.01;

// Times of all tensors of one size together.
struct Size {
  uint64_t bytes = 0;
  double t_c = 0, t_q = 0;  // ns
};

// Returns the sizes whose times are known, going up.
std::vector<Size> SizesOf(std::span<const ThresholdRow> rows) {
  std::vector<Size> sizes;
  for (const ThresholdRow& row : DecidedRows(rows)) {
    if (!row.complete()) continue;
    sizes.push_back({row.bytes, row.weight() * absl::ToDoubleNanoseconds(row.t_c),
                     row.weight() * absl::ToDoubleNanoseconds(row.t_q())});
  }
  return sizes;
}

std::optional<uint64_t> Best(const std::vector<Size>& sizes) {
  std::optional<uint64_t> best;
  // From the largest size down: a threshold compresses its own size and all above.
  double saved = 0, most = 0;
  for (auto size = sizes.rbegin(); size != sizes.rend(); ++size) {
    saved += size->t_c - size->t_q;
    if (saved <= most) continue;
    most = saved;
    best = size->bytes;
  }
  return best;
}

bool IsCompressed(uint64_t bytes, std::optional<uint64_t> threshold) {
  return threshold.has_value() && bytes >= *threshold;
}

// Returns the threshold's size class. No threshold lies one class above all sizes.
int ClassOf(std::optional<uint64_t> threshold, const std::vector<Size>& sizes) {
  const int above_all = SizeClass(sizes.back().bytes) + 1;
  return threshold.has_value() ? std::min(SizeClass(*threshold), above_all) : above_all;
}

bool AreNear(std::optional<uint64_t> a, std::optional<uint64_t> b, const std::vector<Size>& sizes) {
  return std::abs(ClassOf(a, sizes) - ClassOf(b, sizes)) <= 1;
}

// True if the sizes that have `samples` are far enough apart to tell about the other sizes, or
// include both the smallest and the largest.
bool CoversSizes(std::span<const ThresholdRow> rows, uint64_t ThresholdRow::*samples) {
  uint64_t smallest = std::numeric_limits<uint64_t>::max(), largest = 0;
  for (const ThresholdRow& row : rows) {
    if (row.*samples == 0) continue;
    smallest = std::min(smallest, row.bytes);
    largest = std::max(largest, row.bytes);
  }
  return largest / kSizeRange >= smallest ||
         (smallest == rows.front().bytes && largest == rows.back().bytes);
}

bool CoversSizes(std::span<const ThresholdRow> rows) {
  return !rows.empty() && CoversSizes(rows, &ThresholdRow::raw_samples) &&
         CoversSizes(rows, &ThresholdRow::compressed_samples);
}

// Returns the best threshold if the move saves enough, else the one in force.
std::optional<uint64_t> Moved(const std::vector<Size>& sizes, std::optional<uint64_t> in_force) {
  if (sizes.empty()) return in_force;
  const std::optional<uint64_t> best = Best(sizes);
  // Only sizes that change sides differ in time.
  double time_in_force = 0, time_best = 0;
  for (const Size& size : sizes) {
    const bool compressed = IsCompressed(size.bytes, in_force);
    if (compressed == IsCompressed(size.bytes, best)) continue;
    time_in_force += compressed ? size.t_q : size.t_c;
    time_best += compressed ? size.t_c : size.t_q;
  }
  const double worth = AreNear(best, in_force, sizes) ? kMoveOneClass : kMoveFurther;
  return time_in_force > worth * time_best ? best : in_force;
}

// No threshold lies above all thresholds.
uint64_t Height(std::optional<uint64_t> threshold) {
  return threshold.value_or(std::numeric_limits<uint64_t>::max());
}

absl::Duration FromNanoseconds(double ns) {
  return absl::Nanoseconds(
      std::llround(std::clamp(ns, 0.0, absl::ToDoubleNanoseconds(absl::Hours(1)))));
}

}  // namespace

std::vector<ThresholdRow> DecidedRows(std::span<const ThresholdRow> rows) {
  std::vector<ThresholdRow> decided(rows.begin(), rows.end());
  const LinkModel model(rows);
  if (!model.known()) return decided;
  for (ThresholdRow& row : decided) {
    const PushTimes times = model.At(row.bytes);
    row.t_c = FromNanoseconds(times.t_c);
    row.t_cq = FromNanoseconds(times.t_cq);
    row.t_pq = FromNanoseconds(times.t_pq);
    row.raw_samples = std::max<uint64_t>(row.raw_samples, 1);
    row.compressed_samples = std::max<uint64_t>(row.compressed_samples, 1);
  }
  return decided;
}

StepEstimate EstimateStep(std::span<const ThresholdRow> rows, std::optional<uint64_t> threshold) {
  StepEstimate step;
  for (const ThresholdRow& row : DecidedRows(rows)) {
    if (!row.complete()) continue;
    step.tensors += std::max<uint64_t>(row.tensors, 1);
    step.raw += row.weight() * row.t_c;
    if (IsCompressed(row.bytes, threshold)) step.saved += row.weight() * (row.t_c - row.t_q());
  }
  return step;
}

bool AreComparable(std::span<const ThresholdRow> rows) {
  const auto has = [rows](uint64_t ThresholdRow::*samples) {
    return std::ranges::any_of(rows, [=](const ThresholdRow& row) { return row.*samples > 0; });
  };
  return has(&ThresholdRow::raw_samples) && has(&ThresholdRow::compressed_samples);
}

std::optional<uint64_t> BestThreshold(std::span<const ThresholdRow> rows) {
  return Best(SizesOf(rows));
}

std::optional<uint64_t> FollowedThreshold::Move(std::span<const ThresholdRow> rows) {
  if (!CoversSizes(rows)) return in_force_;
  const std::vector<Size> sizes = SizesOf(rows);
  const std::optional<uint64_t> wanted = Moved(sizes, in_force_);
  const std::optional<Asked> before = std::exchange(asked_, std::nullopt);
  if (wanted == in_force_) return in_force_;
  const bool near =
      wanted.has_value() && in_force_.has_value() && AreNear(wanted, in_force_, sizes);
  if (near) return in_force_ = wanted;
  const bool up = Height(wanted) > Height(in_force_);
  if (!before.has_value() || (Height(before->threshold) > Height(in_force_)) != up) {
    asked_ = Asked{wanted};
    return in_force_;
  }
  // A move to none needs both tables to ask for none. If only this one does, the table before names
  // a threshold in the same direction.
  return in_force_ = wanted.has_value() ? wanted : before->threshold;
}

}  // namespace slimps
