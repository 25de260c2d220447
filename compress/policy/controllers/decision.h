// SPDX-License-Identifier: Apache-2.0
// What a controller decides: for each tensor a codec, or a ladder of codecs among which each worker
// chooses anew in every round, and the reasons in words. Plain data. Thread-compatible.
//
//   PolicyDecision decision{.from_round = 240, .reason = "lgreco: 41 % of uniform's bytes"};
//   decision.tensors[key] = {.steps = {{.codec = "topk:ratio=0.004"}}, .reason = "1.2 % of |x|^2"};
#ifndef SLIMPS_COMPRESS_POLICY_CONTROLLERS_DECISION_H_
#define SLIMPS_COMPRESS_POLICY_CONTROLLERS_DECISION_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "proto/base/key.h"

namespace slimps {

struct LadderStep {
  std::string codec = "none";  // a codec spec with its options
  // The step is taken if the compression gain |C(x)|^2 / |x|^2 of all tensors with several steps
  // together is at least this. 0: always.
  double min_gain = 0;

  friend bool operator==(const LadderStep&, const LadderStep&) = default;
};

struct TensorDecision {
  // From most to least compressed, at least one. The last one's min_gain is 0. A worker takes the
  // first step whose gain meets its min_gain (step_choice.h). Within a decision, all ladders with
  // more than one step have the same number of steps with the same min_gain.
  std::vector<LadderStep> steps = {{}};
  std::string reason = "";  // in words, one line

  friend bool operator==(const TensorDecision&, const TensorDecision&) = default;
};

struct PolicyDecision {
  uint64_t from_round = 0;                  // the first round that it holds for
  std::map<KeyId, TensorDecision> tensors;  // tensors that are not here are sent raw
  std::string reason = "";                  // in words, one line

  friend bool operator==(const PolicyDecision&, const PolicyDecision&) = default;
};

}  // namespace slimps

#endif  // SLIMPS_COMPRESS_POLICY_CONTROLLERS_DECISION_H_
