// SPDX-License-Identifier: Apache-2.0
// BlockCodec: base of the codecs that encode each block of kBlockElements on its own, in one pass,
// to a fixed place in the payload. A codec implements BuildHeader and EncodeBlock (two_bit.cc is
// the shortest).
#ifndef SLIMPS_COMPRESS_CODEC_BLOCK_CODEC_H_
#define SLIMPS_COMPRESS_CODEC_BLOCK_CODEC_H_

#include <cstddef>
#include <span>

#include "absl/functional/function_ref.h"
#include "compress/codec/codec.h"
#include "compress/codec/encode_run.h"
#include "compress/kernels/block_sums.h"

namespace slimps {

// Thread-safe: a codec holds options only.
class BlockCodec : public Codec {
 public:
  // Returns exactly how many bytes Encode writes: a block's place must not depend on the values
  // before it.
  size_t MaxPayloadBytes(size_t elements) const override = 0;

  EncodeStats EncodeValid(const EncodeInput& input, std::span<std::byte> payload,
                          EncodeWorkspace& workspace) const final {
    return EncodePrepared(input, payload, workspace, [](size_t /*block*/) {});
  }

  // Does the same, and calls prepare(block) just before each block is encoded: it may write the
  // block's part of input.gradient, which is then still in cache.
  EncodeStats EncodePrepared(const EncodeInput& input, std::span<std::byte> payload,
                             EncodeWorkspace& workspace,
                             absl::FunctionRef<void(size_t block)> prepare) const;

  // Writes what comes before the blocks to the front of `payload`.
  virtual void BuildHeader(const EncodeInput& input, std::span<std::byte> payload) const = 0;

  // Writes the block's part of the payload and its residual. Blocks may be encoded in any order.
  virtual BlockSums EncodeBlock(const EncodeInput& input, size_t block,
                                std::span<std::byte> payload) const = 0;

 protected:
  using Codec::Codec;
};

}  // namespace slimps

#endif  // SLIMPS_COMPRESS_CODEC_BLOCK_CODEC_H_
