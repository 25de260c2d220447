// SPDX-License-Identifier: Apache-2.0
// What encodings share: memory, a block's input, and the sum of what blocks report.
//
// Most encodings pass over a partition block by block. The first pass reads the gradient and, if a
// residual is given, leaves x in it. Later passes read that x, and the last one subtracts what was
// sent. So a gradient is read once, and error feedback costs no pass of its own.
#ifndef SLIMPS_COMPRESS_CODEC_ENCODE_RUN_H_
#define SLIMPS_COMPRESS_CODEC_ENCODE_RUN_H_

#include <cstddef>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "compress/codec/codec.h"
#include "compress/kernels/block_sums.h"
#include "proto/base/buffer.h"

namespace slimps {

// Memory for one encoding at a time. The next one uses it again, because touching fresh pages costs
// more than encoding. Thread-compatible.
class EncodeWorkspace final {
 public:
  // Returns room for `count` of T: uninitialised, 64-byte aligned, valid until Reset.
  template <typename T>
  std::span<T> Take(size_t count) {
    static_assert(std::is_trivially_copyable_v<T>);
    const std::span<std::byte> bytes = TakeBytes(count * sizeof(T));
    return {reinterpret_cast<T*>(bytes.data()), count};
  }

  // Makes all memory available again. Spans from Take become invalid.
  void Reset();

 private:
  std::span<std::byte> TakeBytes(size_t bytes);

  std::vector<AlignedBuffer> chunks_;  // Take uses up the last one
  size_t used_ = 0;                    // bytes of the last chunk
};

// Returns the sum of the blocks' sums, added in the order of the blocks. Leaves `payload_bytes` 0.
EncodeStats SumOf(std::span<const BlockSums> blocks);

// The room that kernels need to list a block's elements: they write whole vectors.
inline constexpr size_t kBlockRoom = kBlockElements + 16;

// Returns x of one element.
inline float InputOf(const EncodeInput& input, size_t element) {
  const float scaled = input.gradient[element] * input.grad_scale;
  return input.residual.empty() ? scaled : scaled + input.residual[element];
}

// One block of an EncodeInput, in the form that kernels take.
struct BlockInput {
  const float* gradient = nullptr;
  float* residual = nullptr;  // nullptr: no error feedback
  float* momentum = nullptr;  // nullptr: no momentum
  size_t elements = 0;

  // REQUIRES: block < Codec::Blocks(input.gradient.size()).
  BlockInput(const EncodeInput& input, size_t block)
      : gradient(input.gradient.data() + block * kBlockElements),
        residual(input.residual.empty() ? nullptr : input.residual.data() + block * kBlockElements),
        momentum(input.momentum.empty() ? nullptr : input.momentum.data() + block * kBlockElements),
        elements(input.gradient.size() - block * kBlockElements) {
    if (elements > kBlockElements) elements = kBlockElements;
  }
};

}  // namespace slimps

#endif  // SLIMPS_COMPRESS_CODEC_ENCODE_RUN_H_
