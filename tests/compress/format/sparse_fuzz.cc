// SPDX-License-Identifier: Apache-2.0
// libFuzzer target for sparse payloads. ValidateSparse must refuse the bytes, or decoding must stay
// in bounds. Every kernel set must decode alike, from any block.
//
//   bazel build --config=fuzz //tests/compress/format:sparse_fuzz
//   bazel-bin/tests/compress/format/sparse_fuzz -max_total_time=600
//
// Input: one byte. If it is even, a payload follows. If it is odd: elements (two bytes), value
// coding, index coding, then bytes that become a payload with a correct header and length. So the
// fuzzer reaches directories, indices and padding.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <vector>

#include "compress/format/sparse.h"
#include "compress/kernels/kernels.h"
#include "tests/compress/format/fuzz_input.h"

namespace slimps {
namespace {

void CheckAlike(std::span<const float> a, std::span<const float> b) {
  Require(a.empty() || std::memcmp(a.data(), b.data(), a.size_bytes()) == 0);
}

// Decodes into exact allocations, so that the address sanitizer sees one byte too many.
void DecodeEverywhere(std::span<const std::byte> payload, size_t elements) {
  using Floats = std::unique_ptr<float[]>;
  for (size_t first = 0; first < elements || first == 0; first += kBlockElements) {
    for (const size_t n : {std::min(kBlockElements, elements - first), elements - first}) {
      const Floats wanted(new float[n]()), out(new float[n]()), sum(new float[n]());
      DecodeSparse(*FindKernels("scalar"), payload, elements, first, {wanted.get(), n});
      for (const Kernels* kernels : AllKernels()) {
        if (!kernels->runs_here()) continue;
        std::fill_n(sum.get(), n, 0.0f);
        DecodeSparse(*kernels, payload, elements, first, {out.get(), n});
        DecodeAddSparse(*kernels, payload, elements, first, {sum.get(), n});
        CheckAlike({out.get(), n}, {wanted.get(), n});
        // 0 + -0 is +0, so the decoded values need a 0 added before they can equal the sums.
        for (size_t i = 0; i < n; ++i) out[i] += 0.0f;
        CheckAlike({sum.get(), n}, {out.get(), n});
      }
    }
  }
}

class Input final {
 public:
  explicit Input(std::span<const uint8_t> bytes) : bytes_(bytes) {}
  size_t Byte() {
    if (at_ == bytes_.size()) return 0;
    return bytes_[at_++];
  }
  bool done() const { return at_ == bytes_.size(); }

 private:
  const std::span<const uint8_t> bytes_;
  size_t at_ = 0;
};

// Builds a correct header and directories. The input chooses counts, values and indices.
std::vector<std::byte> WithTrueHeader(Input input, SparseLayout& layout) {
  layout.elements = (input.Byte() * 256 + input.Byte()) % (kMaxFuzzElements + 1);
  layout.values = static_cast<SparseValues>(input.Byte() % 5);
  layout.indices = static_cast<SparseIndices>(input.Byte() % 3);
  layout.scale0 = layout.values >= SparseValues::kOne ? 0.5f : 0.0f;
  layout.scale1 = layout.values == SparseValues::kSignTwo ? -0.25f : 0.0f;
  std::vector<uint32_t> before, offsets;
  size_t delta = 0;
  for (size_t block = 0; block < layout.blocks(); ++block) {
    before.push_back(static_cast<uint32_t>(layout.count));
    offsets.push_back(static_cast<uint32_t>(delta));
    const size_t count = std::min(input.Byte() * input.Byte(), layout.BlockElements(block));
    layout.count += count;
    delta += count + input.Byte() % 18;
  }
  std::vector<std::byte> payload(layout.PayloadBytes(delta));
  for (std::byte& byte : payload) byte = static_cast<std::byte>(input.done() ? 1 : input.Byte());
  BuildSparseHeader(layout, payload);
  if (layout.indices == SparseIndices::kSeeded || before.empty()) return payload;
  std::memcpy(payload.data() + kSparseHeaderBytes, before.data(), 4 * before.size());
  if (layout.indices == SparseIndices::kDelta) {
    std::memcpy(payload.data() + layout.IndicesOffset(), offsets.data(), 4 * offsets.size());
  }
  return payload;
}

void CheckPayload(std::span<const std::byte> payload, size_t elements) {
  if (elements > kMaxFuzzElements || !ValidateSparse(payload, elements).ok()) return;
  DecodeEverywhere(payload, elements);
}

void CheckChosen(std::span<const uint8_t> input) {
  SparseLayout layout;
  const auto payload = WithTrueHeader(Input(input), layout);
  CheckPayload(payload, layout.elements);
}

}  // namespace
}  // namespace slimps

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  slimps::FuzzPayload<uint32_t>(data, size, 4, slimps::CheckChosen, slimps::CheckPayload);
  return 0;
}
