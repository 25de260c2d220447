// The change of a partition's weights, encoded for pulls: x = weights - w_seen, where w_seen are the weights as workers
// see them; then w_seen += decode(encode(x)). So w_seen is the encoding's error feedback, and a worker that adds what it
// decodes holds w_seen bit for bit.
//
//   ChangeEncoder change(codec, context, {.before = w_seen, .after = next_w_seen}, payload, workspace);
//   for each block: change.EncodeBlock(first, new_weights_of_block);     // in AggregateRound's pass, from cache
//   SLIMPS_ASSIGN_OR_RETURN(EncodeStats stats, change.Finish(new_weights));
//
// Gives the bits of Codec::Encode over the whole x and DecodeAdd onto w_seen. Codecs that look at all of x before they
// encode any of it go through EncodeWholeChange, after the pass.
#ifndef SLIMPS_SERVER_CHANGE_ENCODER_H_
#define SLIMPS_SERVER_CHANGE_ENCODER_H_

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

// The weights as workers see them before and after a version. Of one length; not the same memory.
struct SeenWeights {
  std::span<const float> before;
  std::span<float> after;
};

// One version's encoding. EncodeBlock on different blocks may run on several threads; the rest is thread-compatible.
class ChangeEncoder final {
 public:
  // What is given outlives it. REQUIRES: payload.size() >= codec.MaxPayloadBytes(elements).
  // With a clock some of the blocks are timed.
  ChangeEncoder(const BlockCodec& codec, const EncodeContext& context, const SeenWeights& seen,
                std::span<std::byte> payload, EncodeWorkspace& workspace,
                const Clock* clock = nullptr, const Kernels& kernels = BestKernels());

  // Once for each block of kBlockElements; `weights` are those from `first` on.
  void EncodeBlock(size_t first, std::span<const float> weights);
  // InvalidArgument: some change cannot be encoded, such as NaN, or the encoding is further from the change than nothing
  // would be (random codecs without a bound on their error: errors would grow from version to version). The payload is
  // then not to be sent, and w_seen are the weights themselves: they are to be sent as they are. REQUIRES: every block
  // was encoded; `weights` are all.
  [[nodiscard]] absl::StatusOr<EncodeStats> Finish(std::span<const float> weights);
  // What encoding has taken, from the blocks that were timed; zero without a clock.
  absl::Duration encode_time() const;

 private:
  void Encode(size_t first, std::span<const float> weights);

  const BlockCodec& codec_;
  const Kernels& kernels_;
  const Clock* const clock_;
  const SeenWeights seen_;  // x takes the place of w_seen's next version while its block is encoded
  const EncodeInput input_;
  const std::span<std::byte> payload_;
  const std::span<BlockSums> sums_;
  std::atomic<bool> unencodable_{false};  // publishes nothing but itself, as the next two
  std::atomic<int64_t> timed_ns_{0};
  std::atomic<int64_t> timed_blocks_{0};
};

// The same for any codec, over all elements at once. As ChangeEncoder::Finish. Resets `workspace`.
[[nodiscard]] absl::StatusOr<EncodeStats> EncodeWholeChange(
    const Codec& codec, const EncodeContext& context, std::span<const float> weights,
    const SeenWeights& seen, std::span<std::byte> payload, EncodeWorkspace& workspace);

}  // namespace slimps

#endif  // SLIMPS_SERVER_CHANGE_ENCODER_H_
