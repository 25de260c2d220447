// SPDX-License-Identifier: Apache-2.0
// libFuzzer target for low-rank payloads. ValidateLowRank must refuse the bytes, or decoding must
// stay in bounds, give finite numbers, and give the same ones with every kernel set from any block.
//
//   bazel build --config=fuzz //tests/compress/format:low_rank_fuzz
//   bazel-bin/tests/compress/format/low_rank_fuzz -max_total_time=600
//
// Input: one byte. If it is even, a payload follows. If it is odd: elements (two bytes), elements
// of a row (two bytes), skip (two bytes), rank (one byte), then bytes from which the factors are
// made.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <vector>

#include "compress/format/low_rank.h"
#include "compress/kernels/kernels.h"
#include "tests/compress/format/fuzz_input.h"

namespace slimps {
namespace {

// Decodes into exact allocations, so that the address sanitizer sees one byte too many.
void DecodeEverywhere(std::span<const std::byte> payload, size_t elements) {
  using Floats = std::unique_ptr<float[]>;
  const Floats whole(new float[elements]);
  DecodeLowRank(*FindKernels("scalar"), payload, 0, {whole.get(), elements});
  for (size_t i = 0; i < elements; ++i) Require(std::isfinite(whole[i]));
  for (size_t first = 0; first < elements; first += kBlockElements) {
    const size_t n = std::min(kBlockElements, elements - first);
    for (const Kernels* kernels : AllKernels()) {
      if (!kernels->runs_here()) continue;
      const Floats out(new float[n]), sum(new float[n]());
      DecodeLowRank(*kernels, payload, first, {out.get(), n});
      DecodeAddLowRank(*kernels, payload, first, {sum.get(), n});
      for (size_t i = 0; i < n; ++i) {
        Require(out[i] == whole[first + i]);
        Require(sum[i] == whole[first + i]);
      }
    }
  }
}

void CheckPayload(std::span<const std::byte> payload, size_t elements) {
  if (elements > kMaxFuzzElements || !ValidateLowRank(payload, elements).ok()) return;
  DecodeEverywhere(payload, elements);
}

void CheckChosen(std::span<const uint8_t> input) {
  if (input.size() < 8) return;
  const auto number = [&](size_t i) { return input[i] * size_t{256} + input[i + 1]; };
  LowRankLayout layout = {
      .grid = {.elements = number(0) % (kMaxFuzzElements + 1), .row_elements = 1 + number(2)}};
  layout.grid.skip = number(4) % layout.grid.row_elements;
  layout.rank = input[6] % std::min<size_t>(8, layout.grid.row_elements + 1);
  std::vector<std::byte> payload(layout.PayloadBytes());
  BuildLowRankHeader(layout, payload);
  for (size_t at = LowRankLayout::UOffset(), i = 7; at < payload.size(); at += sizeof(float)) {
    const float value = static_cast<float>(input[i]) - 127;
    std::memcpy(payload.data() + at, &value, sizeof value);
    i = i + 1 == input.size() ? 7 : i + 1;
  }
  Require(ValidateLowRank(payload, layout.grid.elements).ok());
  DecodeEverywhere(payload, layout.grid.elements);
}

}  // namespace
}  // namespace slimps

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  slimps::FuzzPayload<uint64_t>(data, size, 8, slimps::CheckChosen, slimps::CheckPayload);
  return 0;
}
