// SPDX-License-Identifier: Apache-2.0
#include "server/round/versioned_weights.h"

#include <glog/logging.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "compress/kernels/kernels.h"
#include "proto/base/hash.h"
#include "proto/base/simulation/mutant.h"
#include "proto/base/status_macros.h"

namespace slimps {

VersionedWeights::VersionedWeights(size_t elements, PayloadFormat format, PayloadHashing hashing)
    : elements_(elements),
      format_(format),
      hashing_(hashing),
      current_(std::make_shared<Buffer>(elements)) {
  current_->wanted_format = format;
}

std::span<float> VersionedWeights::BeginNext(PreviousVersion previous) {
  // Acquire pairs with the release in Lend's deleter: all reads are done before the buffer is
  // written.
  const auto unread = [](const std::shared_ptr<Buffer>& buffer) {
    return buffer->leases.load(std::memory_order_acquire) == 0;
  };
  if (previous_ != nullptr) retired_.push_back(std::exchange(previous_, nullptr));
  if (next_ != nullptr && next_ != current_) retired_.push_back(std::move(next_));  // given up
  keep_current_ = previous == PreviousVersion::kKeep;
  if (!keep_current_ && unread(current_)) {
    next_ = current_;
    return next_->fp32.floats();
  }
  const auto free = std::find_if(retired_.begin(), retired_.end(), unread);
  if (free == retired_.end()) {
    next_ = std::make_shared<Buffer>(elements_);
    ++buffers_made_;
    return next_->fp32.floats();
  }
  next_ = std::move(*free);
  retired_.erase(free);
  // Keeps one spare. More were made only while messages held them.
  const auto spare = std::find_if(retired_.begin(), retired_.end(), unread);
  if (spare != retired_.end()) {
    retired_.erase(std::remove_if(std::next(spare), retired_.end(), unread), retired_.end());
  }
  return next_->fp32.floats();
}

std::span<std::byte> VersionedWeights::BeginChange(size_t bytes) {
  if (next_->change_bytes.size() < bytes) {
    next_->change_bytes = AlignedBuffer(bytes, BufferUse::kPayload);
  }
  return next_->change_bytes.bytes();
}

void VersionedWeights::CommitChange(const EncodedChange& change) {
  Commit(PayloadFormat::kRawF32);
  current_->change = change;
}

void VersionedWeights::CommitEncoded(const EncodedChange& payload) {
  CommitChange(payload);
  current_->is_encoded = true;
}

void VersionedWeights::Commit(PayloadFormat format) {
  const uint64_t version = current_->version + 1;
  if (next_ != current_) {
    if (keep_current_ && !simulation::Is(Mutant::kDropPrevious)) {
      previous_ = std::move(current_);
    } else {
      retired_.push_back(std::move(current_));
    }
  }
  current_ = std::exchange(next_, nullptr);
  current_->version = version;
  current_->hash.reset();
  current_->wanted_format = format;
  current_->change.reset();
  current_->change_hash.reset();
  current_->is_encoded = false;
  current_->is_decoded = false;
}

std::span<const float> VersionedWeights::Decoded(Buffer& buffer) const {
  if (buffer.is_encoded && !buffer.is_decoded) {
    const EncodedChange& whole = *buffer.change;
    Decode(whole.format, std::as_const(buffer.change_bytes).bytes().first(whole.bytes), elements_,
           0, buffer.fp32.floats());
    buffer.is_decoded = true;
  }
  return std::as_const(buffer.fp32).floats();
}

Payload VersionedWeights::Lend(const std::shared_ptr<Buffer>& buffer,
                               std::span<const std::byte> bytes) {
  std::shared_ptr<const void> lease = buffer->lease.lock();
  if (lease == nullptr) {
    buffer->leases.fetch_add(1, std::memory_order_relaxed);
    // The deleter drops its share of the buffer. The buffer knows the lease only weakly, because
    // the two must not keep each other alive.
    lease = std::shared_ptr<const void>(buffer.get(), [keep = buffer](const void*) mutable {
      keep->leases.fetch_sub(1, std::memory_order_release);
      keep.reset();
    });
    buffer->lease = lease;
  }
  return Payload(std::move(lease), bytes);
}

std::span<const std::byte> VersionedWeights::WireBytes(Buffer& buffer) const {
  const std::span<const float> values = std::as_const(buffer.fp32).floats();
  // A hashed buffer is converted already, and messages may be reading it.
  const bool converted = buffer.hash.has_value();
  if (!converted) buffer.format = ChooseFormat(buffer.wanted_format, values);
  if (buffer.format == PayloadFormat::kRawF32) return std::as_const(buffer.fp32).bytes();
  if (converted) return std::as_const(buffer.half).bytes();
  if (buffer.half.size() == 0) {
    buffer.half = AlignedBuffer(elements_ * sizeof(uint16_t), BufferUse::kPayload);
  }
  const RawKernels& raw = BestKernels().raw;
  const auto encode = buffer.format == PayloadFormat::kRawF16 ? raw.encode_f16 : raw.encode_bf16;
  encode(values.data(), /*residual=*/nullptr, /*grad_scale=*/1.0f, elements_,
         buffer.half.bytes().data());
  return std::as_const(buffer.half).bytes();
}

PayloadFormat VersionedWeights::ChooseFormat(PayloadFormat wanted, std::span<const float> values) {
  if (wanted == PayloadFormat::kRawF32) return wanted;
  const size_t too_large =
      BestKernels().raw.find_unencodable(values.data(), /*residual=*/nullptr, /*grad_scale=*/1.0f,
                                         LargestRawValue(wanted), values.size());
  return too_large == values.size() ? wanted : PayloadFormat::kRawF32;
}

uint64_t VersionedWeights::HashOf(std::span<const std::byte> bytes) const {
  return hashing_ == PayloadHashing::kXxh3 ? HashBytes(bytes) : 0;
}

WireValue VersionedWeights::ShareBuffer(const std::shared_ptr<Buffer>& buffer) const {
  if (buffer->is_encoded) return ShareChange(buffer);
  const std::span<const std::byte> bytes = WireBytes(*buffer);
  if (!buffer->hash.has_value()) buffer->hash = HashOf(bytes);
  return {.version = buffer->version,
          .format = buffer->format,
          .payload = Lend(buffer, bytes),
          .hash = *buffer->hash};
}

WireValue VersionedWeights::ShareChange(const std::shared_ptr<Buffer>& buffer) const {
  const EncodedChange& change = *buffer->change;
  const std::span<const std::byte> bytes =
      std::as_const(buffer->change_bytes).bytes().first(change.bytes);
  if (!buffer->change_hash.has_value()) buffer->change_hash = HashOf(bytes);
  WireValue value{.version = buffer->version,
                  .format = change.format,
                  .payload = Lend(buffer, bytes),
                  .hash = *buffer->change_hash,
                  .encode_ns = change.encode_ns};
  if (!buffer->is_encoded) value.base_version = buffer->version - 1;
  return value;
}

bool VersionedWeights::Holds(uint64_t version) const {
  return version == current_->version || (previous_ != nullptr && version == previous_->version);
}

const std::shared_ptr<VersionedWeights::Buffer>& VersionedWeights::Find(uint64_t version) const {
  CHECK(Holds(version)) << "version " << version << " is not held";
  return version == current_->version ? current_ : previous_;
}

WireValue VersionedWeights::Share(uint64_t wanted, std::optional<uint64_t> held) {
  const std::shared_ptr<Buffer>& buffer = Find(wanted);
  const bool holds_base = held.has_value() && *held + 1 == buffer->version;
  return holds_base && buffer->change.has_value() ? ShareChange(buffer) : ShareBuffer(buffer);
}

bool VersionedWeights::IsConverted() {
  if (current_->wanted_format == PayloadFormat::kRawF32) return false;
  return ShareBuffer(current_).format != PayloadFormat::kRawF32;
}

void VersionedWeights::CopySeen(std::span<float> out) {
  const WireValue value = ShareBuffer(current_);
  Decode(value.format, value.payload.bytes(), elements_, 0, out);
}

void VersionedWeights::CopySeenPart(uint64_t wanted, size_t first, std::span<float> out) {
  const std::shared_ptr<Buffer>& buffer = Find(wanted);
  // ShareBuffer converts and hashes the whole version, which only half precision needs. In fp32
  // nothing is done for elements that are not wanted.
  const bool plain = buffer->is_encoded || buffer->wanted_format == PayloadFormat::kRawF32 ||
                     ShareBuffer(buffer).format == PayloadFormat::kRawF32;
  const RawKernels& raw = BestKernels().raw;
  if (plain) {
    std::ranges::copy(Decoded(*buffer).subspan(first, out.size()), out.begin());
  } else {
    const auto decode = buffer->format == PayloadFormat::kRawF16 ? raw.decode_f16 : raw.decode_bf16;
    decode(std::as_const(buffer->half).bytes().data() + sizeof(uint16_t) * first, out.size(),
           out.data());
  }
}

void VersionedWeights::SaveBuffer(const std::shared_ptr<Buffer>& buffer, ImageUse use,
                                  saved::Version* fields, PartitionImage* image) {
  fields->set_version(buffer->version);
  fields->set_wanted_format(static_cast<wire::Format>(buffer->wanted_format));
  if (buffer->change.has_value() && (use == ImageUse::kSnapshot || buffer->is_encoded)) {
    const EncodedChange& change = *buffer->change;
    saved::EncodedChange& saved = *fields->mutable_change();
    saved.set_format(static_cast<wire::Format>(change.format));
    saved.set_encode_ns(change.encode_ns);
    saved.set_part(
        image->Add(Lend(buffer, std::as_const(buffer->change_bytes).bytes().first(change.bytes))));
  }
  fields->set_is_encoded(buffer->is_encoded);
  if (!buffer->is_encoded) {
    fields->set_part(image->Add(Lend(buffer, std::as_const(buffer->fp32).bytes())));
  }
}

void VersionedWeights::Save(ImageUse use, saved::Weights* fields, PartitionImage* image) const {
  SaveBuffer(current_, use, fields->mutable_current(), image);
  if (previous_ == nullptr || use == ImageUse::kCheckpoint) return;
  SaveBuffer(previous_, use, fields->mutable_previous(), image);
}

absl::StatusOr<std::shared_ptr<VersionedWeights::Buffer>> VersionedWeights::RestoreBuffer(
    const saved::Version& fields, const PartitionImage& image) const {
  auto buffer = std::make_shared<Buffer>(elements_);
  buffer->version = fields.version();
  SLIMPS_ASSIGN_OR_RETURN(buffer->wanted_format, RestoreFormat(fields.wanted_format()));
  if (fields.has_change()) {
    const saved::EncodedChange& saved = fields.change();
    SLIMPS_ASSIGN_OR_RETURN(const PayloadFormat format, RestoreFormat(saved.format()));
    SLIMPS_ASSIGN_OR_RETURN(const Payload payload,
                            image.PayloadOf(format, saved.part(), elements_));
    buffer->change_bytes = AlignedBuffer(payload.size(), BufferUse::kPayload);
    std::ranges::copy(payload.bytes(), buffer->change_bytes.bytes().begin());
    buffer->change = {.format = format, .bytes = payload.size(), .encode_ns = saved.encode_ns()};
  }
  buffer->is_encoded = fields.is_encoded();
  if (!buffer->is_encoded) {
    SLIMPS_RETURN_IF_ERROR(image.CopyTo(fields.part(), buffer->fp32.bytes()));
  } else if (!buffer->change.has_value()) {
    return BadImage(absl::StrCat("version ", fields.version(), " is encoded, but has no payload"));
  }
  return buffer;
}

absl::Status VersionedWeights::Restore(const saved::Weights& fields, const PartitionImage& image) {
  SLIMPS_ASSIGN_OR_RETURN(current_, RestoreBuffer(fields.current(), image));
  if (!fields.has_previous()) return absl::OkStatus();
  SLIMPS_ASSIGN_OR_RETURN(previous_, RestoreBuffer(fields.previous(), image));
  ++buffers_made_;
  return absl::OkStatus();
}

size_t VersionedWeights::buffer_count() const {
  return 1 + (previous_ != nullptr) + (next_ != nullptr && next_ != current_) + retired_.size();
}

}  // namespace slimps
