// SPDX-License-Identifier: Apache-2.0
#include "worker/push/payload_maker.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "compress/kernels/kernels.h"
#include "proto/base/status_copy.h"
#include "proto/base/status_macros.h"
#include "worker/tensor/row_sparse.h"

namespace slimps {
namespace {

RowGrid GridOf(const GradientPart& part) {
  const PartitionPlan& plan = part.tensor->partitions[part.partition];
  return RowGrid::At(plan.offset, plan.elements, RowElements(*part.tensor));
}

std::span<float> ValuesOf(const GradientPart& part) { return part.grad_buf->floats(); }

// fp_buf and grad_buf are the same memory: each sent value replaces the gradient that it is made
// from.
MadePayload RawPayload(const GradientPart& part) {
  const std::span<const float> values = ValuesOf(part);
  return {.format = PayloadFormat::kRawF32,
          .payload = Payload(part.grad_buf, std::as_bytes(values)),
          .stats = {.payload_bytes = values.size_bytes(), .elements_sent = values.size()}};
}

}  // namespace

PayloadMaker::PayloadMaker(const PayloadMakerOptions& options)
    : options_(options), raw_(MakeCodec(CodecSpec{.name = "none"}).value()) {}

absl::StatusOr<MadePayload> PayloadMaker::Make(const GradientPart& part, const Codec& codec,
                                               const Codec& compressor) {
  bit_bufs_->NoteRound(part.round);
  absl::StatusOr<MadePayload> made = MakeAny(part, codec, compressor);
  if (made.ok() && options_.keeps_payloads && made->format == PayloadFormat::kRawF32) {
    made = CopyOut(*std::move(made));
  }
  if (made.ok()) return made;
  return Prefixed(made.status(), absl::StrCat("key ", part.tensor->key.typed_name(), " partition ",
                                              part.partition));
}

absl::StatusOr<MadePayload> PayloadMaker::MakeAny(GradientPart part, const Codec& codec,
                                                  const Codec& compressor) {
  EncodeInput input{.gradient = ValuesOf(part),
                    .residual = {},
                    .grad_scale = part.scaled ? 1.0f : options_.grad_scale,
                    .gradient_bound = part.gradient_bound,
                    .context = {.key = part.tensor->key.id(),
                                .partition = static_cast<uint32_t>(part.partition),
                                .round = part.round,
                                .worker = options_.worker,
                                .layer = static_cast<LayerKind>(part.tensor->info.layer()),
                                .grid = GridOf(part)}};
  if (PassesOn(part, input.grad_scale)) {
    return MakePassedOn(std::move(part), input.grad_scale, compressor);
  }
  const bool steps_itself = codec.wants_momentum();
  if (compressor.wants_momentum() && !steps_itself) {
    SLIMPS_RETURN_IF_ERROR(StepMomentum(compressor, &part, &input));
  }
  if (codec.format() == PayloadFormat::kRawF32) {
    const CodecState* const state = states_.Find(input.context.key, input.context.partition);
    // Without scale and residual, the gradient travels as it is. Its pusher has checked the values.
    if (input.grad_scale == 1.0f && (state == nullptr || state->residual_bound() == 0)) {
      // What lies in ordinary memory would be copied again to reach processes of this machine.
      if (part.grad_buf->loan() != Loan::kUntilAcknowledged || HasPayloadMemory()) {
        SLIMPS_ASSIGN_OR_RETURN(part.grad_buf, Own(std::move(part.grad_buf)));
      }
      return RawPayload(part);
    }
    return MakeRaw(std::move(part), input);
  }
  absl::StatusOr<MadePayload> made = MakeEncoded(codec, input);
  // An InvalidArgument came before any state changed, so the gradient can still travel raw. Raw
  // fp32 helps only if the codec's own limit is below fp32's.
  if (!absl::IsInvalidArgument(made.status()) || codec.limit() >= raw_->limit()) return made;
  if (steps_itself) SLIMPS_RETURN_IF_ERROR(StepMomentum(compressor, &part, &input));
  return MakeRaw(std::move(part), input);
}

bool PayloadMaker::PassesOn(const GradientPart& part, float grad_scale) const {
  if (!options_.pass_non_finite || std::isfinite(part.gradient_bound * grad_scale)) return false;
  // The bound may be another partition's, or unknown.
  const std::span<const float> values = ValuesOf(part);
  return std::isinf(BestKernels().raw.largest(values.data(), values.size()) * grad_scale);
}

absl::StatusOr<MadePayload> PayloadMaker::MakePassedOn(GradientPart part, float grad_scale,
                                                       const Codec& compressor) {
  if (compressor.combine() != Combine::kSum) {
    return absl::InvalidArgumentError(absl::StrCat("codec ", compressor.spec().name,
                                                   ": expected finite values; a vote has none"));
  }
  SLIMPS_ASSIGN_OR_RETURN(part.grad_buf, Own(std::move(part.grad_buf)));
  for (float& value : ValuesOf(part)) value *= grad_scale;
  return RawPayload(part);
}

absl::StatusOr<MadePayload> PayloadMaker::CopyOut(MadePayload made) {
  const std::span<const std::byte> bytes = made.payload.bytes();
  SLIMPS_ASSIGN_OR_RETURN(std::shared_ptr<HostBuffer> bit_buf,
                          bit_bufs_->Acquire((bytes.size() + sizeof(float) - 1) / sizeof(float)));
  const std::span<std::byte> copy = std::as_writable_bytes(bit_buf->floats());
  std::memcpy(copy.data(), bytes.data(), bytes.size());
  made.payload = Payload(std::move(bit_buf), copy.first(bytes.size()));
  return made;
}

absl::StatusOr<MadePayload> PayloadMaker::MakeRaw(GradientPart part, EncodeInput input) {
  SLIMPS_ASSIGN_OR_RETURN(part.grad_buf, Own(std::move(part.grad_buf)));
  input.gradient = ValuesOf(part);
  MadePayload made = RawPayload(part);
  SLIMPS_ASSIGN_OR_RETURN(made.stats, Encode(*raw_, input, std::as_writable_bytes(ValuesOf(part))));
  return made;
}

absl::StatusOr<MadePayload> PayloadMaker::MakeEncoded(const Codec& codec,
                                                      const EncodeInput& input) {
  const size_t elements = input.gradient.size();
  const size_t capacity = codec.MaxPayloadBytes(elements);
  SLIMPS_ASSIGN_OR_RETURN(std::shared_ptr<HostBuffer> bit_buf,
                          bit_bufs_->Acquire((capacity + sizeof(float) - 1) / sizeof(float)));
  const std::span<std::byte> bytes = std::as_writable_bytes(bit_buf->floats());
  MadePayload made{.format = codec.format()};
  SLIMPS_ASSIGN_OR_RETURN(made.stats, Encode(codec, input, bytes));
  made.payload = Payload(std::move(bit_buf), bytes.first(made.stats.payload_bytes));
  if (options_.keeps_payloads && made.payload.size() < capacity / 2)
    return CopyOut(std::move(made));
  return made;
}

absl::StatusOr<std::shared_ptr<HostBuffer>> PayloadMaker::Own(
    std::shared_ptr<HostBuffer> grad_buf) {
  if (grad_buf->loan() == Loan::kNone) return grad_buf;
  const std::span<const float> lent = grad_buf->floats();
  SLIMPS_ASSIGN_OR_RETURN(std::shared_ptr<HostBuffer> own, bit_bufs_->Acquire(lent.size()));
  std::ranges::copy(lent, own->floats().begin());
  return own;
}

absl::StatusOr<std::shared_ptr<HostBuffer>> PayloadMaker::Zeros(size_t elements) {
  SLIMPS_ASSIGN_OR_RETURN(std::shared_ptr<HostBuffer> zeros, bit_bufs_->Acquire(elements));
  std::ranges::fill(zeros->floats(), 0.0f);
  return zeros;
}

absl::Status PayloadMaker::StepMomentum(const Codec& compressor, GradientPart* part,
                                        EncodeInput* input) {
  SLIMPS_ASSIGN_OR_RETURN(part->grad_buf, Own(std::move(part->grad_buf)));
  input->gradient = ValuesOf(*part);
  EncodeInput stepped = *input;
  SLIMPS_ASSIGN_OR_RETURN(
      CodecState* const state,
      states_.Prepare(compressor, input->context.key, input->context.partition, stepped));
  SLIMPS_ASSIGN_OR_RETURN(const float bound, compressor.AdvanceMomentum(stepped, ValuesOf(*part)));
  state->NoteMomentum(bound);
  input->grad_scale = 1;
  input->gradient_bound = std::numeric_limits<float>::infinity();
  return absl::OkStatus();
}

absl::StatusOr<EncodeStats> PayloadMaker::Encode(const Codec& codec, EncodeInput input,
                                                 std::span<std::byte> payload) {
  SLIMPS_ASSIGN_OR_RETURN(CodecState* const state, states_.Prepare(codec, input.context.key,
                                                                   input.context.partition, input));
  std::unique_ptr<EncodeWorkspace> workspace;
  {
    MutexLock lock(&mutex_);
    if (!idle_.empty()) {
      workspace = std::move(idle_.back());
      idle_.pop_back();
    }
  }
  if (workspace == nullptr) workspace = std::make_unique<EncodeWorkspace>();
  SLIMPS_ASSIGN_OR_RETURN(const EncodeStats stats, codec.Encode(input, payload, *workspace));
  {
    MutexLock lock(&mutex_);
    idle_.push_back(std::move(workspace));
  }
  if (state != nullptr) state->NoteEncoded(stats);
  return stats;
}

}  // namespace slimps
