// SPDX-License-Identifier: Apache-2.0
// Encodes the change of a partition's weights for pulls: x = weights - w_seen, where w_seen are the
// weights as workers see them. Then w_seen += decode(encode(x)). So w_seen is the encoding's error
// feedback, and a worker that adds what it decodes holds w_seen bit for bit.
//
//   ChangeEncoder change(codec, context, {.before = w_seen, .after = next_w_seen}, payload,
//                        workspace);
//   for each block: change.EncodeBlock(first, new_weights_of_block);  // in AggregateRound's pass
//   SLIMPS_ASSIGN_OR_RETURN(EncodeStats stats, change.Finish(new_weights));
//
// It makes the same bits as Codec::Encode over the whole x and DecodeAdd onto w_seen. Codecs that
// must look at all of x before they encode any of it go through EncodeWholeChange, after the pass.
#ifndef SLIMPS_SERVER_ROUND_CHANGE_ENCODER_H_
#define SLIMPS_SERVER_ROUND_CHANGE_ENCODER_H_

#include <atomic>
#include <cstddef>
#include <span>

#include "absl/status/statusor.h"
#include "compress/codec/block_codec.h"
#include "compress/codec/codec.h"
#include "compress/codec/encode_run.h"
#include "compress/kernels/block_sums.h"
#include "compress/kernels/kernels.h"
#include "proto/base/clock.h"

namespace slimps {

// The weights as workers see them before and after a version. REQUIRES: both spans have one length
// and do not overlap.
struct SeenWeights {
  std::span<const float> before;
  std::span<float> after;
};

// One version's encoding. EncodeBlock may run on several threads, on different blocks. The rest is
// thread-compatible.
class ChangeEncoder final {
 public:
  // With a clock, some of the blocks are timed.
  // REQUIRES: every argument outlives the encoder; payload.size() >=
  // codec.MaxPayloadBytes(elements).
  ChangeEncoder(const BlockCodec& codec, const EncodeContext& context, const SeenWeights& seen,
                std::span<std::byte> payload, EncodeWorkspace& workspace,
                const Clock* clock = nullptr, const Kernels& kernels = BestKernels());

  // Encodes one block of kBlockElements (the last may be shorter) and writes the next w_seen of it.
  // `weights` are the new weights from `first` on. Call it once for each block.
  void EncodeBlock(size_t first, std::span<const float> weights);

  // Returns the sums over all blocks. After an error w_seen are the weights themselves: send them
  // as they are, and do not send the payload.
  // REQUIRES: every block was encoded; `weights` are all.
  // InvalidArgument: some change cannot be encoded, such as NaN.
  // InvalidArgument: the encoding is further from the change than zero is. (Random codecs without a
  // bound on their error: errors would grow from version to version.)
  [[nodiscard]] absl::StatusOr<EncodeStats> Finish(std::span<const float> weights);

  // Returns an estimate of the time that encoding took, from the blocks that were timed. Zero
  // without a clock.
  absl::Duration encode_time() const;

 private:
  void Encode(size_t first, std::span<const float> weights);

  const BlockCodec& codec_;
  const Kernels& kernels_;
  const Clock* const clock_;
  const SeenWeights seen_;  // `after` holds x while its block is encoded
  const EncodeInput input_;
  const std::span<std::byte> payload_;
  const std::span<BlockSums> sums_;
  std::atomic<bool> unencodable_{false};  // these three publish nothing but themselves
  std::atomic<int64_t> timed_ns_{0};
  std::atomic<int64_t> timed_blocks_{0};
};

// Does the same for any codec, over all elements at once. Resets `workspace`. Errors are those of
// ChangeEncoder::Finish.
[[nodiscard]] absl::StatusOr<EncodeStats> EncodeWholeChange(
    const Codec& codec, const EncodeContext& context, std::span<const float> weights,
    const SeenWeights& seen, std::span<std::byte> payload, EncodeWorkspace& workspace);

}  // namespace slimps

#endif  // SLIMPS_SERVER_ROUND_CHANGE_ENCODER_H_
