// SPDX-License-Identifier: Apache-2.0
#include "worker/push/push_item_maker.h"

#include <limits>
#include <optional>
#include <vector>

#include "proto/base/hash.h"
#include "proto/base/status_macros.h"
#include "proto/base/trace/trace.h"

namespace slimps {
namespace {

// True for full and half precision: the forms of a gradient that is not compressed.
bool IsPrecision(PayloadFormat format) {
  return format == PayloadFormat::kRawF32 || format == PayloadFormat::kRawF16 ||
         format == PayloadFormat::kRawBf16;
}

}  // namespace

absl::StatusOr<PreparedPush> PushItemMaker::Make(const PushJob& job, size_t partition,
                                                 std::shared_ptr<HostBuffer> grad_buf,
                                                 float gradient_bound, const Codec& codec,
                                                 const Codec& compressor) {
  PreparedPush prepared;
  prepared.item.key_name = job.tensor->key.typed_name();
  wire::PushItem push;
  push.mutable_id()->set_key(job.tensor->key.id());
  push.mutable_id()->set_partition(static_cast<uint32_t>(partition));
  push.set_round(job.round);
  push.set_elements(job.tensor->partitions[partition].elements);
  push.set_priority(job.priority);
  push.set_format(wire::ABSENT);
  if (job.hyper.has_value()) *push.mutable_hyper() = *job.hyper;
  push.set_clipped(job.clipped);
  if (options_.change_codec) push.set_change_codec(options_.change_codec(*job.tensor, job.round));
  GradientPart part{.tensor = job.tensor,
                    .partition = partition,
                    .round = job.round,
                    .grad_buf = std::move(grad_buf),
                    .gradient_bound = gradient_bound};
  SLIMPS_RETURN_IF_ERROR(MakeMomentum(job, &part, &push));
  if (part.grad_buf != nullptr) {
    const bool whole = !push.momentum() && !IsPrecision(codec.format()) &&
                       options_.sends_whole_gradients != nullptr &&
                       options_.sends_whole_gradients();
    SLIMPS_RETURN_IF_ERROR(
        AddGradient(part, whole ? *whole_ : codec, compressor, &prepared, &push));
  }
  if (job.ready != nullptr) AddReady((*job.ready)[partition], &prepared, &push);
  prepared.item.item = std::move(push);
  return prepared;
}

absl::Status PushItemMaker::MakeMomentum(const PushJob& job, GradientPart* part,
                                         wire::PushItem* push) {
  if (options_.momentum == nullptr || job.ready != nullptr ||
      !options_.momentum->Covers(*job.tensor, part->partition)) {
    return absl::OkStatus();
  }
  if (part->grad_buf == nullptr) {
    SLIMPS_ASSIGN_OR_RETURN(part->grad_buf,
                            payloads_.Zeros(job.tensor->partitions[part->partition].elements));
  } else {
    SLIMPS_ASSIGN_OR_RETURN(part->grad_buf, payloads_.Own(std::move(part->grad_buf)));
  }
  std::optional<float> beta1;
  if (job.hyper.has_value() && job.hyper->has_momentum()) {
    beta1 = static_cast<float>(job.hyper->momentum());
  }
  std::vector<uint32_t> unmasked;
  SLIMPS_ASSIGN_OR_RETURN(const bool made,
                          options_.momentum->Make({.tensor = job.tensor,
                                                   .partition = part->partition,
                                                   .round = job.round,
                                                   .grad_scale = options_.payloads.grad_scale,
                                                   .beta1 = beta1},
                                                  part->grad_buf->floats(), &unmasked));
  push->set_momentum(made);
  push->mutable_unmasked()->Add(unmasked.begin(), unmasked.end());
  part->scaled = made;
  part->gradient_bound = std::numeric_limits<float>::infinity();
  return absl::OkStatus();
}

absl::Status PushItemMaker::AddGradient(const GradientPart& part, const Codec& codec,
                                        const Codec& compressor, PreparedPush* prepared,
                                        wire::PushItem* push) {
  const SteadyTime start = options_.clock->Now();
  SLIMPS_ASSIGN_OR_RETURN(MadePayload made, payloads_.Make(part, codec, compressor));
  const SteadyTime end = options_.clock->Now();
  TraceLog::Global().AddOfThread(TraceStage::kEncode,
                                 {prepared->item.key_name, static_cast<uint32_t>(part.partition),
                                  part.round, part.tensor->partitions[part.partition].elements},
                                 start, end);
  prepared->encode = end - start;
  prepared->stats = made.stats;
  prepared->elements = part.grad_buf->floats().size();
  prepared->compressed = !IsPrecision(made.format);
  AddPayload(std::move(made.payload), static_cast<wire::Format>(made.format), &prepared->item,
             push);
  return absl::OkStatus();
}

void PushItemMaker::AddReady(const ReadyPayload& ready, PreparedPush* prepared,
                             wire::PushItem* push) const {
  prepared->stats = ready.stats;
  prepared->elements = ready.elements;
  prepared->compressed = ready.compressed;
  if (ready.format != wire::ABSENT) {
    AddPayload(ready.payload, ready.format, &prepared->item, push);
  }
}

void PushItemMaker::AddPayload(Payload payload, wire::Format format, OutgoingItem* item,
                               wire::PushItem* push) const {
  push->set_format(format);
  push->set_payload_bytes(payload.size());
  push->set_payload_hash(options_.checksums ? HashBytes(payload.bytes()) : 0);
  item->payload = std::move(payload);
}

}  // namespace slimps
