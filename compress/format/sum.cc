// SPDX-License-Identifier: Apache-2.0
#include "compress/format/sum.h"

#include <algorithm>
#include <array>

#include "compress/format/bytes.h"
#include "compress/format/decode.h"
#include "compress/format/lanes.h"
#include "compress/format/levels.h"

namespace slimps {
namespace {

// Longer runs are added up in several steps. Payloads of one round tend to lie at the same offset
// in their pages. Then they share sets of the first-level cache, and a set has 8 ways.
constexpr size_t kMaxTerms = 8;

enum class Grouping { kNone, kOneBit, kTwoBits, kLanes };

Grouping GroupingOf(const PayloadView& payload) {
  if (payload.format == PayloadFormat::kRotated && HasLanes(payload.bytes)) {
    return Grouping::kLanes;
  }
  if (payload.format != PayloadFormat::kLevels) return Grouping::kNone;
  switch (static_cast<int>(payload.bytes[1])) {
    case 1:
      return Grouping::kOneBit;
    case 2:
      return Grouping::kTwoBits;
    default:
      return Grouping::kNone;
  }
}

// Returns what the sum kernels need of one block. REQUIRES: the payload is valid for `elements` and
// has one or two bits.
LevelsTerm TermOf(std::span<const std::byte> payload, size_t elements, size_t block) {
  LevelsLayout layout;
  layout.bits = static_cast<uint8_t>(payload[1]);
  layout.scales_per_block = static_cast<uint8_t>(payload[2]);
  layout.elements = elements;
  LevelsTerm term;
  term.plane0 = reinterpret_cast<const uint8_t*>(payload.data()) + layout.PlanesOffset(block);
  term.plane1 = term.plane0 + layout.PlaneBytes(block);
  const size_t scale = layout.ScaleOffset(block);
  term.positive = Load<float>(payload, layout.scales_per_block == 0 ? 12 : scale);
  term.negative =
      layout.scales_per_block == 2 ? Load<float>(payload, scale + sizeof(float)) : -term.positive;
  return term;
}

// The sum of one block. `dst` holds the sum of the payloads so far; while `empty` is true it holds
// nothing yet.
struct BlockSum {
  const Kernels& kernels;
  const size_t elements;
  const size_t first;
  const std::span<float> dst;
  bool empty = true;

  void Clear() {
    if (empty) std::fill(dst.begin(), dst.end(), 0.0f);
    empty = false;
  }

  // Adds neighbouring payloads of one grouping together, in registers. Their order is kept.
  void AddOne(const PayloadView& payload) {
    if (payload.format == PayloadFormat::kAbsent) return;
    Clear();
    DecodeAddWith(kernels, payload.format, payload.bytes, elements, first, dst);
  }

  // Adds the levels of neighbouring payloads up as integers, and decodes their sum once.
  void AddLanes(std::span<const PayloadView> run) {
    Clear();
    LaneSum levels(kernels, dst.size(), first / kBlockElements);
    for (const PayloadView& payload : run) {
      if (payload.format != PayloadFormat::kAbsent) levels.Add(payload.bytes);
    }
    levels.Restore(kernels.rotate.add, dst);
  }

  void AddRun(Grouping grouping, std::span<const PayloadView> run) {
    std::array<LevelsTerm, kMaxTerms> terms;
    for (size_t i = 0; i < run.size(); ++i) {
      terms[i] = TermOf(run[i].bytes, elements, first / kBlockElements);
    }
    const SumKernels& sums = kernels.sum;
    const SumTerms add = grouping == Grouping::kOneBit ? (empty ? sums.sum_1bit : sums.add_1bit)
                                                       : (empty ? sums.sum_2bit : sums.add_2bit);
    add(terms.data(), run.size(), dst.size(), dst.data());
    empty = false;
  }
};

void SumBlock(std::span<const PayloadView> payloads, BlockSum sum) {
  for (size_t i = 0; i < payloads.size();) {
    const Grouping grouping = GroupingOf(payloads[i]);
    if (grouping == Grouping::kLanes) {
      const size_t run = LanesRun(payloads.subspan(i));
      sum.AddLanes(payloads.subspan(i, run));
      i += run;
      continue;
    }
    if (grouping == Grouping::kNone) {
      sum.AddOne(payloads[i++]);
      continue;
    }
    size_t end = i + 1;
    while (end < payloads.size() && end - i < kMaxTerms && GroupingOf(payloads[end]) == grouping) {
      ++end;
    }
    sum.AddRun(grouping, payloads.subspan(i, end - i));
    i = end;
  }
  sum.Clear();
}

}  // namespace

size_t LanesRun(std::span<const PayloadView> payloads) {
  const auto lanes = [](const PayloadView& payload) {
    return payload.format == PayloadFormat::kRotated && HasLanes(payload.bytes);
  };
  if (payloads.empty() || !lanes(payloads[0])) return 0;
  uint32_t largest = LargestLane(payloads[0].bytes);
  size_t end = 1;
  for (size_t i = 1; i < payloads.size(); ++i) {
    if (payloads[i].format == PayloadFormat::kAbsent) continue;  // adds nothing, and ends no run
    if (!lanes(payloads[i]) || !HaveOneScale(payloads[0].bytes, payloads[i].bytes)) break;
    largest += LargestLane(payloads[i].bytes);
    if (largest > kMaxLane) break;
    end = i + 1;
  }
  return end;
}

void SumPayloadsWith(const Kernels& kernels, std::span<const PayloadView> payloads, size_t elements,
                     size_t first, std::span<float> dst) {
  for (size_t done = 0; done < dst.size(); done += kBlockElements) {
    SumBlock(payloads, {.kernels = kernels,
                        .elements = elements,
                        .first = first + done,
                        .dst = dst.subspan(done, std::min(kBlockElements, dst.size() - done))});
  }
}

void SumPayloads(std::span<const PayloadView> payloads, size_t elements, size_t first,
                 std::span<float> dst) {
  SumPayloadsWith(BestKernels(), payloads, elements, first, dst);
}

}  // namespace slimps
