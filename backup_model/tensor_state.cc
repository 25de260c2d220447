// SPDX-License-Identifier: Apache-2.0
#include "backup_model/tensor_state.h"

#include <string>

#include "absl/strings/str_cat.h"

namespace slimps {

std::string_view TensorEventName(TensorEvent event) {
  switch (event) {
    case TensorEvent::kBeginGlobal:
      return "BeginGlobal";
    case TensorEvent::kGlobalArrived:
      return "GlobalArrived";
    case TensorEvent::kMergeGlobal:
      return "MergeGlobal";
    case TensorEvent::kLocalUpdate:
      return "LocalUpdate";
    case TensorEvent::kAcquireRead:
      return "AcquireRead";
    case TensorEvent::kReleaseRead:
      return "ReleaseRead";
  }
  return "?";
}

std::string TensorState::ToString() const {
  const bool fresh = status_ == LocStatus::kFresh;
  return absl::StrCat(
      "loc_buf ", fresh ? "0 (fresh" : "1 (updated", ", iteration ", iteration_,
      fresh ? "" : (was_read_ ? ", read" : ", not read"), ", readers ", readers_,
      "), glo_buf holds version ", global_version_, merged_ ? " (merged" : " (not merged",
      writing_ ? absl::StrCat(", version ", global_version_ + 1, " being written)") : ")");
}

absl::Status TensorState::Refuse(TensorEvent event, int64_t number,
                                 const std::string& expected) const {
  return absl::FailedPreconditionError(
      absl::StrCat("tensor ", name_, ": ", std::string(TensorEventName(event)), " ", number,
                   " refused; expected ", expected, "; state: ", ToString()));
}

absl::Status TensorState::BeginGlobal(int64_t version) {
  constexpr TensorEvent kEvent = TensorEvent::kBeginGlobal;
  if (version != global_version_ + 1) {
    return Refuse(kEvent, version, absl::StrCat("version ", global_version_ + 1));
  }
  if (writing_) return Refuse(kEvent, version, "one writer at a time");
  if (!merged_) {
    return Refuse(kEvent, version,
                  absl::StrCat("version ", global_version_, " to be merged into loc_buf first"));
  }
  writing_ = true;
  return absl::OkStatus();
}

absl::Status TensorState::GlobalArrived(int64_t version) {
  constexpr TensorEvent kEvent = TensorEvent::kGlobalArrived;
  if (!writing_) return Refuse(kEvent, version, "BeginGlobal of that version first");
  if (version != global_version_ + 1) {
    return Refuse(kEvent, version, absl::StrCat("version ", global_version_ + 1));
  }
  writing_ = false;
  merged_ = false;
  global_version_ = version;
  return absl::OkStatus();
}

absl::Status TensorState::MergeGlobal(int64_t version) {
  constexpr TensorEvent kEvent = TensorEvent::kMergeGlobal;
  if (status_ != LocStatus::kUpdated) {
    return Refuse(kEvent, version, absl::StrCat("LocalUpdate ", iteration_, " first"));
  }
  if (!was_read_) {
    return Refuse(kEvent, version, absl::StrCat("a reader of iteration ", iteration_, " first"));
  }
  if (readers_ != 0) return Refuse(kEvent, version, "the readers to have released loc_buf");
  if (version != iteration_ - 1) {
    return Refuse(kEvent, version, absl::StrCat("version ", iteration_ - 1));
  }
  // Version iteration-1 is the only one that can be here: see the invariant in the header.
  if (global_version_ != version) {
    return Refuse(kEvent, version, "that version to have arrived in glo_buf");
  }
  merged_ = true;
  status_ = LocStatus::kFresh;
  return absl::OkStatus();
}

absl::Status TensorState::LocalUpdate(int64_t iteration) {
  constexpr TensorEvent kEvent = TensorEvent::kLocalUpdate;
  if (status_ != LocStatus::kFresh) {
    return Refuse(kEvent, iteration,
                  absl::StrCat("MergeGlobal of version ", iteration_ - 1, " first"));
  }
  if (iteration != iteration_) {
    return Refuse(kEvent, iteration, absl::StrCat("iteration ", iteration_));
  }
  status_ = LocStatus::kUpdated;
  iteration_ = iteration + 1;
  was_read_ = false;
  return absl::OkStatus();
}

absl::Status TensorState::AcquireRead(int64_t iteration) {
  constexpr TensorEvent kEvent = TensorEvent::kAcquireRead;
  if (status_ != LocStatus::kUpdated) {
    return Refuse(kEvent, iteration, absl::StrCat("LocalUpdate ", iteration_, " first"));
  }
  if (iteration != iteration_) {
    return Refuse(kEvent, iteration, absl::StrCat("iteration ", iteration_));
  }
  ++readers_;
  was_read_ = true;
  return absl::OkStatus();
}

absl::Status TensorState::ReleaseRead() {
  if (readers_ == 0) return Refuse(TensorEvent::kReleaseRead, iteration_, "a reader");
  --readers_;
  return absl::OkStatus();
}

}  // namespace slimps
