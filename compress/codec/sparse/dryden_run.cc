// SPDX-License-Identifier: Apache-2.0
#include "compress/codec/sparse/dryden_run.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "compress/codec/sparse/select/selection_floor.h"

namespace slimps {
namespace {

constexpr size_t kListShare = 16;  // the list has room for at least one element in so many
constexpr float kSmallest = std::numeric_limits<float>::denorm_min();

}  // namespace

DrydenRun::DrydenRun(const Kernels& kernels, const EncodeInput& input, std::span<std::byte> payload,
                     EncodeWorkspace& workspace, SentCount proportion)
    : kernels_(kernels),
      input_(input),
      workspace_(workspace),
      proportion_(proportion),
      blocks_(workspace.Take<Block>(Codec::Blocks(input.gradient.size()))),
      builder_(kernels, {.values = SparseValues::kSignTwo, .elements = input.gradient.size()},
               payload, workspace) {
  std::ranges::fill(blocks_, Block());
  const size_t elements = input.gradient.size();
  list_.Take(workspace,
             std::min(elements, std::max(3 * proportion.Of(elements), elements / kListShare) +
                                    kBlockElements));
  floor_ = GuessFloorOfBoth(workspace);
}

float DrydenRun::GuessFloorOfBoth(EncodeWorkspace& workspace) {
  const SamplePlan plan(input_.gradient.size());
  const std::span<float> keys = workspace.Take<float>(plan.Size());
  // Keys of positive x go to the front, those of negative x to the back.
  size_t positives = 0, from = keys.size();
  for (size_t i = 0; i < plan.Size(); ++i) {
    const float x = InputOf(input_, plan.Element(i));
    if (x > 0) keys[positives++] = x;
    if (x < 0) keys[--from] = -x;
  }
  float floor = std::numeric_limits<float>::infinity();
  for (const std::span<float> side : {keys.first(positives), keys.subspan(from)}) {
    if (side.empty()) continue;
    const size_t elements = input_.gradient.size() * side.size() / keys.size();
    floor = std::min(floor, GuessFloor(side, proportion_.Of(elements), elements));
  }
  return std::isinf(floor) ? kSmallest : floor;
}

EncodeStats DrydenRun::Run() {
  Collect();
  if (!FindLimits()) {  // the guess missed
    CollectAll();
    FindLimits();
  }
  ChooseFromList();
  for (size_t block = 0; block < blocks_.size(); ++block) {
    Block& its = blocks_[block];
    WriteSent(kernels_, input_, block, list_.indices().subspan(its.offset, its.sent),
              list_.values().subspan(its.offset, its.sent), builder_, its);
  }
  return StatsOf<Block>(blocks_, builder_.payload_bytes());
}

void DrydenRun::Collect() {
  uint32_t index[kBlockRoom];
  float value[kBlockRoom];
  for (size_t block = 0; block < blocks_.size(); ++block) {
    const BlockInput in(input_, block);
    Block& its = blocks_[block];
    const Candidates found =
        kernels_.select.collect(in.gradient, in.residual, input_.grad_scale, SelectBy::kMagnitude,
                                floor_, in.elements, index, value);
    const auto count = [&, x = XOf(in)](SelectBy by) {
      const Choice not_zero = {.sure = kSmallest, .filler = kSmallest};
      return kernels_.select.count(x.values, x.scale, by, not_zero, in.elements).sure;
    };
    its.positives = count(SelectBy::kPositive);
    its.negatives = count(SelectBy::kNegative);
    Keep(its, found, index, value);
  }
}

void DrydenRun::CollectAll() {
  list_.Take(workspace_, positive_.elements + negative_.elements);
  uint32_t index[kBlockRoom];
  float value[kBlockRoom];
  for (size_t block = 0; block < blocks_.size(); ++block) {
    const BlockInput in(input_, block);
    const X x = XOf(in);
    Keep(blocks_[block],
         kernels_.select.collect(x.values, nullptr, x.scale, SelectBy::kMagnitude, kSmallest,
                                 in.elements, index, value),
         index, value);
  }
}

DrydenRun::X DrydenRun::XOf(const BlockInput& in) const {
  if (in.residual != nullptr) return {in.residual, 1};
  return {in.gradient, input_.grad_scale};
}

void DrydenRun::Keep(Block& block, const Candidates& found, const uint32_t* index,
                     const float* value) {
  block.offset = list_.Append(index, value, found.count);
  block.listed = found.count;
  block.left2 = found.rest2;
}

bool DrydenRun::FindLimits() {
  positive_ = negative_ = {};
  for (const Block& block : blocks_) {
    positive_.elements += block.positives;
    negative_.elements += block.negatives;
  }
  return list_.complete() && FindLimit(true, positive_) && FindLimit(false, negative_);
}

bool DrydenRun::FindLimit(bool positive, Side& side) {
  side.wanted = proportion_.Of(side.elements);
  if (side.wanted == 0) return true;
  const std::span<float> keys = workspace_.Take<float>(list_.used());
  size_t count = 0;
  for (const float x : list_.values()) {
    keys[count] = std::fabs(x);
    count += (x > 0) == positive ? 1 : 0;
  }
  if (count < side.wanted) return false;
  side.limit = RankedKey(keys.first(count), side.wanted);
  // Counts over the list again, because RankedKey overwrites the keys.
  size_t over = 0;
  for (const float x : list_.values()) {
    over += (x > 0) == positive && std::fabs(x) > side.limit ? 1 : 0;
  }
  side.equal = side.wanted - over;
  return true;
}

void DrydenRun::ChooseFromList() {
  // In the order of the blocks: of equal |x| those with the lower index are sent.
  for (size_t block = 0; block < blocks_.size(); ++block) {
    ChooseFromBlock(blocks_[block]);
    builder_.SetBlock(block, list_.indices().subspan(blocks_[block].offset, blocks_[block].sent));
  }
  builder_.Plan(positive_.Mean(), negative_.Mean());
}

void DrydenRun::ChooseFromBlock(Block& block) {
  uint32_t* const index = list_.indices().data() + block.offset;
  float* const value = list_.values().data() + block.offset;
  // The block's sums, negative and positive: the means depend on the order of additions.
  double sums[2] = {};
  for (size_t i = 0; i < block.listed; ++i) {
    const float x = value[i];
    Side& side = x > 0 ? positive_ : negative_;
    const float magnitude = std::fabs(x);
    bool send = side.wanted > 0 && magnitude > side.limit;
    if (magnitude == side.limit && side.equal > 0) {
      --side.equal;
      send = true;
    }
    if (!send) {
      block.left2 += x * x;
      continue;
    }
    ++side.sent;
    sums[x > 0 ? 1 : 0] += static_cast<double>(x);
    index[block.sent] = index[i];
    value[block.sent++] = x;
  }
  negative_.sum += sums[0];
  positive_.sum += sums[1];
}

}  // namespace slimps
