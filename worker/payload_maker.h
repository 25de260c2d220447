// PayloadMaker: turns one partition of a gradient in grad_buf into what travels.
//
//              +-- raw: in place, plus what earlier encoded pushes left behind --> fp_buf --+
//   grad_buf --+                                                                             +--> payload
//              +-- encoded: codec, states updated ----------------------------> bit_buf ----+
//
// A raw push leaves nothing behind and loses no momentum: it sends g + e and clears the residual e. Where the job's codec
// has momentum of its own (dgc), it takes that step too and sends u + v: the tensor trains with the same momentum, and
// thereby the same step, as one that is large enough to be compressed.
//
//   PayloadMaker maker({.grad_scale = 32, .worker = rank});
//   auto made = maker.Make({.tensor = plan, .partition = 0, .round = 7, .grad_buf = buffer}, *codec, *codec);
//
// bit_buf memory comes from a pool and goes back to it when the payload's last copy is gone: touching fresh pages costs
// more than encoding. What is under way bounds it (PushPipelineOptions::max_bytes_waiting). Of one thread at a time: the
// push thread, or one in PushPipeline::PrepareNow; payloads may go to any.
#ifndef SLIMPS_WORKER_PAYLOAD_MAKER_H_
#define SLIMPS_WORKER_PAYLOAD_MAKER_H_

#include <cstdint>
#include <limits>
#include <memory>
#include <span>

#include "absl/status/statusor.h"
#include "compress/codec/codec.h"
#include "compress/codec/parallel_encode.h"
#include "compress/codec/state_store.h"
#include "proto/base/buffer.h"
#include "proto/base/clock.h"
#include "worker/device/device.h"
#include "worker/device/host_pool.h"
#include "worker/key_table.h"

namespace slimps {

struct PayloadMakerOptions {
  float grad_scale = 1.0f;
  int encode_threads = 0;  // 0: as many as there are cores
  uint32_t worker = 0;     // rank: random codecs draw by it
  const Clock* clock = MachineClock();
};

struct GradientPart {
  const TensorPlan* tensor = nullptr;
  size_t partition = 0;
  uint64_t round = 0;
  std::shared_ptr<HostBuffer> grad_buf;                           // this partition's
  float gradient_bound = std::numeric_limits<float>::infinity();  // of every |grad_buf[i]|
};

struct MadePayload {
  PayloadFormat format = PayloadFormat::kAbsent;
  Payload payload;
  EncodeStats stats;  // of a raw gradient that needs no pass over memory: the sizes alone
};

class PayloadMaker final {
 public:
  explicit PayloadMaker(const PayloadMakerOptions& options);

  // By `codec`; `compressor` is the one that compresses for this job, maybe the same. A value that fp32 can carry and
  // `codec` cannot (fp16 ends at 65504) makes the partition travel raw in this round. InvalidArgument, naming key,
  // partition and element: gradient and residual together exceed fp32.
  [[nodiscard]] absl::StatusOr<MadePayload> Make(const GradientPart& part, const Codec& codec,
                                                 const Codec& compressor);

  // What codecs keep of each partition, while none is being made.
  StateStore& states() { return states_; }
  // Bytes of bit_buf: lent to payloads, and kept for the next ones.
  HostPool::Stats bit_bufs() const { return bit_bufs_->stats(); }

 private:
  absl::StatusOr<MadePayload> MakeRaw(const GradientPart& part, const EncodeInput& input);
  absl::StatusOr<MadePayload> MakeEncoded(const Codec& codec, const EncodeInput& input);
  absl::StatusOr<MadePayload> MakeAny(const GradientPart& part, const Codec& codec,
                                      const Codec& compressor);
  // grad_buf becomes what momentum makes of it.
  absl::Status AdvanceMomentum(const Codec& compressor, EncodeInput input, std::span<float> values);
  absl::StatusOr<EncodeStats> Encode(const Codec& codec, EncodeInput input,
                                     std::span<std::byte> payload);

  const PayloadMakerOptions options_;
  const std::unique_ptr<const Codec> raw_;
  StateStore states_;
  ParallelEncoder encoder_;
  const std::shared_ptr<HostPool> bit_bufs_ = HostPool::CreateAligned();
};

}  // namespace slimps

#endif  // SLIMPS_WORKER_PAYLOAD_MAKER_H_
