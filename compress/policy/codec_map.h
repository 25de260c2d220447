// SPDX-License-Identifier: Apache-2.0
// Says which codec a push uses: a versioned map from key to codec spec. In the simplest case it is
// one threshold. A decision holds from a given round on. Earlier rounds keep the decision under
// which they were made, since they may still be sent, or sent again.
//
//   CodecMap codecs;   // everything raw until the first decision
//   codecs.Apply({.version = 1, .from_round = 23, .threshold_bytes = 2'200'000, .codec = "1bit"});
//   codecs.CodecFor(key, tensor_bytes, round);   // "none" or "1bit"
//
// Plain data: this folder does not see protobuf. The worker and the scheduler convert from and to
// wire::CodecMap.
#ifndef SLIMPS_COMPRESS_POLICY_CODEC_MAP_H_
#define SLIMPS_COMPRESS_POLICY_CODEC_MAP_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "proto/base/key.h"

namespace slimps {

struct CodecDecision {
  uint64_t version = 0;     // counts from 1; a newer decision has a higher version
  uint64_t from_round = 0;  // the first round that the decision holds for
  // Tensors of at least this many fp32 bytes use `codec`, smaller ones `codec_below`. 0: all
  // tensors use `codec`. nullopt: all tensors use `codec_below`.
  std::optional<uint64_t> threshold_bytes;
  std::string codec_below = "none";
  std::string codec = "none";
  // Codecs of keys that do not follow the threshold, by step: a worker chooses its step for each
  // round (controllers/step_choice.h). Each has at least one.
  std::map<KeyId, std::vector<std::string>> entries = {};

  // Returns the codec of a tensor: its entry's at `step` (or the last, if it has fewer), or else
  // what the threshold says.
  std::string_view CodecFor(KeyId key, uint64_t tensor_bytes, size_t step = 0) const;

  friend bool operator==(const CodecDecision&, const CodecDecision&) = default;
};

// Thread-compatible.
class CodecMap final {
 public:
  // `initial` holds until the first decision. Its from_round is taken as 0.
  explicit CodecMap(CodecDecision initial = {});

  // Appends a newer decision. The newest decision once more, unchanged, is OK and does nothing.
  // AlreadyExists: the newest version with other contents.
  // FailedPrecondition: an older version, or a from_round before the newest decision's.
  [[nodiscard]] absl::Status Apply(CodecDecision decision);

  const CodecDecision& newest() const { return history_.back(); }

  // Returns the decision for `round`. For rounds before all decisions kept it returns the oldest.
  const CodecDecision& DecisionAt(uint64_t round) const;

  // Returns the codec of a tensor in `round`. The view is valid until ForgetBefore drops the
  // decision.
  std::string_view CodecFor(KeyId key, uint64_t tensor_bytes, uint64_t round,
                            size_t step = 0) const;

  // Drops the decisions that rounds before `round` alone need. REQUIRES: the caller asks for no
  // round before `round` again.
  void ForgetBefore(uint64_t round);

 private:
  std::deque<CodecDecision> history_;  // never empty; version and from_round rise
};

}  // namespace slimps

#endif  // SLIMPS_COMPRESS_POLICY_CODEC_MAP_H_
