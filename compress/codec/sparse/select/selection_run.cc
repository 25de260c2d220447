// SPDX-License-Identifier: Apache-2.0
#include "compress/codec/sparse/select/selection_run.h"

#include <algorithm>
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

EncodeStats SelectionRun::Run() {
  if (goal_.fixed_floor > 0) {
    CollectAll();
    selection_ = {.sure = floor_, .filler = floor_, .total = list_.used()};
  } else {
    floor_ = GuessFirstFloor();
    CollectAll();
    // Fewer than `rank` are enough if every key over 0 is listed.
    const bool enough =
        list_.used() >= goal_.rank || floor_ == std::numeric_limits<float>::denorm_min();
    if (!list_.complete() || !enough) CollectAgain();
    selection_ = Choose(MakeListed());
  }
  fills_from_list_ = selection_.filler >= floor_;
  Count();
  const Scales scales = ScalesOf(Pick());
  builder_.Plan(scales.scale0, scales.scale1);
  Write();
  return StatsOf<Block>(blocks_, builder_.payload_bytes());
}

float SelectionRun::GuessFirstFloor() {
  const SamplePlan plan(input_.gradient.size());
  const std::span<float> keys = workspace_.Take<float>(plan.Size());
  for (size_t i = 0; i < keys.size(); ++i) keys[i] = KeyOf(goal_.by, SampleInput(plan.Element(i)));
  return GuessFloor(keys, goal_.rank, input_.gradient.size());
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

void SelectionRun::CollectAll() {
  uint32_t index[kBlockRoom];
  float value[kBlockRoom];
  for (size_t block = 0; block < blocks_.size(); ++block) {
    const Candidates found = CollectFirst(block, floor_, index, value);
    KeepCandidates(block, found, index, value);
    magnitude_sum_ += static_cast<double>(found.magnitude_sum);
    magnitude_max_ = std::max(magnitude_max_, found.magnitude_max);
  }
}

void SelectionRun::CollectAgain() {
  // Fewer than `rank` keys are over that one, so the list has room for them.
  floor_ = NextFloat(RankthKey());
  list_.Clear();
  uint32_t index[kBlockRoom];
  float value[kBlockRoom];
  for (size_t block = 0; block < blocks_.size(); ++block) {
    const Source x = SourceOf(block);
    const Candidates found = kernels_.select.collect(x.values, nullptr, x.scale, goal_.by, floor_,
                                                     x.elements, index, value);
    KeepCandidates(block, found, index, value);
  }
}

void SelectionRun::KeepCandidates(size_t block, const Candidates& found, const uint32_t* index,
                                  const float* value) {
  Block& its = blocks_[block];
  its.offset = list_.Append(index, value, found.count);
  its.listed = found.count;
  its.rest2 = found.rest2;
}

float SelectionRun::RankthKey() const {
  uint32_t known = 0;        // the key's bits above those of this histogram
  size_t rank = goal_.rank;  // the key's rank among the keys with these bits
  for (const uint32_t shift : kShifts) {
    // The last histogram has two bits more than are still unknown: the keys that do not match those
    // two are left out.
    const bool is_last = shift == 0;
    const uint32_t prefix = is_last ? known >> 2 : known;
    uint32_t counts[kHistogramCounts] = {};
    for (size_t block = 0; block < blocks_.size(); ++block) {
      const Source x = SourceOf(block);
      kernels_.select.histogram(x.values, x.scale, goal_.by, shift, prefix, x.elements, counts);
    }
    // From the largest keys down, to the bucket that holds the rank-th.
    uint32_t bucket = is_last ? (known & 3) << 9 | 0x1ff : kHistogramCounts - 1;
    while (counts[bucket] < rank) rank -= counts[bucket--];
    known = prefix << kHistogramBits | bucket;
  }
  return std::bit_cast<float>(known);
}

Listed SelectionRun::MakeListed() {
  Listed listed = {.keys = workspace_.Take<float>(list_.used()),
                   .floor = floor_,
                   .below_floor = floor_ > 0 ? FloatBefore(floor_) : 0,
                   .magnitude_sum = magnitude_sum_,
                   .magnitude_max = magnitude_max_,
                   .elements = input_.gradient.size()};
  std::ranges::transform(list_.values(), listed.keys.begin(),
                         [this](float x) { return KeyOf(goal_.by, x); });
  return listed;
}

void SelectionRun::Count() {
  const Choice choice = {.sure = selection_.sure, .filler = selection_.filler, .fill = 0};
  size_t sure = 0, sent = 0;
  for (size_t block = 0; block < blocks_.size(); ++block) {
    Block& its = blocks_[block];
    if (list_.complete() && fills_from_list_) {
      its.counts = kernels_.select.count(list_.values().data() + its.offset, 1.0f, goal_.by, choice,
                                         its.listed);
    } else {
      const Source x = SourceOf(block);
      its.counts = kernels_.select.count(x.values, x.scale, goal_.by, choice, x.elements);
    }
    sure += its.counts.sure;
  }
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
}

SelectionRun::SentOfSign SelectionRun::Pick() {
  SentOfSign sums;
  uint32_t index[kBlockRoom];
  float value[kBlockRoom];
  for (size_t block = 0; block < blocks_.size(); ++block) {
    Block& its = blocks_[block];
    const Choice choice = {.sure = selection_.sure, .filler = selection_.filler, .fill = its.fill};
    if (FromList(its)) {
      const Picked picked = kernels_.select.pick(list_.values().data() + its.offset,
                                                 list_.indices().data() + its.offset, 1.0f,
                                                 goal_.by, choice, its.listed, index, value);
      its.left2 = its.rest2 + picked.left2;
    } else {
      const Source x = SourceOf(block);
      its.left2 = kernels_.select
                      .pick(x.values, nullptr, x.scale, goal_.by, choice, x.elements, index, value)
                      .left2;
    }
    if (builder_.layout().values >= SparseValues::kOne) AddBySign({value, its.sent}, sums);
    std::memcpy(sent_index_.data() + its.sent_from, index, its.sent * sizeof *index);
    std::memcpy(sent_value_.data() + its.sent_from, value, its.sent * sizeof *value);
    builder_.SetBlock(block, {index, its.sent});
  }
  return sums;
}

// Sums without branches, because signs follow no pattern.
void SelectionRun::AddBySign(std::span<const float> values, SentOfSign& sums) {
  SentOfSign its;
  for (const float value : values) {
    const bool positive = value >= 0;
    its.positive += static_cast<double>(positive ? value : 0.0f);
    its.negative += static_cast<double>(positive ? 0.0f : value);
    its.positives += positive ? 1 : 0;
  }
  sums.positive += its.positive;
  sums.negative += its.negative;
  sums.positives += its.positives;
  sums.negatives += static_cast<uint32_t>(values.size()) - its.positives;
}

void SelectionRun::Prefetch(size_t block) const {
  const Block& its = blocks_[block];
  const std::span<const uint32_t> index = sent_index_.subspan(its.sent_from, its.sent);
  PrefetchSent(block, index);
  if (input_.residual.empty()) return;
  kernels_.sparse.prefetch(index.data(), index.size(),
                           input_.residual.data() + block * kBlockElements);
}

void SelectionRun::Write() {
  for (size_t block = 0; block < blocks_.size(); ++block) {
    // What a block sends is scattered over memory, which answers while this block is written.
    if (block + 1 < blocks_.size()) Prefetch(block + 1);
    Block& its = blocks_[block];
    const std::span<const uint32_t> index = sent_index_.subspan(its.sent_from, its.sent);
    WriteSent(kernels_, input_, block, index, sent_value_.subspan(its.sent_from, its.sent),
              builder_, its);
    AfterSend(block, index);
  }
}

}  // namespace slimps
