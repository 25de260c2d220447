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

void DrydenRun::Blocks(size_t /*pass*/, size_t first, size_t last) {
  for (size_t block = first; block < last; ++block) {
    if (stage_ == Stage::kWrite) {
      Write(block);
    } else {
      Collect(block);
    }
  }
}

void DrydenRun::Collect(size_t block) {
  const BlockInput in(input_, block);
  Block& its = blocks_[block];
  uint32_t index[kBlockRoom];
  float value[kBlockRoom];
  // After the first pass the residual, if there is one, holds x.
  const bool made = stage_ == Stage::kCollectAll && in.residual != nullptr;
  const Candidates found =
      made ? kernels_.select.collect(in.residual, nullptr, 1, SelectBy::kMagnitude, floor_,
                                     in.elements, index, value)
           : kernels_.select.collect(in.gradient, in.residual, input_.grad_scale,
                                     SelectBy::kMagnitude, floor_, in.elements, index, value);
  if (stage_ == Stage::kCollect) {
    const float* const x = in.residual != nullptr ? in.residual : in.gradient;
    const float scale = in.residual != nullptr ? 1 : input_.grad_scale;
    const Choice not_zero = {.sure = kSmallest, .filler = kSmallest};
    const auto count = [&](SelectBy by) {
      return kernels_.select.count(x, scale, by, not_zero, in.elements).sure;
    };
    its.positives = count(SelectBy::kPositive);
    its.negatives = count(SelectBy::kNegative);
  }
  its.offset = list_.Append(index, value, found.count);
  its.listed = found.count;
  its.left2 = found.rest2;
}

void DrydenRun::EndPass(size_t /*pass*/) {
  if (stage_ == Stage::kWrite) return;
  if (FindLimits()) {
    stage_ = Stage::kWrite;
    return ChooseFromList();
  }
  // The guess missed: list everything that is not 0.
  stage_ = Stage::kCollectAll;
  passes_ = 3;
  floor_ = kSmallest;
  list_.Take(workspace_, positive_.elements + negative_.elements);
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

void DrydenRun::Write(size_t block) {
  Block& its = blocks_[block];
  WriteSent(kernels_, input_, block, list_.indices().subspan(its.offset, its.sent),
            list_.values().subspan(its.offset, its.sent), builder_, its);
}

EncodeStats DrydenRun::Finish() { return StatsOf<Block>(blocks_, builder_.Finish()); }

}  // namespace slimps
