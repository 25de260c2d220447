// SPDX-License-Identifier: Apache-2.0
#include "worker/pull/measured_pull.h"

#include <algorithm>
#include <array>
#include <span>

#include "compress/format/format.h"
#include "proto/base/buffer.h"
#include "worker/pull/pulled_form.h"

namespace slimps {
namespace {

// True if `answer` has the form that a version made with `change_codec` should have.
bool IsAsAgreed(std::string_view change_codec, const wire::PullReplyItem& answer) {
  const PulledForm form = PulledFormOf(change_codec);
  if (answer.is_change() != (form == PulledForm::kChange)) return false;
  switch (form) {
    case PulledForm::kAsKept:
      // Keys in half precision are not measured. A sum that pushes without decoding made comes as
      // the workers' integers.
      return answer.format() == wire::RAW_F32 || answer.format() == wire::ROTATED;
    case PulledForm::kF16:
      return answer.format() == wire::RAW_F16;
    case PulledForm::kBf16:
      return answer.format() == wire::RAW_BF16;
    case PulledForm::kChange:
      break;
  }
  return true;
}

}  // namespace

bool MeasuredPull::IsSample(size_t partition, const Answer& answer,
                            std::string_view change_codec) const {
  if (!answer.status.ok()) return false;
  const size_t elements = sum_.tensor->partitions[partition].elements;
  // A server keeps two versions. On a slow link only the weights of a newer version may come, and
  // they take as long. So they count as a sample; a change must be of this very version.
  const bool of_version = answer.pull.is_change() ? answer.pull.version() == sum_.version
                                                  : answer.pull.version() >= sum_.version;
  return of_version && answer.round_trip != absl::ZeroDuration() &&
         answer.pull.elements() == elements && IsAsAgreed(change_codec, answer.pull) &&
         ValidatePayload(static_cast<PayloadFormat>(answer.pull.format()), answer.payload.bytes(),
                         elements)
             .ok();
}

absl::Duration MeasuredPull::TimeToDecode(size_t partition, const Answer& answer) const {
  const size_t elements = sum_.tensor->partitions[partition].elements;
  const auto format = static_cast<PayloadFormat>(answer.pull.format());
  alignas(kBufferAlignment) std::array<float, kBlockElements> scratch{};
  const SteadyTime start = clock_->Now();
  for (size_t first = 0; first < elements; first += kBlockElements) {
    DecodeAdd(format, answer.payload.bytes(), elements, first,
              std::span<float>(scratch).first(std::min(kBlockElements, elements - first)));
  }
  return clock_->Now() - start;
}

void MeasuredPull::Add(size_t partition, const Answer& answer, SteadyTime arrived,
                       std::string_view change_codec) {
  all_are_samples_ = all_are_samples_ && IsSample(partition, answer, change_codec);
  if (!all_are_samples_) return;
  first_byte_ = std::min(first_byte_, arrived - answer.round_trip);
  last_answer_ = std::max(last_answer_, arrived);
  if (!answer.pull.is_change()) return;
  sum_.coding += absl::Nanoseconds(static_cast<int64_t>(answer.pull.encode_ns())) +
                 TimeToDecode(partition, answer);
}

std::optional<PullMeasurement> MeasuredPull::result() const {
  if (!all_are_samples_) return std::nullopt;
  PullMeasurement result = sum_;
  result.communication = last_answer_ - first_byte_;
  return result;
}

}  // namespace slimps
