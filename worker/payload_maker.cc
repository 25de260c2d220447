#include "worker/payload_maker.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/base/status_macros.h"

namespace slimps {
namespace {

std::span<float> ValuesOf(const GradientPart& part) {
  const PartitionPlan& plan = part.tensor->partitions[part.partition];
  return part.grad_buf->floats().subspan(plan.offset, plan.elements);
}

}  // namespace

PayloadMaker::PayloadMaker(const PayloadMakerOptions& options)
    : options_(options), encoder_(options.encode_threads) {}

absl::StatusOr<MadePayload> PayloadMaker::Make(const GradientPart& part, const Codec& codec) {
  absl::StatusOr<MadePayload> made =
      codec.format() == PayloadFormat::kRawF32 ? MakeRaw(part, codec) : MakeEncoded(part, codec);
  if (made.ok()) {
    made->format = codec.format();
    return made;
  }
  return absl::Status(made.status().code(),
                      absl::StrCat("key ", part.tensor->key.typed_name(), " partition ",
                                   part.partition, ": ", std::string(made.status().message())));
}

// fp_buf is grad_buf itself: each x goes where its gradient was read.
absl::StatusOr<MadePayload> PayloadMaker::MakeRaw(const GradientPart& part, const Codec& codec) {
  const std::span<float> values = ValuesOf(part);
  MadePayload made{.payload = Payload(part.grad_buf, std::as_bytes(values))};
  const CodecState* const state =
      states_.Find(part.tensor->key.id(), static_cast<uint32_t>(part.partition));
  if (options_.grad_scale == 1.0f && (state == nullptr || state->residual_bound() == 0)) {
    made.stats.payload_bytes = values.size_bytes();
    made.stats.elements_sent = values.size();
    return made;
  }
  SLIMPS_ASSIGN_OR_RETURN(made.stats,
                          Encode(part, codec, InputOf(part), std::as_writable_bytes(values)));
  return made;
}

absl::StatusOr<MadePayload> PayloadMaker::MakeEncoded(const GradientPart& part,
                                                      const Codec& codec) {
  const size_t capacity = codec.MaxPayloadBytes(ValuesOf(part).size());
  SLIMPS_ASSIGN_OR_RETURN(std::shared_ptr<HostBuffer> bit_buf,
                          bit_bufs_->Acquire((capacity + sizeof(float) - 1) / sizeof(float)));
  const std::span<std::byte> bytes = std::as_writable_bytes(bit_buf->floats());
  MadePayload made;
  SLIMPS_ASSIGN_OR_RETURN(made.stats, Encode(part, codec, InputOf(part), bytes));
  made.payload = Payload(std::move(bit_buf), bytes.first(made.stats.payload_bytes));
  return made;
}

EncodeInput PayloadMaker::InputOf(const GradientPart& part) const {
  return {.gradient = ValuesOf(part),
          .residual = {},
          .grad_scale = options_.grad_scale,
          .gradient_bound = part.gradient_bound,
          .context = {.key = part.tensor->key.id(),
                      .partition = static_cast<uint32_t>(part.partition),
                      .round = part.round,
                      .worker = options_.worker,
                      .layer = static_cast<LayerKind>(part.tensor->info.layer())}};
}

absl::StatusOr<EncodeStats> PayloadMaker::Encode(const GradientPart& part, const Codec& codec,
                                                 EncodeInput input, std::span<std::byte> payload) {
  SLIMPS_ASSIGN_OR_RETURN(
      CodecState* const state,
      states_.Prepare(codec, part.tensor->key.id(), static_cast<uint32_t>(part.partition), input));
  SLIMPS_ASSIGN_OR_RETURN(const EncodeResult result,
                          encoder_.Encode({.codec = &codec, .input = input, .payload = payload}));
  if (state != nullptr) state->NoteEncoded(result.stats);
  return result.stats;
}

}  // namespace slimps
