// SPDX-License-Identifier: Apache-2.0
// libFuzzer target for payloads of rows. ValidateRows must refuse the bytes, or decoding and
// marking must stay in bounds. Every kernel set must decode alike, from any block.
//
//   bazel build --config=fuzz //tests/compress/format:rows_fuzz
//   bazel-bin/tests/compress/format/rows_fuzz -max_total_time=600
//
// Input: one byte. If it is even, a payload follows. If it is odd: elements (two bytes), elements
// of a row (two bytes), skip (one byte), then one byte per row that tells whether the row is sent.
// The values are ones.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <vector>

#include "compress/format/rows.h"
#include "compress/kernels/kernels.h"
#include "tests/compress/format/fuzz_input.h"

namespace slimps {
namespace {

// Decodes into exact allocations, so that the address sanitizer sees one byte too many.
void DecodeEverywhere(std::span<const std::byte> payload, size_t elements) {
  using Floats = std::unique_ptr<float[]>;
  size_t marked = 0;
  for (size_t first = 0; first < elements || first == 0; first += kBlockElements) {
    for (const size_t n : {elements - first, std::min(kBlockElements, elements - first)}) {
      const Floats out(new float[n]), sum(new float[n]);
      const std::unique_ptr<uint8_t[]> marks(new uint8_t[n]());
      DecodeRows(payload, first, {out.get(), n});
      const bool any = MarkRows(payload, first, {marks.get(), n});
      Require(any == (std::count(marks.get(), marks.get() + n, 1) > 0));
      for (const Kernels* kernels : AllKernels()) {
        if (!kernels->runs_here()) continue;
        std::fill_n(sum.get(), n, 0.0f);
        DecodeAddRows(*kernels, payload, first, {sum.get(), n});
        for (size_t i = 0; i < n; ++i) {
          Require(sum[i] == out[i]);
          Require(marks[i] == 1 || out[i] == 0);
        }
      }
      if (n <= kBlockElements)
        marked += static_cast<size_t>(std::count(marks.get(), marks.get() + n, 1));
      if (n == elements - first && n <= kBlockElements) break;  // both lengths are the same
    }
  }
  Require(marked == ElementsInRows(payload));
}

void CheckPayload(std::span<const std::byte> payload, size_t elements) {
  if (elements > kMaxFuzzElements || !ValidateRows(payload, elements).ok()) return;
  DecodeEverywhere(payload, elements);
}

void CheckChosen(std::span<const uint8_t> input) {
  if (input.size() < 5) return;
  RowGrid grid = {.elements = (input[0] * size_t{256} + input[1]) % (kMaxFuzzElements + 1),
                  .row_elements = 1 + input[2] * size_t{256} + input[3]};
  grid.skip = input[4] % grid.row_elements;
  std::vector<uint32_t> rows;
  for (size_t row = 0; row < grid.rows() && row + 5 < input.size(); ++row) {
    if (input[row + 5] % 2 == 1) rows.push_back(static_cast<uint32_t>(row));
  }
  std::vector<std::byte> payload(RowsPayloadBytes(grid, rows));
  const size_t at = BuildRowsHeader(grid, rows, payload);
  for (size_t i = at; i < payload.size(); i += sizeof(float)) {
    const float one = 1;
    std::memcpy(payload.data() + i, &one, sizeof one);
  }
  Require(ValidateRows(payload, grid.elements).ok());
  DecodeEverywhere(payload, grid.elements);
}

}  // namespace
}  // namespace slimps

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  slimps::FuzzPayload<uint64_t>(data, size, 8, slimps::CheckChosen, slimps::CheckPayload);
  return 0;
}
