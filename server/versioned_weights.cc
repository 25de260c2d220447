#include "server/versioned_weights.h"

#include <algorithm>
#include <utility>

#include "compress/kernels/kernels.h"
#include "proto/base/hash.h"

namespace slimps {

VersionedWeights::VersionedWeights(size_t elements, PayloadFormat format)
    : elements_(elements), format_(format), current_(std::make_shared<Buffer>(elements)) {}

std::span<float> VersionedWeights::BeginNext(PreviousVersion previous) {
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
    return next_->fp32.floats();
  }
  next_ = std::move(*free);
  retired_.erase(free);
  // One spare is enough: more were made only while messages held them.
  const auto spare = std::find_if(retired_.begin(), retired_.end(), unread);
  if (spare != retired_.end()) {
    retired_.erase(std::remove_if(std::next(spare), retired_.end(), unread), retired_.end());
  }
  return next_->fp32.floats();
}

void VersionedWeights::Commit() {
  const uint64_t version = current_->version + 1;
  if (next_ != current_) {
    if (keep_current_) {
      previous_ = std::move(current_);
    } else {
      retired_.push_back(std::move(current_));
    }
  }
  current_ = std::exchange(next_, nullptr);
  current_->version = version;
  current_->half.reset();
  current_->fp32_hash.reset();
}

Payload VersionedWeights::Lend(const std::shared_ptr<Buffer>& buffer) {
  std::shared_ptr<const void> lease = buffer->lease.lock();
  if (lease == nullptr) {
    buffer->leases.fetch_add(1, std::memory_order_relaxed);
    // The deleter gives up the buffer itself: the buffer knows the lease weakly, and the two must not keep each other.
    lease = std::shared_ptr<const void>(buffer.get(), [keep = buffer](const void*) mutable {
      keep->leases.fetch_sub(1, std::memory_order_release);
      keep.reset();
    });
    buffer->lease = lease;
  }
  return Payload(std::move(lease), std::as_const(buffer->fp32).bytes());
}

WireValue VersionedWeights::ShareBuffer(const std::shared_ptr<Buffer>& buffer) {
  if (format_ == PayloadFormat::kRawF32) {
    Payload payload = Lend(buffer);
    if (!buffer->fp32_hash.has_value()) buffer->fp32_hash = HashBytes(payload.bytes());
    return {buffer->version, format_, std::move(payload), *buffer->fp32_hash};
  }
  if (!buffer->half.has_value()) {
    AlignedBuffer converted(elements_ * sizeof(uint16_t));
    const Kernels& kernels = BestKernels();
    const auto encode =
        format_ == PayloadFormat::kRawF16 ? kernels.raw.encode_f16 : kernels.raw.encode_bf16;
    encode(std::as_const(buffer->fp32).floats().data(), /*residual=*/nullptr, /*grad_scale=*/1.0f,
           elements_, converted.bytes().data());
    const size_t bytes = converted.size();
    Payload payload = Payload::Adopt(std::move(converted), bytes);
    const uint64_t hash = HashBytes(payload.bytes());
    buffer->half = WireValue{buffer->version, format_, std::move(payload), hash};
  }
  return *buffer->half;
}

WireValue VersionedWeights::Share(uint64_t wanted) {
  const bool late = previous_ != nullptr && previous_->version == wanted;
  return ShareBuffer(late ? previous_ : current_);
}

size_t VersionedWeights::buffer_count() const {
  return 1 + (previous_ != nullptr) + (next_ != nullptr && next_ != current_) + retired_.size();
}

}  // namespace slimps
