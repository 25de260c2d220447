// SPDX-License-Identifier: Apache-2.0
// What the codecs share that rotate each block at random (compress/kernels/rotate.h) and send few
// bits of what comes out. Here x is a block of n elements, y = H D x / m its rotation.
#ifndef SLIMPS_COMPRESS_CODEC_QUANTISE_ROTATED_BLOCK_H_
#define SLIMPS_COMPRESS_CODEC_QUANTISE_ROTATED_BLOCK_H_

#include <cstddef>
#include <span>

#include "absl/functional/function_ref.h"
#include "compress/codec/codec.h"
#include "compress/format/philox.h"
#include "compress/kernels/block_sums.h"
#include "compress/kernels/kernels.h"

namespace slimps {

// Every |x| up to this decodes to a finite number and leaves a finite error: the way back sums 4096
// levels that are hardly over the largest |x|.
inline constexpr float kMaxRotated = 0x1p114f;

// Squares of what y is sent as, in units of x: times m.
struct RotatedSums {
  double decoded2 = 0;    // m |decoded y|^2
  double difference = 0;  // m (|y - decoded y|^2 - |decoded y|^2), which is that of x
};

// Encodes one block, and updates its residual. `rotation` is the stream of the signs.
// - encode(input2, y) writes y to the payload, and may change y. input2 is |x|^2 in fp32
// - decode(y) sets y to what encode has sent; y is as encode left it
BlockSums EncodeRotatedBlock(
    const Kernels& kernels, const PhiloxStream& rotation, const EncodeInput& input, size_t block,
    absl::FunctionRef<RotatedSums(float input2, std::span<float> y)> encode,
    absl::FunctionRef<void(std::span<float> y)> decode);

}  // namespace slimps

#endif  // SLIMPS_COMPRESS_CODEC_QUANTISE_ROTATED_BLOCK_H_
