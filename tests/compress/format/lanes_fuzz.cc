// SPDX-License-Identifier: Apache-2.0
// libFuzzer target for payloads of lanes. ValidateLanes must refuse the bytes, or decoding and
// summing must stay in bounds and give the same finite numbers with every kernel set.
//
//   bazel build --config=fuzz //tests/compress/format:lanes_fuzz
//   bazel-bin/tests/compress/format/lanes_fuzz -max_total_time=600
//
// Input: one byte. If it is even, a payload follows. If it is odd: elements (two bytes), workers
// (one byte), then bytes from which codes and scales are made, with a true hash of the scales.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <vector>

#include "compress/format/lanes.h"
#include "compress/format/sum.h"
#include "compress/kernels/kernels.h"
#include "tests/compress/format/fuzz_input.h"

namespace slimps {
namespace {

using Bytes = std::vector<std::byte>;

// Sums into exact allocations, so that the address sanitizer sees one byte too many.
void SumEverywhere(std::span<const PayloadView> views, size_t elements) {
  using Floats = std::unique_ptr<float[]>;
  for (size_t first = 0; first < elements; first += kBlockElements) {
    const size_t n = std::min(kBlockElements, elements - first);
    const Floats wanted(new float[n]);
    SumPayloadsWith(*FindKernels("scalar"), views, elements, first, {wanted.get(), n});
    for (const Kernels* kernels : AllKernels()) {
      if (!kernels->runs_here()) continue;
      const Floats sum(new float[n]);
      SumPayloadsWith(*kernels, views, elements, first, {sum.get(), n});
      for (size_t i = 0; i < n; ++i) {
        Require(std::isfinite(sum[i]));
        Require(sum[i] == wanted[i]);
      }
    }
  }
}

void CheckPayload(std::span<const std::byte> payload, size_t elements) {
  if (elements == 0 || elements > kMaxFuzzElements || !HasLanes(payload)) return;
  if (!ValidateLanes(payload, elements).ok()) return;
  const PayloadView view = {PayloadFormat::kRotated, payload};
  Require(LanesRun({&view, 1}) == 1);
  SumEverywhere({&view, 1}, elements);
}

// Makes codes of several workers and their sum. Both must be valid and stand for the same.
void CheckChosen(std::span<const uint8_t> input) {
  if (input.size() < 8) return;
  const size_t elements = 1 + (input[0] * size_t{256} + input[1]) % kMaxFuzzElements;
  const size_t workers = 1 + input[2] % 20;
  LanesLayout layout = {.bits = 4, .largest = 30, .elements = elements};
  layout.stream.round = input[3];
  layout.table = {0, 3, 5, 7, 9, 11, 13, 14, 15, 17, 19, 21, 23, 25, 27, 30};
  size_t at = 3;
  const auto next = [&] { return input[at = at + 1 < input.size() ? at + 1 : 3]; };
  std::vector<Bytes> payloads(workers, Bytes(layout.PayloadBytes()));
  std::vector<PayloadView> views;
  for (Bytes& payload : payloads) {
    for (size_t i = layout.BlockOffset(0); i < payload.size(); ++i) {
      payload[i] = static_cast<std::byte>(next());
    }
    for (size_t block = 0; block < layout.blocks(); ++block) {
      const float scale = static_cast<float>(block) / 64;
      std::memcpy(payload.data() + layout.ScaleOffset(block), &scale, sizeof scale);
    }
    BuildLanesHeader(layout, payload);
    Require(ValidateLanes(payload, elements).ok());
    views.push_back({PayloadFormat::kRotated, payload});
  }
  Require(LanesRun(views) == workers);
  SumEverywhere(views, elements);
  Bytes sum(LanesSumBytes(views));
  BuildLanesSum(BestKernels(), views, sum);
  Require(ValidateLanes(sum, elements).ok());
  const PayloadView view = {PayloadFormat::kRotated, sum};
  std::vector<float> once(elements), one_by_one(elements);
  SumPayloads({&view, 1}, elements, 0, once);
  SumPayloads(views, elements, 0, one_by_one);
  Require(once == one_by_one);
}

}  // namespace
}  // namespace slimps

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  slimps::FuzzPayload<uint32_t>(data, size, 4, slimps::CheckChosen, slimps::CheckPayload);
  return 0;
}
