// SPDX-License-Identifier: Apache-2.0
// PayloadMaker: turns one partition of a gradient in grad_buf into the payload that travels.
//
//              +-- not finite, and passed on: in place, no state changes ----->--+
//              |                                                                 |
//              +-- raw: in place, plus residuals of encoded pushes --> fp_buf --+
//   grad_buf --+                                                                +--> payload
//              +-- encoded: codec, states updated --> bit_buf ------------------+
//
// A gradient on loan is only read: what would change it, or keep it longer than it was lent, has
// a copy.
//
// A raw push sends g + e and clears the residual e, so nothing is lost when a tensor stops being
// compressed. A codec with momentum of its own (dgc) steps its momentum in a raw push too, and the
// push then sends u + v. So a tensor that is too small to be compressed trains with the same
// momentum as the others.
//
//   PayloadMaker maker({.grad_scale = 32, .worker = rank});
//   auto made = maker.Make({.tensor = plan, .partition = 0, .round = 7, .grad_buf = buffer},
//                          *codec, *codec);
//
// bit_buf memory comes from a pool and returns to it with the payload's last copy: touching fresh
// pages costs more than encoding. PushPipelineOptions::max_bytes_waiting bounds this memory.
// Thread-safe, but one thread at a time makes the payloads of one (key, partition), in the order of
// their rounds.
#ifndef SLIMPS_WORKER_PUSH_PAYLOAD_MAKER_H_
#define SLIMPS_WORKER_PUSH_PAYLOAD_MAKER_H_

#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "compress/codec/codec.h"
#include "compress/codec/encode_run.h"
#include "compress/codec/state/state_store.h"
#include "proto/base/buffer.h"
#include "proto/base/clock.h"
#include "proto/base/mutex.h"
#include "worker/device/device.h"
#include "worker/device/host_pool.h"
#include "worker/tensor/key_table.h"

namespace slimps {

struct PayloadMakerOptions {
  float grad_scale = 1.0f;
  uint32_t worker = 0;  // rank; random codecs draw by it
  // Payloads are kept beyond their acknowledgement (courier/kept_items.h). So a raw one is a copy:
  // grad_buf's memory is bounded, and the caller's is lent until then at most.
  bool keeps_payloads = false;
  bool pass_non_finite = false;  // KVStoreOptions has it
};

struct GradientPart {
  const TensorPlan* tensor = nullptr;
  size_t partition = 0;
  uint64_t round = 0;
  std::shared_ptr<HostBuffer> grad_buf;                           // of this partition
  float gradient_bound = std::numeric_limits<float>::infinity();  // no |grad_buf[i]| is above it
  bool scaled = false;        // grad_buf is in the units of pushes: gradient * grad_scale
  SteadyTime submitted = {};  // of the push
};

struct MadePayload {
  PayloadFormat format = PayloadFormat::kAbsent;
  Payload payload;
  // A raw gradient that needs no pass over memory fills in the sizes only.
  EncodeStats stats;
};

class PayloadMaker final {
 public:
  explicit PayloadMaker(const PayloadMakerOptions& options);

  // Encodes the part with `codec`. `compressor` is the codec that compresses in this job; it may be
  // the same one. If `codec` cannot carry a value that fp32 can (fp16 ends at 65504), the partition
  // travels raw in this round.
  // InvalidArgument: it passes what is not finite, the gradient is not, and `compressor` votes.
  // InvalidArgument: gradient and residual together exceed fp32; the message names key, partition
  // and element.
  [[nodiscard]] absl::StatusOr<MadePayload> Make(const GradientPart& part, const Codec& codec,
                                                 const Codec& compressor);

  // Returns `grad_buf` itself or, if that is on loan, a copy.
  [[nodiscard]] absl::StatusOr<std::shared_ptr<HostBuffer>> Own(
      std::shared_ptr<HostBuffer> grad_buf);

  // Returns memory for a gradient, of zeros. Throws std::bad_alloc.
  [[nodiscard]] absl::StatusOr<std::shared_ptr<HostBuffer>> Zeros(size_t elements);

  // Returns what codecs keep of each partition. REQUIRES: as StateStore says.
  StateStore& states() { return states_; }

  // Returns the bytes of bit_buf memory: lent to payloads, and kept for the next ones.
  HostPool::Stats bit_bufs() const { return bit_bufs_->stats(); }

 private:
  absl::StatusOr<MadePayload> MakeRaw(GradientPart part, EncodeInput input);
  // True if the part is not finite, times `grad_scale`, and may travel so.
  bool PassesOn(const GradientPart& part, float grad_scale) const;
  absl::StatusOr<MadePayload> MakePassedOn(GradientPart part, float grad_scale,
                                           const Codec& compressor);
  // Copies a payload to memory of its own size.
  absl::StatusOr<MadePayload> CopyOut(MadePayload made);
  absl::StatusOr<MadePayload> MakeEncoded(const Codec& codec, const EncodeInput& input);
  absl::StatusOr<MadePayload> MakeAny(GradientPart part, const Codec& codec,
                                      const Codec& compressor);
  // Replaces grad_buf by the result of the momentum step, which `input` then has.
  absl::Status StepMomentum(const Codec& compressor, GradientPart* part, EncodeInput* input);
  absl::StatusOr<EncodeStats> Encode(const Codec& codec, EncodeInput input,
                                     std::span<std::byte> payload);

  const PayloadMakerOptions options_;
  const std::unique_ptr<const Codec> raw_;
  StateStore states_;
  const std::shared_ptr<HostPool> bit_bufs_ = HostPool::CreateAligned();

  Mutex mutex_;
  // Workspaces that no encoding uses. There are as many in all as encodings ever ran at a time.
  std::vector<std::unique_ptr<EncodeWorkspace>> idle_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace slimps

#endif  // SLIMPS_WORKER_PUSH_PAYLOAD_MAKER_H_
