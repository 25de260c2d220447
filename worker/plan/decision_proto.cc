// SPDX-License-Identifier: Apache-2.0
#include "worker/plan/decision_proto.h"

#include <string>
#include <vector>

namespace slimps {

const char* OwnPrecision(wire::DType dtype) {
  switch (dtype) {
    case wire::FLOAT16:
      return "fp16";
    case wire::BFLOAT16:
      return "bf16";
    default:
      return "none";
  }
}

CodecDecision PushDecisionOf(const wire::CodecMap& map) {
  CodecDecision decision{.version = map.version(),
                         .from_round = map.from_round(),
                         .codec_below = map.codec_below(),
                         .codec = map.codec()};
  if (map.has_threshold()) decision.threshold_bytes = map.threshold_bytes();
  for (const wire::CodecEntry& entry : map.entries()) {
    std::vector<std::string>& codecs = decision.entries[entry.key()];
    codecs.clear();
    for (const wire::CodecStep& step : entry.steps()) codecs.push_back(step.codec());
    if (codecs.empty()) codecs.push_back(entry.codec());
  }
  return decision;
}

CodecDecision PullDecisionOf(const wire::CodecMap& map) {
  CodecDecision decision{
      .version = map.version(), .from_round = map.from_round(), .codec = map.pull_codec()};
  if (map.has_pull_threshold()) decision.threshold_bytes = map.pull_threshold_bytes();
  return decision;
}

void SetPushDecision(const CodecDecision& decision, wire::CodecMap* map) {
  map->set_has_threshold(decision.threshold_bytes.has_value());
  map->set_threshold_bytes(decision.threshold_bytes.value_or(0));
  map->set_codec_below(decision.codec_below);
  map->set_codec(decision.codec);
}

void SetPullDecision(const CodecDecision& decision, wire::CodecMap* map) {
  map->set_has_pull_threshold(decision.threshold_bytes.has_value());
  map->set_pull_threshold_bytes(decision.threshold_bytes.value_or(0));
  map->set_pull_codec(decision.codec);
}

}  // namespace slimps
