// SPDX-License-Identifier: Apache-2.0
#include "worker/trainer/summary.h"

#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "compress/policy/table_rows.h"
#include "compress/policy/threshold_choice.h"
#include "compress/policy/threshold_explanation.h"
#include "proto/base/file.h"
#include "proto/base/key.h"

namespace slimps {

namespace {

// Keeps the keys in the order in which they were added, which is the order for readers.
using Json = nlohmann::ordered_json;

// JSON has neither NaN nor infinity, so they become null.
Json Finite(double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }

std::optional<uint64_t> ThresholdOf(const std::optional<wire::CodecMap>& decision,
                                    wire::Direction direction) {
  if (!decision.has_value()) return std::nullopt;
  if (direction == wire::PUSH) {
    return decision->has_threshold() ? std::optional(decision->threshold_bytes()) : std::nullopt;
  }
  return decision->has_pull_threshold() ? std::optional(decision->pull_threshold_bytes())
                                        : std::nullopt;
}

// Returns null if nothing was measured.
Json MeasuredMs(uint64_t samples, absl::Duration time) {
  return samples > 0 ? Json(absl::ToDoubleMilliseconds(time)) : Json(nullptr);
}

// Returns the times that decided, and beside them the measured ones. A time is null if nothing is
// known about its size.
Json TableJson(const ThresholdTable& table) {
  const std::vector<ThresholdRow> measured = table.Rows();
  const std::vector<ThresholdRow> decided = DecidedRows(measured);
  Json rows = Json::array();
  for (size_t i = 0; i < decided.size(); ++i) {
    const ThresholdRow& row = decided[i];
    const auto ms = [&row](absl::Duration time) {
      return row.complete() ? Json(absl::ToDoubleMilliseconds(time)) : Json(nullptr);
    };
    rows.push_back({{"bytes", row.bytes},
                    {"tensors", row.tensors > 0 ? Json(row.tensors) : Json(nullptr)},
                    {"t_c_ms", ms(row.t_c)},
                    {"t_cq_ms", ms(row.t_cq)},
                    {"t_pq_ms", ms(row.t_pq)},
                    {"t_q_ms", ms(row.t_q())},
                    {"gain", row.complete() ? Finite(row.gain()) : Json(nullptr)},
                    {"saves_ms", ms(row.weight() * (row.t_c - row.t_q()))},
                    {"measured",
                     {{"t_c_ms", MeasuredMs(measured[i].raw_samples, measured[i].t_c)},
                      {"t_cq_ms", MeasuredMs(measured[i].compressed_samples, measured[i].t_cq)},
                      {"t_pq_ms", MeasuredMs(measured[i].compressed_samples, measured[i].t_pq)},
                      {"raw_samples", measured[i].raw_samples},
                      {"compressed_samples", measured[i].compressed_samples}}}});
  }
  return rows;
}

// Adds "threshold_bytes", "threshold_table" and "estimated_step_ms", each with `prefix` before it.
void AddDecision(const std::string& prefix, const std::optional<wire::CodecMap>& decision,
                 wire::Direction direction, Json* json) {
  const std::optional<uint64_t> threshold = ThresholdOf(decision, direction);
  const absl::StatusOr<ThresholdTable> table = TableOf(decision, direction);
  (*json)[prefix + "threshold_bytes"] = threshold.has_value() ? Json(*threshold) : Json(nullptr);
  (*json)[prefix + "threshold_table"] = table.ok() ? TableJson(*table) : Json::array();
  if (!table.ok() || table->empty()) return;
  const StepEstimate step = EstimateStep(table->Rows(), threshold);
  (*json)[prefix + "estimated_step_ms"] = {{"raw", absl::ToDoubleMilliseconds(step.raw)},
                                           {"saved", absl::ToDoubleMilliseconds(step.saved)}};
}

// Returns what a policy has decided for each tensor, in order, with its reasons. A tensor that is
// not named is pushed raw.
Json PolicyJson(const std::vector<wire::CodecMap>& decisions,
                const std::vector<TensorPushes>& tensors) {
  std::map<KeyId, std::string> names;
  for (const TensorPushes& tensor : tensors) names[Key(tensor.key).id()] = tensor.key;
  Json rows = Json::array();
  for (const wire::CodecMap& decision : decisions) {
    Json codecs = Json::object(), reasons = Json::object();
    for (const wire::CodecEntry& entry : decision.entries()) {
      const auto name = names.find(entry.key());
      if (name == names.end()) continue;
      Json steps = Json::array();
      for (const wire::CodecStep& step : entry.steps()) steps.push_back(step.codec());
      codecs[name->second] = steps.empty() ? Json(entry.codec()) : std::move(steps);
      if (!entry.reason().empty()) reasons[name->second] = entry.reason();
    }
    rows.push_back({{"from_round", decision.from_round()},
                    {"reason", decision.reason()},
                    {"codecs", std::move(codecs)},
                    {"reasons", std::move(reasons)}});
  }
  return rows;
}

Json StagesJson(const StageTimes& stages) {
  return {{"compute", absl::ToDoubleSeconds(stages.compute)},
          {"copy", absl::ToDoubleSeconds(stages.copy)},
          {"encode", absl::ToDoubleSeconds(stages.encode)},
          {"send", absl::ToDoubleSeconds(stages.send)},
          {"wait", absl::ToDoubleSeconds(stages.wait)},
          {"decode", absl::ToDoubleSeconds(stages.decode)},
          {"local_update", absl::ToDoubleSeconds(stages.local_update)},
          {"overlap", absl::ToDoubleSeconds(stages.overlap)}};
}

// Returns what some of the pushes carried. Elements and bytes are sums over all workers and steps.
Json PushedJson(const PushCounts& pushed) {
  return {{"elements_pushed", pushed.elements},
          {"elements_sent", pushed.elements_sent},
          {"payload_bytes", pushed.payload_bytes},
          {"compression_gain", Finite(pushed.CompressionGain())},
          {"compression_error", Finite(pushed.CompressionError())}};
}

std::string LayerName(wire::LayerKind layer) {
  std::string name = wire::LayerKind_Name(layer);
  for (char& letter : name) letter = absl::ascii_tolower(letter);
  return name;
}

Json TensorsJson(const std::vector<TensorPushes>& tensors) {
  Json rows = Json::array();
  for (const TensorPushes& tensor : tensors) {
    Json row = {
        {"key", tensor.key}, {"layer", LayerName(tensor.layer)}, {"elements", tensor.elements}};
    row.update(PushedJson(tensor.pushed));
    rows.push_back(std::move(row));
  }
  return rows;
}

// Returns the state of the run after each epoch. Accuracy and loss are null if no worker evaluated.
Json EpochsJson(const std::vector<EpochReport>& epochs) {
  Json rows = Json::array();
  for (const EpochReport& epoch : epochs) {
    rows.push_back({{"steps", epoch.steps},
                    {"seconds", absl::ToDoubleSeconds(epoch.seconds)},
                    {"bytes_pushed", epoch.bytes_pushed},
                    {"bytes_pulled", epoch.bytes_pulled},
                    {"test_accuracy", epoch.test ? Finite(epoch.test->Accuracy()) : nullptr},
                    {"test_loss", epoch.test ? Finite(epoch.test->MeanLoss()) : nullptr}});
  }
  return rows;
}

Json RunJson(const Summary& summary) {
  return {{"model", summary.model},
          {"dataset", summary.dataset},
          {"optimizer", summary.optimizer},
          {"compression", summary.compression},
          {"threshold", summary.threshold},
          {"policy", summary.policy},
          {"pull_compression", summary.pull_compression},
          {"pull_threshold", summary.pull_threshold},
          {"backup_model", summary.backup_model},
          {"kvstore", summary.kvstore},
          {"seed", summary.seed},
          {"workers", summary.workers},
          {"servers", summary.servers},
          {"epochs", summary.epochs},
          {"batch", summary.batch},
          {"link_emulated",
           summary.emulated_link_bytes_per_second > 0 || summary.emulated_latency_ms > 0},
          {"link_bytes_per_second", summary.emulated_link_bytes_per_second},
          {"link_latency_ms", summary.emulated_latency_ms}};
}

}  // namespace

absl::StatusOr<ThresholdTable> TableOf(const std::optional<wire::CodecMap>& decision,
                                       wire::Direction direction) {
  if (!decision.has_value()) return ThresholdTable();
  return ThresholdTable::FromRows(
      direction == wire::PUSH ? decision->codec() : decision->pull_codec(),
      RowsOf(decision->table(), direction));
}

std::string ExplainDecision(const std::optional<wire::CodecMap>& decision) {
  std::string text;
  if (decision.has_value() && !decision->policy().empty()) {
    text = absl::StrCat("policy ", decision->policy(), ", from round ", decision->from_round(),
                        ": ", decision->reason(), "\n");
  }
  for (const wire::Direction direction : {wire::PUSH, wire::PULL}) {
    const auto table = TableOf(decision, direction);
    if (!table.ok()) return std::string(table.status().message());
    if (table->empty()) continue;
    if (direction == wire::PULL) absl::StrAppend(&text, "pulls:\n");
    absl::StrAppend(&text, ExplainTable(*table, ThresholdOf(decision, direction)));
  }
  return text;
}

std::string BuildSummaryJson(const Summary& summary) {
  const TrainingReport& training = summary.training;
  const double seconds = absl::ToDoubleSeconds(training.seconds);
  Json json = RunJson(summary);
  json["steps"] = training.steps;
  json["test_accuracy"] = Finite(summary.test.Accuracy());
  json["test_loss"] = Finite(summary.test.MeanLoss());
  json["seconds"] = seconds;
  json["samples_per_second"] =
      Finite(seconds > 0 ? static_cast<double>(training.samples) / seconds : 0);
  json["bytes_pushed"] = training.bytes_pushed;
  json["bytes_pulled"] = training.bytes_pulled;
  json["compression_ratio"] = Finite(training.CompressionRatio());
  json.update(PushedJson(training.pushed));
  json["stage_seconds"] = StagesJson(training.stages);
  json["after_epoch"] = EpochsJson(training.epochs);
  json["evaluations"] = EpochsJson(training.evaluations);
  AddDecision("", summary.decision, wire::PUSH, &json);
  AddDecision("pull_", summary.decision, wire::PULL, &json);
  json["threshold_explanation"] = ExplainDecision(summary.decision);
  json["policy_decisions"] = PolicyJson(summary.policy_decisions, training.tensors);
  json["tensors"] = TensorsJson(training.tensors);
  // Names come from flags: bytes that are not UTF-8 are replaced, since dump would throw otherwise.
  return json.dump(2, ' ', /*ensure_ascii=*/false, Json::error_handler_t::replace) + "\n";
}

absl::Status WriteSummary(const std::string& path, const Summary& summary) {
  return WriteFileDurably(path, BuildSummaryJson(summary));
}

}  // namespace slimps
