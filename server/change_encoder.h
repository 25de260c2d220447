// The change of a partition's weights, encoded for pulls: x = weights - w_seen, where w_seen are the weights as workers
// see them; then w_seen += decode(encode(x)). So w_seen is the encoding's error feedback, and a worker that adds what it
// decodes holds w_seen bit for bit.
//
//   ChangeEncoder change(codec, context, seen, payload, workspace);
//   for each block: change.EncodeBlock(first, new_weights_of_block);     // in AggregateRound's pass, from cache
//   SLIMPS_ASSIGN_OR_RETURN(EncodeStats stats, change.Finish(new_weights));
//
// Gives the bits of Codec::Encode over the whole x and DecodeAdd onto w_seen.
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

namespace slimps {

// One version's encoding. EncodeBlock on different blocks may run on several threads; the rest is thread-compatible.
class ChangeEncoder final {
 public:
  // What is given outlives it. REQUIRES: payload.size() >= codec.MaxPayloadBytes(seen.size()).
  ChangeEncoder(const BlockCodec& codec, const EncodeContext& context, std::span<float> seen,
                std::span<std::byte> payload, EncodeWorkspace& workspace,
                const Kernels& kernels = BestKernels());

  // Once for each block of kBlockElements; `weights` are those from `first` on.
  void EncodeBlock(size_t first, std::span<const float> weights);
  // InvalidArgument: some change cannot be encoded, such as NaN. The payload is then not to be sent, and w_seen are the
  // weights themselves: they are to be sent as they are. REQUIRES: every block was encoded; `weights` are all.
  [[nodiscard]] absl::StatusOr<EncodeStats> Finish(std::span<const float> weights);

 private:
  const BlockCodec& codec_;
  const Kernels& kernels_;
  const EncodeInput input_;  // x takes the place of w_seen while its block is encoded
  const std::span<float> seen_;
  const std::span<std::byte> payload_;
  const std::span<BlockSums> sums_;
  std::atomic<bool> unencodable_{false};  // publishes nothing but itself
};

}  // namespace slimps

#endif  // SLIMPS_SERVER_CHANGE_ENCODER_H_
