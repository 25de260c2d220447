// SPDX-License-Identifier: Apache-2.0
#include "server/round/aggregate.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <vector>

#include "compress/codec/lowrank/orthonormal.h"
#include "compress/format/rows.h"
#include "proto/base/buffer.h"

namespace slimps {
namespace {

// Weights of a partition over this size have left every cache before a pull reads them again, so
// they are written past the caches.
constexpr size_t kStreamedBytes = size_t{32} << 20;

bool MayStream(const AggregateInput& input) {
  return input.after.size_bytes() >= kStreamedBytes && input.change == nullptr &&
         input.after.data() != input.before.data() && !input.touched_only &&
         reinterpret_cast<uintptr_t>(input.after.data()) % kBufferAlignment == 0;
}

// A single raw payload needs no summing: it is stepped by from where it arrived. ValidatePayload
// has checked its length.
const float* OnlyRawPayload(const AggregateInput& input) {
  if (input.payloads.size() != 1 || input.combine != Combine::kSum) return nullptr;
  const PayloadView& only = input.payloads[0];
  const bool aligned = reinterpret_cast<uintptr_t>(only.bytes.data()) % alignof(float) == 0;
  if (only.format != PayloadFormat::kRawF32 || !aligned) return nullptr;
  return reinterpret_cast<const float*>(only.bytes.data());
}

float* StateAt(std::span<float> state, size_t first) {
  return state.empty() ? nullptr : state.data() + first;
}

UpdateBlock BlockAt(const AggregateInput& input, size_t first, const float* sum, size_t length) {
  return {.before = input.before.data() + first,
          .sum = sum,
          .after = input.after.data() + first,
          .state0 = StateAt(input.state0, first),
          .state1 = StateAt(input.state1, first),
          .n = length};
}

// Steps a block of which some rows were pushed, or none. Other rows keep their weights and state.
void StepTouched(const Kernels& kernels, const AggregateInput& input, size_t first,
                 std::span<float> sum) {
  if (input.after.data() != input.before.data()) {
    std::copy_n(input.before.data() + first, sum.size(), input.after.data() + first);
  }
  std::array<uint8_t, kBlockElements> marks;
  const std::span<uint8_t> touched = std::span<uint8_t>(marks).first(sum.size());
  std::ranges::fill(touched, uint8_t{0});
  bool any = false;
  for (const PayloadView& payload : input.payloads) {
    if (payload.format == PayloadFormat::kRows) any |= MarkRows(payload.bytes, first, touched);
  }
  if (!any) return;
  SumPayloadsWith(kernels, input.payloads, input.before.size(), first, sum);
  const auto update = input.optimizer->RuleOf(kernels).store;
  for (auto begin = touched.begin();;) {
    begin = std::find(begin, touched.end(), uint8_t{1});
    if (begin == touched.end()) return;
    const auto end = std::find(begin, touched.end(), uint8_t{0});
    const auto at = static_cast<size_t>(begin - touched.begin());
    update(input.step,
           BlockAt(input, first + at, sum.data() + at, static_cast<size_t>(end - begin)));
    begin = end;
  }
}

float Larger(float sofar, float value) {
  return value > sofar || std::isnan(value) ? value : sofar;  // a NaN before it stays
}

void TakeMaximum(std::span<const PayloadView> payloads, std::span<float> out) {
  std::ranges::fill(out, 0.0f);
  alignas(kBufferAlignment) std::array<float, kBlockElements> block;
  for (const PayloadView& payload : payloads) {
    for (size_t first = 0; first < out.size(); first += kBlockElements) {
      const std::span<float> largest =
          out.subspan(first, std::min(kBlockElements, out.size() - first));
      const std::span<float> values = std::span<float>(block).first(largest.size());
      Decode(payload.format, payload.bytes, out.size(), first, values);
      std::ranges::transform(largest, values, largest.begin(), Larger);
    }
  }
}

// Returns one more than the last row that a payload has. All of them have the first rows, or all.
size_t RowsToOrthogonalise(const CombinedRound& round, size_t all) {
  size_t rows = 0;
  for (const PayloadView& payload : round.payloads) {
    if (payload.format == PayloadFormat::kAbsent) continue;
    if (payload.format != PayloadFormat::kRows) return all;
    const std::vector<uint32_t> sent = RowsSent(payload.bytes);
    if (!sent.empty()) rows = std::max(rows, size_t{sent.back()} + 1);
  }
  return rows;
}

}  // namespace

void AggregateRoundWith(const Kernels& kernels, const AggregateInput& input, size_t first,
                        size_t last) {
  const UpdateRule& rule = input.optimizer->RuleOf(kernels);
  const auto update = MayStream(input) ? rule.stream : rule.store;
  const float* const only = OnlyRawPayload(input);
  alignas(kBufferAlignment) std::array<float, kBlockElements> block;
  for (; first < last; first += kBlockElements) {
    const size_t length = std::min(kBlockElements, last - first);
    const std::span<float> sum = std::span<float>(block).first(length);
    if (input.touched_only) {
      StepTouched(kernels, input, first, sum);
    } else {
      if (only == nullptr) {
        SumPayloadsWith(kernels, input.payloads, input.before.size(), first, sum);
      }
      if (input.combine == Combine::kMajority) kernels.sum.sign(length, sum.data());
      update(input.step,
             BlockAt(input, first, only != nullptr ? only + first : sum.data(), length));
    }
    if (input.change != nullptr) {
      input.change->EncodeBlock(first, input.after.subspan(first, length));
    }
  }
}

void AggregateRound(const AggregateInput& input, size_t first, size_t last) {
  AggregateRoundWith(BestKernels(), input, first, last);
}

double SquaresOfSum(std::span<const PayloadView> payloads, size_t elements) {
  // Several sums side by side, so that the compiler may compute them in one instruction.
  constexpr size_t kLanes = 8;
  std::array<double, kLanes> lanes = {};
  alignas(kBufferAlignment) std::array<float, kBlockElements> block;
  for (size_t first = 0; first < elements; first += kBlockElements) {
    const size_t length = std::min(kBlockElements, elements - first);
    SumPayloads(payloads, elements, first, std::span<float>(block).first(length));
    size_t i = 0;
    for (; i + kLanes <= length; i += kLanes) {
      for (size_t lane = 0; lane < kLanes; ++lane) {
        const double value = block[i + lane];
        lanes[lane] += value * value;
      }
    }
    for (; i < length; ++i) lanes[0] += double{block[i]} * block[i];
  }
  return std::accumulate(lanes.begin(), lanes.end(), 0.0);
}

void CombineRound(const CombinedRound& round, std::span<float> out) {
  if (round.combine == Combine::kMaximum) return TakeMaximum(round.payloads, out);
  for (size_t first = 0; first < out.size(); first += kBlockElements) {
    SumPayloads(round.payloads, out.size(), first,
                out.subspan(first, std::min(kBlockElements, out.size() - first)));
  }
  if (round.combine == Combine::kOrthogonalise) {
    const size_t all = out.size() / round.row_elements;
    const size_t rows = std::min(RowsToOrthogonalise(round, all), all);
    Orthonormalise(rows, round.row_elements, round.round, out.first(rows * round.row_elements));
  }
}

}  // namespace slimps
