// SPDX-License-Identifier: Apache-2.0
// libFuzzer target for the bins layout. ValidateBins must refuse the bytes, or decoding must stay
// in bounds. Every kernel set must decode alike, and each block alone as with the others.
//
//   bazel build --config=fuzz //tests/compress/format:bins_fuzz
//   bazel-bin/tests/compress/format/bins_fuzz -max_total_time=600
//
// Input: one byte that says how much of the payload to correct (0: nothing), then the payload.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <vector>

#include "compress/format/bins.h"
#include "compress/kernels/kernels.h"
#include "tests/compress/format/fuzz_input.h"

namespace slimps {
namespace {

template <typename T>
T At(std::span<const std::byte> bytes, size_t offset) {
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof value);
  return value;
}

// Makes header, directory and length agree, so that the fuzzer often reaches bitmaps and entries.
void MakeTrue(std::vector<std::byte>& payload) {
  payload.resize(std::max<size_t>(payload.size(), kBinsHeaderBytes));
  const BinsLayout layout = {.bin_length = At<uint16_t>(payload, 2) % kMaxBinLength + 1,
                             .elements = At<uint32_t>(payload, 4) % (kMaxFuzzElements + 1)};
  BuildBinsHeader(layout, 0.5f, payload);
  payload.resize(std::max(payload.size(), layout.EntriesOffset()));
  const size_t entries =
      std::min((payload.size() - layout.EntriesOffset()) / layout.entry_bytes(), layout.elements);
  payload.resize(layout.PayloadBytes(entries));
  // The input chooses where the first block ends. The last block holds the rest, if it fits.
  for (size_t block = 0; block < layout.blocks(); ++block) {
    const size_t asked = At<uint32_t>(payload, BinsLayout::DirectoryOffset(block)) % (entries + 1);
    BuildBinsEnd(block, block + 1 == layout.blocks() ? entries : asked, payload);
  }
}

// Decodes into exact allocations, so that the address sanitizer sees one byte too many.
void DecodeEverywhere(std::span<const std::byte> payload, size_t elements) {
  using Floats = std::unique_ptr<float[]>;
  const Floats wanted(new float[elements]);
  DecodeBins(*FindKernels("scalar"), payload, elements, 0, {wanted.get(), elements});
  for (const Kernels* kernels : AllKernels()) {
    if (!kernels->runs_here()) continue;
    for (size_t first = 0; first < elements; first += kBlockElements) {
      const size_t n = std::min(kBlockElements, elements - first);
      const Floats out(new float[n]), sum(new float[n]());
      DecodeBins(*kernels, payload, elements, first, {out.get(), n});
      DecodeAddBins(*kernels, payload, elements, first, {sum.get(), n});
      Require(std::memcmp(out.get(), wanted.get() + first, n * sizeof(float)) == 0);
      for (size_t i = 0; i < n; ++i) Require(sum[i] == out[i]);
    }
  }
}

}  // namespace
}  // namespace slimps

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 1) return 0;
  const auto* const begin = reinterpret_cast<const std::byte*>(data);
  std::vector<std::byte> payload(begin + 1, begin + size);
  if (data[0] % 4 != 0) slimps::MakeTrue(payload);
  size_t elements = 0;
  if (payload.size() >= 8) elements = slimps::At<uint32_t>(payload, 4);
  const std::vector<std::byte> exact(payload);
  if (!slimps::ValidateBins(exact, elements).ok()) return 0;
  if (elements <= slimps::kMaxFuzzElements) slimps::DecodeEverywhere(exact, elements);
  return 0;
}
