// SPDX-License-Identifier: Apache-2.0
#include "compress/policy/controllers/iteration_model.h"

#include <algorithm>
#include <numeric>

namespace slimps {

TimedTensor TimedTensorOf(const Report& report, const TensorReport& tensor, RawLevel raw) {
  const auto raw_bytes = static_cast<double>(tensor.tensor.raw_bytes());
  const auto pull_bytes = [&](double push_bytes) {
    if (tensor.pull_bytes > 0) return static_cast<double>(tensor.pull_bytes);
    return report.pulls_follow_pushes ? push_bytes : raw_bytes;
  };
  TimedTensor timed{.ready_ns = tensor.ready_ns, .levels = {}};
  for (const LevelReport& level : tensor.levels) {
    const auto bytes = static_cast<double>(level.payload_bytes);
    timed.levels.push_back({.error = level.error_norm2,
                            .push_bytes = bytes,
                            .pull_bytes = pull_bytes(bytes),
                            .encode_ns = level.encode_ns,
                            .decode_ns = level.decode_ns});
  }
  if (raw == RawLevel::kLast) {
    timed.levels.push_back({.push_bytes = raw_bytes, .pull_bytes = pull_bytes(raw_bytes)});
  }
  return timed;
}

bool KnowsLink(const Report& report) { return report.link.ns_per_byte > 0; }

double PredictIterationNs(const TimedProblem& problem, const Allocation& allocation) {
  struct Push {
    double at = 0;
    const TimedLevel* level = nullptr;
  };
  const auto in_time = [](const Push& a, const Push& b) { return a.at < b.at; };
  std::vector<Push> pushes;
  for (size_t i = 0; i < problem.tensors.size(); ++i) {
    pushes.push_back({problem.tensors[i].ready_ns, &problem.tensors[i].levels[allocation[i]]});
  }
  std::ranges::stable_sort(pushes, in_time);
  double encoder_free = 0;
  for (Push& push : pushes) {
    if (push.level->encode_ns == 0) continue;
    encoder_free = push.at = std::max(encoder_free, push.at) + push.level->encode_ns;
  }
  std::ranges::stable_sort(pushes, in_time);
  double push_free = 0;
  for (Push& push : pushes) {
    push_free = std::max(push_free, push.at) + push.level->push_bytes * problem.link.ns_per_byte;
    push.at = push_free + problem.link.startup_ns + push.level->decode_ns * problem.workers;
  }
  std::ranges::stable_sort(pushes, in_time);
  double pull_free = 0, last = 0;
  for (const Push& push : pushes) {
    pull_free = std::max(pull_free, push.at) + push.level->pull_bytes * problem.link.ns_per_byte;
    last = std::max(last, pull_free + problem.link.startup_ns);
  }
  return last;
}

}  // namespace slimps
