// Which codec a push uses: a versioned map key -> codec spec, whose simplest case is one threshold.
// Decisions hold from a round on; rounds before it, still being sent or sent again, keep the
// decision that they were made under.
//
//   CodecMap codecs;   // everything raw until the first decision
//   codecs.Apply({.version = 1, .from_round = 23, .threshold_bytes = 2'200'000, .codec = "1bit"});
//   codecs.CodecFor(key, tensor_bytes, round);   // "none" or "1bit"
//
// Plain data: this folder sees no protobuf; the worker and the scheduler convert from and to
// wire::CodecMap.
#ifndef SLIMPS_COMPRESS_POLICY_CODEC_MAP_H_
#define SLIMPS_COMPRESS_POLICY_CODEC_MAP_H_

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "proto/base/key.h"

namespace slimps {

struct CodecDecision {
  uint64_t version = 0;     // from 1; a newer decision has a higher one
  uint64_t from_round = 0;  // the first round it holds for
  // Tensors of at least this many fp32 bytes use `codec`; 0: all. nullopt: none, everything uses
  // `codec_below`.
  std::optional<uint64_t> threshold_bytes;
  std::string codec_below = "none";
  std::string codec = "none";
  std::map<KeyId, std::string> entries = {};  // keys that do not follow the threshold

  std::string_view CodecFor(KeyId key, uint64_t tensor_bytes) const;
  friend bool operator==(const CodecDecision&, const CodecDecision&) = default;
};

// Thread-compatible.
class CodecMap final {
 public:
  // `initial` (its from_round is taken as 0) holds until the first decision.
  explicit CodecMap(CodecDecision initial = {});

  // The newest version again, unchanged, is OK and does nothing. AlreadyExists: that version with
  // other contents. FailedPrecondition: an older version, or one that reaches back before a
  // decision already made.
  [[nodiscard]] absl::Status Apply(CodecDecision decision);

  const CodecDecision& newest() const { return history_.back(); }
  // The decision for `round`; for rounds before everything kept, the oldest.
  const CodecDecision& DecisionAt(uint64_t round) const;
  // The view lives until ForgetBefore drops the decision.
  std::string_view CodecFor(KeyId key, uint64_t tensor_bytes, uint64_t round) const;
  // No round before `round` will be asked for again.
  void ForgetBefore(uint64_t round);

 private:
  std::deque<CodecDecision> history_;  // rising version and from_round; never empty
};

}  // namespace slimps

#endif  // SLIMPS_COMPRESS_POLICY_CODEC_MAP_H_
