// A codec whose blocks of kBlockElements are encoded independently of each other, each to its own place in the payload.
// Encode is its three stages over all blocks; ParallelEncoder runs the first and the last by ranges of blocks.
//
//   codec.CheckArguments(input, payload.size());                     // lengths, grad_scale
//   codec.FindUnencodable(input, first, last) == kEncodable          // read-only, before anything is written
//   codec.BuildHeader(elements, payload);
//   codec.EncodeBlocks(input, first_block, last_block, payload);
//
// Thread-safe: a codec holds options only.
#ifndef SLIMPS_COMPRESS_CODEC_BLOCK_CODEC_H_
#define SLIMPS_COMPRESS_CODEC_BLOCK_CODEC_H_

#include <cstddef>
#include <limits>
#include <span>
#include <utility>

#include "absl/status/status.h"
#include "compress/codec/codec.h"
#include "compress/format/kernels.h"

namespace slimps {

class BlockCodec : public Codec {
 public:
  static constexpr size_t kEncodable = std::numeric_limits<size_t>::max();

  static size_t Blocks(size_t elements) { return (elements + kBlockElements - 1) / kBlockElements; }

  const CodecSpec& spec() const final { return spec_; }
  const BlockCodec* AsBlockCodec() const final { return this; }
  // Exactly what Encode writes: a block's place must not depend on the values before it.
  size_t MaxPayloadBytes(size_t elements) const override = 0;
  [[nodiscard]] absl::StatusOr<EncodeStats> Encode(const EncodeInput& input,
                                                   std::span<std::byte> payload) const final;

  [[nodiscard]] absl::Status CheckArguments(const EncodeInput& input, size_t payload_bytes) const;
  // The first element in [first_block, last_block) that cannot be encoded; kEncodable: none. Reads only.
  size_t FindUnencodable(const EncodeInput& input, size_t first_block, size_t last_block) const;
  // Why `element`, found by the function above, cannot be encoded.
  absl::Status DescribeUnencodable(const EncodeInput& input, size_t element) const;

  virtual void BuildHeader(size_t elements, std::span<std::byte> payload) const = 0;
  // Writes the blocks' part of the payload and their residual. REQUIRES: the checks above were OK.
  virtual void EncodeBlocks(const EncodeInput& input, size_t first_block, size_t last_block,
                            std::span<std::byte> payload) const = 0;

 protected:
  // `limit`: the largest |x| that encodes and decodes to a finite number.
  BlockCodec(CodecSpec spec, const Kernels& kernels, float limit)
      : spec_(std::move(spec)), kernels_(kernels), limit_(limit) {}

  const Kernels& kernels() const { return kernels_; }

 private:
  const CodecSpec spec_;
  const Kernels& kernels_;  // a constant of the program
  const float limit_;
};

// One block of an EncodeInput, as kernels take it.
struct BlockInput {
  const float* gradient = nullptr;
  float* residual = nullptr;  // nullptr: no error feedback
  size_t elements = 0;

  // REQUIRES: block < BlockCodec::Blocks(input.gradient.size()).
  BlockInput(const EncodeInput& input, size_t block)
      : gradient(input.gradient.data() + block * kBlockElements),
        residual(input.residual.empty() ? nullptr : input.residual.data() + block * kBlockElements),
        elements(input.gradient.size() - block * kBlockElements) {
    if (elements > kBlockElements) elements = kBlockElements;
  }
};

}  // namespace slimps

#endif  // SLIMPS_COMPRESS_CODEC_BLOCK_CODEC_H_
