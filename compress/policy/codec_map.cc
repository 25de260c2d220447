// SPDX-License-Identifier: Apache-2.0
#include "compress/policy/codec_map.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace slimps {

std::string_view CodecDecision::CodecFor(KeyId key, uint64_t tensor_bytes, size_t step) const {
  if (const auto entry = entries.find(key); entry != entries.end()) {
    return entry->second[std::min(step, entry->second.size() - 1)];
  }
  return threshold_bytes.has_value() && tensor_bytes >= *threshold_bytes ? codec : codec_below;
}

CodecMap::CodecMap(CodecDecision initial) {
  initial.from_round = 0;
  history_.push_back(std::move(initial));
}

absl::Status CodecMap::Apply(CodecDecision decision) {
  const CodecDecision& last = newest();
  if (decision.version == last.version && decision == last) return absl::OkStatus();
  if (decision.version == last.version) {
    return absl::AlreadyExistsError(
        absl::StrCat("codec map: version ", decision.version, " came twice with other contents"));
  }
  if (decision.version < last.version) {
    return absl::FailedPreconditionError(absl::StrCat("codec map: expected a version over ",
                                                      last.version, ", got ", decision.version));
  }
  if (decision.from_round < last.from_round) {
    return absl::FailedPreconditionError(absl::StrCat("codec map: version ", decision.version,
                                                      " holds from round ", decision.from_round,
                                                      ", expected ", last.from_round, " or later"));
  }
  history_.push_back(std::move(decision));
  return absl::OkStatus();
}

const CodecDecision& CodecMap::DecisionAt(uint64_t round) const {
  for (auto decision = history_.rbegin(); decision != history_.rend(); ++decision) {
    if (decision->from_round <= round) return *decision;
  }
  return history_.front();
}

std::string_view CodecMap::CodecFor(KeyId key, uint64_t tensor_bytes, uint64_t round,
                                    size_t step) const {
  return DecisionAt(round).CodecFor(key, tensor_bytes, step);
}

void CodecMap::ForgetBefore(uint64_t round) {
  // The decision in force at `round` stays.
  while (history_.size() > 1 && history_[1].from_round <= round) history_.pop_front();
}

}  // namespace slimps
