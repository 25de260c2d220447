// SPDX-License-Identifier: Apache-2.0
#include "server/round/master_weights.h"

#include <algorithm>
#include <utility>

#include "absl/status/statusor.h"
#include "compress/format/philox.h"
#include "proto/base/clock.h"
#include "proto/base/simulation/mutant.h"
#include "proto/base/status_macros.h"

namespace slimps {
namespace {

PayloadFormat WireFormatOf(wire::DType dtype) {
  switch (dtype) {
    case wire::FLOAT16:
      return PayloadFormat::kRawF16;
    case wire::BFLOAT16:
      return PayloadFormat::kRawBf16;
    default:
      return PayloadFormat::kRawF32;
  }
}

}  // namespace

MasterWeights::MasterWeights(const PartitionSpec& spec)
    : spec_(spec), versions_(spec.elements, WireFormatOf(spec.dtype), spec.hashing) {}

EncodeContext MasterWeights::ChangeContext() const {
  return {.key = spec_.key,
          .partition = spec_.index,
          .round = versions_.version() + 1,
          .worker = kAnyWorker,  // no worker's own random stream
          .layer = spec_.layer,
          .grid = spec_.grid()};
}

MasterWeights::Next MasterWeights::BeginNext(std::shared_ptr<const ChangeCodec> codec) {
  Begun& begun = begun_.emplace();
  begun.codec = std::move(codec);
  const std::span<const float> before = current();
  // Without rounds in common no pull names the version before.
  begun.after = versions_.BeginNext(spec_.applies_at_once() ? PreviousVersion::kDrop
                                                            : PreviousVersion::kKeep);
  if (begun.codec != nullptr && begun.codec->encodes_change()) BeginChange(begun);
  return {.before = before,
          .after = begun.after,
          .change = begun.encoder.has_value() ? &*begun.encoder : nullptr};
}

void MasterWeights::BeginChange(Begun& begun) {
  const ChangeCodec& change = *begun.codec;
  begun.seen = {.before = versions_.current(), .after = begun.after};
  begun.payload = versions_.BeginChange(change.codec->MaxPayloadBytes(spec_.elements));
  if (versions_.IsConverted()) {
    begun.converted = AlignedBuffer::OfFloats(spec_.elements);
    versions_.CopySeen(begun.converted.floats());
    begun.seen.before = begun.converted.floats();
  }
  if (master_.size() == 0) master_ = AlignedBuffer::OfFloats(spec_.elements);
  begun.after = master_.floats();
  if (change.by_blocks == nullptr) return;
  change.workspace->Reset();
  begun.encoder.emplace(*change.by_blocks, ChangeContext(), begun.seen, begun.payload,
                        *change.workspace, change.clock);
}

MasterWeights::NextByMomentum MasterWeights::BeginByMomentum(size_t answer_bytes) {
  const std::span<const float> before = current();
  seen_exactly_ = !apart_ && !versions_.IsConverted();
  const std::span<float> after = versions_.BeginNext(PreviousVersion::kKeep);
  return {.before = before, .after = after, .answer = versions_.BeginChange(answer_bytes)};
}

void MasterWeights::CommitByMomentum(const EncodedChange& answer) {
  apart_ = false;
  if (seen_exactly_) return versions_.CommitChange(answer);
  versions_.Commit(PayloadFormat::kRawF32);
}

std::span<std::byte> MasterWeights::BeginEncoded(size_t bytes) {
  versions_.BeginNext(PreviousVersion::kKeep);
  return versions_.BeginChange(bytes);
}

void MasterWeights::CommitEncoded(const EncodedChange& payload) {
  apart_ = false;
  versions_.CommitEncoded(payload);
}

void MasterWeights::Commit() {
  Begun& begun = *begun_;
  if (begun.codec != nullptr && begun.codec->encodes_change()) {
    CommitChange(begun);
  } else {
    apart_ = false;
    if (begun.codec == nullptr) {
      versions_.Commit();
    } else {
      versions_.Commit(begun.codec->codec->format());
    }
  }
  begun_.reset();
}

void MasterWeights::CommitChange(Begun& begun) {
  const ChangeCodec& change = *begun.codec;
  absl::Duration took;
  absl::StatusOr<EncodeStats> encoded;
  if (begun.encoder.has_value()) {
    encoded = begun.encoder->Finish(begun.after);
    took = begun.encoder->encode_time();
  } else {
    const auto now = [&] { return change.clock == nullptr ? SteadyTime() : change.clock->Now(); };
    const SteadyTime start = now();
    encoded = EncodeWholeChange(*change.codec, ChangeContext(), begun.after, begun.seen,
                                begun.payload, *change.workspace);
    took = now() - start;
  }
  apart_ = true;
  if (encoded.ok() && encoded->payload_bytes >= begun.after.size_bytes()) {
    std::copy(begun.after.begin(), begun.after.end(), begun.seen.after.begin());
    return versions_.Commit(PayloadFormat::kRawF32);
  }
  if (!encoded.ok()) return versions_.Commit(PayloadFormat::kRawF32);
  const int64_t encode_ns = std::max<int64_t>(0, absl::ToInt64Nanoseconds(took));
  versions_.CommitChange({.format = change.codec->format(),
                          .bytes = encoded->payload_bytes,
                          .encode_ns = static_cast<uint64_t>(encode_ns)});
}

void MasterWeights::Save(ImageUse use, saved::Weights* fields, PartitionImage* image) const {
  versions_.Save(use, fields, image);
  const bool apart = apart_ && !simulation::Is(Mutant::kSnapshotWithoutSeen);
  fields->set_apart(apart);
  if (apart) fields->set_master_part(image->AddCopy(master_.bytes()));
}

absl::Status MasterWeights::Restore(const saved::Weights& fields, const PartitionImage& image) {
  SLIMPS_RETURN_IF_ERROR(versions_.Restore(fields, image));
  apart_ = fields.apart();
  if (!apart_) return absl::OkStatus();
  master_ = AlignedBuffer::OfFloats(spec_.elements);
  return image.CopyTo(fields.master_part(), master_.bytes());
}

}  // namespace slimps
