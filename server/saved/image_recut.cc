// SPDX-License-Identifier: Apache-2.0
#include "server/saved/image_recut.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/base/status_macros.h"
#include "proto/limits.h"

namespace slimps {
namespace {

// Returns the fields that hold numbers of parts, those of fp32 values: w_seen, w if it is apart,
// and what the optimizer keeps.
std::vector<uint32_t> PartsOf(const saved::Partition& fields) {
  std::vector<uint32_t> parts = {fields.weights().current().part()};
  if (fields.weights().apart()) parts.push_back(fields.weights().master_part());
  parts.insert(parts.end(), fields.optimizer().tensor_parts().begin(),
               fields.optimizer().tensor_parts().end());
  return parts;
}

bool HasOpenPushes(const saved::OpenRounds& rounds) {
  if (rounds.partial().contributors() > 0) return true;
  return std::ranges::any_of(rounds.ledger().open(), [](const saved::Round& round) {
    return std::ranges::any_of(round.slots(),
                               [](const saved::Slot& slot) { return slot.counted(); });
  });
}

}  // namespace

absl::Status ImageRecut::Check(const PartitionImage& image) const {
  const saved::Partition& fields = image.fields;
  const wire::InitItem& item = fields.spec().item();
  const auto refuse = [&](absl::string_view what) {
    return absl::FailedPreconditionError(
        absl::StrCat("key ", item.info().name(), " partition ", item.id().partition(),
                     ": cannot be cut into other partitions: ", what));
  };
  if (fields.weights().current().is_encoded()) return refuse("its weights are a payload");
  if (HasOpenPushes(fields.rounds())) return refuse("pushes of a round wait that is not complete");
  if (buffers_.empty()) return absl::OkStatus();
  const bool alike =
      fields.weights().current().version() == fields_.weights().current().version() &&
      fields.optimizer().updates() == fields_.optimizer().updates() &&
      PartsOf(fields).size() == buffers_.size();
  return alike ? absl::OkStatus() : refuse("its version is not that of the others");
}

void ImageRecut::Begin(const PartitionImage& image) {
  fields_ = image.fields;
  *fields_.mutable_spec() = spec_;
  const size_t parts = PartsOf(fields_).size();
  for (size_t i = 0; i < parts; ++i) {
    buffers_.push_back(
        AlignedBuffer::OfFloats(static_cast<size_t>(spec_.item().elements()), BufferUse::kPayload));
  }
  uint32_t next = 1;
  fields_.mutable_weights()->mutable_current()->set_part(next++);
  if (fields_.weights().apart()) fields_.mutable_weights()->set_master_part(next++);
  for (uint32_t& part : *fields_.mutable_optimizer()->mutable_tensor_parts()) part = next++;
}

absl::Status ImageRecut::Add(const PartitionImage& image) {
  const wire::InitItem& have = image.fields.spec().item();
  const wire::InitItem& want = spec_.item();
  if (have.elements() > kDefaultLimits.max_elements ||
      have.offset() > kDefaultLimits.max_elements) {
    return BadImage(absl::StrCat(have.elements(), " elements from ", have.offset(), " on"));
  }
  const Shared shared = {
      .from = std::max(have.offset(), want.offset()),
      .to = std::min(have.offset() + have.elements(), want.offset() + want.elements())};
  if (shared.from >= shared.to) return absl::OkStatus();
  SLIMPS_RETURN_IF_ERROR(Check(image));
  if (buffers_.empty()) Begin(image);
  const std::vector<uint32_t> numbers = PartsOf(image.fields);
  for (size_t i = 0; i < numbers.size(); ++i) {
    SLIMPS_ASSIGN_OR_RETURN(const Payload part, image.Part(numbers[i]));
    if (part.size() != have.elements() * sizeof(float))
      return BadImage("a part has another length");
    const std::span<const std::byte> values = part.bytes().subspan(
        (shared.from - have.offset()) * sizeof(float), (shared.to - shared.from) * sizeof(float));
    std::ranges::copy(values,
                      buffers_[i].bytes().begin() +
                          static_cast<ptrdiff_t>((shared.from - want.offset()) * sizeof(float)));
  }
  copied_ += shared.to - shared.from;
  return absl::OkStatus();
}

PartitionImage ImageRecut::Take() {
  PartitionImage image{.fields = std::move(fields_), .parts = {}};
  for (AlignedBuffer& buffer : buffers_) {
    const size_t bytes = buffer.bytes().size();
    image.Add(Payload::Adopt(std::move(buffer), bytes));
  }
  return image;
}

}  // namespace slimps
