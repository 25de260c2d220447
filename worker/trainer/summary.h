// SPDX-License-Identifier: Apache-2.0
// Summary: the JSON that rank 0 writes at the end. It holds what was run, how well it learnt, what
// it sent, where the time went, and what the threshold table decided. README.md lists the keys.
// Functions are thread-safe.
#ifndef SLIMPS_WORKER_TRAINER_SUMMARY_H_
#define SLIMPS_WORKER_TRAINER_SUMMARY_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "compress/policy/threshold_table.h"
#include "proto/slimps.pb.h"
#include "worker/trainer/model.h"
#include "worker/trainer/train_loop.h"

namespace slimps {

struct Summary {
  std::string model;
  std::string dataset;
  std::string optimizer;
  std::string compression;
  std::string threshold;  // as the user gave it: "auto" or bytes
  std::string policy = "threshold";
  std::string pull_compression = "none";
  std::string pull_threshold = "auto";
  std::string kvstore;
  bool backup_model = false;
  uint64_t seed = 0;
  uint32_t workers = 0;
  uint32_t servers = 0;
  size_t epochs = 0;
  size_t batch = 0;
  double emulated_link_bytes_per_second = 0;  // 0: a real link
  double emulated_latency_ms = 0;
  TrainingReport training;
  LossSums test;
  std::optional<wire::CodecMap> decision;
  std::vector<wire::CodecMap> policy_decisions;  // of a policy that adapts, in order
};

std::string BuildSummaryJson(const Summary& summary);

// Returns the averaged table behind a decision; empty if nothing was measured.
// InvalidArgument: the decision has a row that no table can hold.
[[nodiscard]] absl::StatusOr<ThresholdTable> TableOf(const std::optional<wire::CodecMap>& decision,
                                                     wire::Direction direction = wire::PUSH);

// Describes the threshold table in words, one line per size; empty if nothing was measured. Of a
// policy that adapts, describes the decision in force.
std::string ExplainDecision(const std::optional<wire::CodecMap>& decision);

[[nodiscard]] absl::Status WriteSummary(const std::string& path, const Summary& summary);

}  // namespace slimps

#endif  // SLIMPS_WORKER_TRAINER_SUMMARY_H_
