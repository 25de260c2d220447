// SPDX-License-Identifier: Apache-2.0
#include "compress/codec/sparse/select/selection_run.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstring>
#include <limits>

#include "compress/codec/sparse/select/selection_floor.h"

namespace slimps {
namespace {

// The list has room for max(2 * rank, elements / kListShare) + kListSlack candidates. A fixed floor
// comes without a rank: then for elements / kFixedListShare + kListSlack.
constexpr size_t kListSlack = kBlockElements;
constexpr size_t kListShare = 16;
constexpr size_t kFixedListShare = 8;

// The shifts of the three histograms: they take a key's 31 bits from the highest down, 11, 11 and
// 9.
constexpr uint32_t kShifts[] = {20, 9, 0};

size_t ListRoom(const SelectionGoal& goal, size_t elements) {
  const size_t room = goal.fixed_floor > 0 ? elements / kFixedListShare
                                           : std::max(2 * goal.rank, elements / kListShare);
  return std::min(elements, std::max(room + kListSlack, goal.room));
}

// The bits of floats from 0 up are ordered like the floats.
float NextFloat(float value) { return std::bit_cast<float>(std::bit_cast<uint32_t>(value) + 1); }
// REQUIRES: value > 0.
float FloatBefore(float value) { return std::bit_cast<float>(std::bit_cast<uint32_t>(value) - 1); }

}  // namespace

SelectionRun::SelectionRun(const Kernels& kernels, const EncodeInput& input,
                           std::span<std::byte> payload, EncodeWorkspace& workspace,
                           const SelectionGoal& goal, SparseValues values)
    : kernels_(kernels),
      input_(input),
      workspace_(workspace),
      goal_(goal),
      blocks_(workspace.Take<Block>(Codec::Blocks(input.gradient.size()))),
      builder_(kernels, {.values = values, .elements = input.gradient.size()}, payload, workspace),
      floor_(goal.fixed_floor) {
  list_.Take(workspace, ListRoom(goal, input.gradient.size()));
  std::ranges::fill(blocks_, Block());
}

void SelectionRun::Prepare() {
  if (goal_.fixed_floor > 0) return;
  const SamplePlan plan(input_.gradient.size());
  const std::span<float> keys = workspace_.Take<float>(plan.Size());
  for (size_t i = 0; i < keys.size(); ++i) keys[i] = KeyOf(goal_.by, SampleInput(plan.Element(i)));
  floor_ = GuessFloor(keys, goal_.rank, input_.gradient.size());
}

float SelectionRun::SampleInput(size_t element) const { return InputOf(input_, element); }

Candidates SelectionRun::CollectFirst(size_t block, float floor, uint32_t* index, float* value) {
  const BlockInput in(input_, block);
  return kernels_.select.collect(in.gradient, in.residual, input_.grad_scale, goal_.by, floor,
                                 in.elements, index, value);
}

Selection SelectionRun::Choose(const Listed& listed) {
  return {.sure = listed.floor, .filler = listed.floor, .total = listed.keys.size()};
}

SelectionRun::Source SelectionRun::SourceOf(size_t block) const {
  const BlockInput in(input_, block);
  if (in.residual != nullptr) return {in.residual, 1.0f, in.elements};
  return {in.gradient, input_.grad_scale, in.elements};
}

void SelectionRun::Blocks(size_t /*pass*/, size_t first, size_t last) {
  if (stage_ == Stage::kHistogram) return CountHistogram(first, last);
  for (size_t block = first; block < last; ++block) {
    switch (stage_) {
      case Stage::kCollect:
        Collect(block);
        break;
      case Stage::kCount:
        Count(block);
        break;
      case Stage::kPick:
        Pick(block);
        break;
      case Stage::kWrite:
        // What a block sends is scattered over memory, which answers while this block is written.
        if (block + 1 < last) Prefetch(block + 1);
        Write(block);
        break;
      case Stage::kHistogram:
      case Stage::kDone:
        break;
    }
  }
}

void SelectionRun::EndPass(size_t pass) {
  switch (stage_) {
    case Stage::kCollect:
      stage_ = EndCollect();
      break;
    case Stage::kHistogram:
      stage_ = EndHistogram();
      break;
    case Stage::kCount:
      stage_ = EndCount();
      break;
    case Stage::kPick:
      stage_ = EndPick();
      break;
    case Stage::kWrite:
    case Stage::kDone:
      stage_ = Stage::kDone;
      return;
  }
  passes_ = pass + 2;
}

void SelectionRun::Collect(size_t block) {
  uint32_t index[kBlockRoom];
  float value[kBlockRoom];
  Candidates found;
  if (!x_ready_) {
    found = CollectFirst(block, floor_, index, value);
  } else {
    const Source x = SourceOf(block);
    found = kernels_.select.collect(x.values, nullptr, x.scale, goal_.by, floor_, x.elements, index,
                                    value);
  }
  Block& its = blocks_[block];
  its.offset = list_.Append(index, value, found.count);
  its.listed = found.count;
  its.rest2 = found.rest2;
  its.magnitude_sum = found.magnitude_sum;
  its.magnitude_max = found.magnitude_max;
}

SelectionRun::Stage SelectionRun::EndCollect() {
  x_ready_ = true;
  const size_t listed = list_.used();
  if (goal_.fixed_floor > 0) {
    selection_ = {.sure = floor_, .filler = floor_, .total = listed};
  } else {
    // Fewer than `rank` are enough if the floor is exact, or if every key over 0 is listed.
    const bool all = floor_is_exact_ || floor_ == std::numeric_limits<float>::denorm_min();
    if (!list_.complete() || (listed < goal_.rank && !all)) {
      histogram_ = workspace_.Take<uint32_t>(kHistogramCounts);
      histogram_rank_ = goal_.rank;
      BeginHistogram(kShifts[0]);
      return Stage::kHistogram;
    }
    selection_ = Choose(MakeListed());
  }
  fills_from_list_ = selection_.filler >= floor_;
  return Stage::kCount;
}

Listed SelectionRun::MakeListed() {
  Listed listed = {.keys = workspace_.Take<float>(list_.used()),
                   .floor = floor_,
                   .below_floor = floor_ > 0 ? FloatBefore(floor_) : 0,
                   .elements = input_.gradient.size()};
  std::ranges::transform(list_.values(), listed.keys.begin(),
                         [this](float x) { return KeyOf(goal_.by, x); });
  for (const Block& block : blocks_) {
    listed.magnitude_sum += static_cast<double>(block.magnitude_sum);
    listed.magnitude_max = std::max(listed.magnitude_max, block.magnitude_max);
  }
  return listed;
}

void SelectionRun::BeginHistogram(uint32_t shift) {
  histogram_shift_ = shift;
  std::ranges::fill(histogram_, 0);
}

void SelectionRun::CountHistogram(size_t first, size_t last) {
  // Counts here first: an atomic addition per bucket costs less than one per element.
  uint32_t counts[kHistogramCounts] = {};
  // The last histogram has two bits more than are still unknown; EndHistogram leaves out the keys
  // that do not match those two.
  const uint32_t prefix = histogram_shift_ == 0 ? known_bits_ >> 2 : known_bits_;
  for (size_t block = first; block < last; ++block) {
    const Source x = SourceOf(block);
    kernels_.select.histogram(x.values, x.scale, goal_.by, histogram_shift_, prefix, x.elements,
                              counts);
  }
  for (size_t i = 0; i < kHistogramCounts; ++i) {
    if (counts[i] == 0) continue;
    // Relaxed: the end of the pass publishes the counts.
    std::atomic_ref(histogram_[i]).fetch_add(counts[i], std::memory_order_relaxed);
  }
}

SelectionRun::Stage SelectionRun::EndHistogram() {
  const bool is_last = histogram_shift_ == 0;
  uint32_t bucket = kHistogramCounts - 1;
  if (is_last) bucket = (known_bits_ & 3) << 9 | 0x1ff;
  // From the largest keys down, to the bucket that holds the rank-th.
  while (histogram_[bucket] < histogram_rank_) histogram_rank_ -= histogram_[bucket--];
  if (!is_last) {
    known_bits_ = known_bits_ << kHistogramBits | bucket;
    BeginHistogram(histogram_shift_ == kShifts[0] ? kShifts[1] : kShifts[2]);
    return Stage::kHistogram;
  }
  const uint32_t key = (known_bits_ >> 2) << kHistogramBits | bucket;
  // Fewer than `rank` keys are over this one, so the list has room for them.
  floor_ = NextFloat(std::bit_cast<float>(key));
  floor_is_exact_ = true;
  list_.Clear();
  return Stage::kCollect;
}

void SelectionRun::Count(size_t block) {
  Block& its = blocks_[block];
  const Choice choice = {.sure = selection_.sure, .filler = selection_.filler, .fill = 0};
  if (list_.complete() && fills_from_list_) {
    its.counts = kernels_.select.count(list_.values().data() + its.offset, 1.0f, goal_.by, choice,
                                       its.listed);
    return;
  }
  const Source x = SourceOf(block);
  its.counts = kernels_.select.count(x.values, x.scale, goal_.by, choice, x.elements);
}

SelectionRun::Stage SelectionRun::EndCount() {
  size_t sure = 0, sent = 0;
  for (const Block& block : blocks_) sure += block.counts.sure;
  // Elements fill up in the order of the blocks, so those with the lower index come first.
  size_t fill = selection_.total - std::min(selection_.total, sure);
  for (Block& block : blocks_) {
    block.fill = static_cast<uint32_t>(std::min<size_t>(fill, block.counts.filler));
    fill -= block.fill;
    block.sent_from = static_cast<uint32_t>(sent);
    block.sent = block.counts.sure + block.fill;
    sent += block.sent;
  }
  sent_index_ = workspace_.Take<uint32_t>(sent);
  sent_value_ = workspace_.Take<float>(sent);
  return Stage::kPick;
}

void SelectionRun::Pick(size_t block) {
  Block& its = blocks_[block];
  const Choice choice = {.sure = selection_.sure, .filler = selection_.filler, .fill = its.fill};
  uint32_t index[kBlockRoom];
  float value[kBlockRoom];
  if (FromList(its)) {
    const Picked picked = kernels_.select.pick(list_.values().data() + its.offset,
                                               list_.indices().data() + its.offset, 1.0f, goal_.by,
                                               choice, its.listed, index, value);
    its.left2 = its.rest2 + picked.left2;
  } else {
    const Source x = SourceOf(block);
    its.left2 =
        kernels_.select.pick(x.values, nullptr, x.scale, goal_.by, choice, x.elements, index, value)
            .left2;
  }
  if (builder_.layout().values >= SparseValues::kOne) its.by_sign = SumBySign({value, its.sent});
  std::memcpy(sent_index_.data() + its.sent_from, index, its.sent * sizeof *index);
  std::memcpy(sent_value_.data() + its.sent_from, value, its.sent * sizeof *value);
  builder_.SetBlock(block, {index, its.sent});
}

// Sums without branches, because signs follow no pattern.
SelectionRun::SentOfSign SelectionRun::SumBySign(std::span<const float> values) {
  SentOfSign sums;
  for (const float value : values) {
    const bool positive = value >= 0;
    sums.positive += static_cast<double>(positive ? value : 0.0f);
    sums.negative += static_cast<double>(positive ? 0.0f : value);
    sums.positives += positive ? 1 : 0;
  }
  sums.negatives = static_cast<uint32_t>(values.size()) - sums.positives;
  return sums;
}

SelectionRun::Stage SelectionRun::EndPick() {
  SentOfSign all;
  for (const Block& block : blocks_) {
    all.positive += block.by_sign.positive;
    all.negative += block.by_sign.negative;
    all.positives += block.by_sign.positives;
    all.negatives += block.by_sign.negatives;
  }
  const Scales scales = ScalesOf(all);
  builder_.Plan(scales.scale0, scales.scale1);
  return Stage::kWrite;
}

void SelectionRun::Prefetch(size_t block) const {
  const Block& its = blocks_[block];
  const std::span<const uint32_t> index = sent_index_.subspan(its.sent_from, its.sent);
  PrefetchSent(block, index);
  if (input_.residual.empty()) return;
  kernels_.sparse.prefetch(index.data(), index.size(),
                           input_.residual.data() + block * kBlockElements);
}

void SelectionRun::Write(size_t block) {
  Block& its = blocks_[block];
  const std::span<const uint32_t> index = sent_index_.subspan(its.sent_from, its.sent);
  WriteSent(kernels_, input_, block, index, sent_value_.subspan(its.sent_from, its.sent), builder_,
            its);
  AfterSend(block, index);
}

EncodeStats SelectionRun::Finish() { return StatsOf<Block>(blocks_, builder_.Finish()); }

}  // namespace slimps
