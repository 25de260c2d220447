// SPDX-License-Identifier: Apache-2.0
// Writes what workers and a policy's controller tell each other into messages, and reads it. The
// worker and the scheduler use the same messages; as templates these functions need not know their
// types.
//
//   PutReport(report, threshold_report.mutable_policy());          // a wire::PolicyReport
//   SLIMPS_ASSIGN_OR_RETURN(Report report, ReportOf(message.policy(), worker));
//   PutDecision(decision, &map);                                   // a wire::CodecMap
//   PolicyDecision decision = PolicyDecisionOf(map);
//
// Pure; thread-safe.
#ifndef SLIMPS_COMPRESS_POLICY_CONTROLLERS_MESSAGES_H_
#define SLIMPS_COMPRESS_POLICY_CONTROLLERS_MESSAGES_H_

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "compress/policy/controllers/decision.h"
#include "compress/policy/controllers/report.h"

namespace slimps {

template <typename Message>
void PutSteps(const std::vector<StepReport>& steps, Message* message) {
  for (const StepReport& step : steps) {
    auto* const out = message->add_steps();
    out->set_rounds(step.rounds);
    out->set_iteration_ns(step.iteration_ns);
    out->set_gain(step.gain);
  }
}

template <typename Message>
std::vector<StepReport> StepsOf(const Message& message) {
  std::vector<StepReport> steps;
  for (const auto& step : message.steps()) {
    steps.push_back(
        {.rounds = step.rounds(), .iteration_ns = step.iteration_ns(), .gain = step.gain()});
  }
  return steps;
}

// Sets all fields of `message` except its policy and what a resumed worker adds.
template <typename Message>
void PutReport(const Report& report, Message* message) {
  message->set_round(report.round);
  message->set_rounds(report.rounds);
  message->set_iteration_ns(report.iteration_ns);
  message->set_learning_rate(report.learning_rate);
  message->set_pulls_follow_pushes(report.pulls_follow_pushes);
  message->mutable_link()->set_startup_ns(report.link.startup_ns);
  message->mutable_link()->set_ns_per_byte(report.link.ns_per_byte);
  PutSteps(report.steps, message);
  std::map<std::string, uint32_t> numbers;
  for (const TensorReport& tensor : report.tensors) {
    auto* const out = message->add_tensors();
    out->set_key(tensor.tensor.key);
    out->set_elements(tensor.tensor.elements);
    out->set_rows(tensor.tensor.rows);
    out->set_columns(tensor.tensor.columns);
    out->set_ready_ns(tensor.ready_ns);
    out->set_pull_bytes(tensor.pull_bytes);
    out->set_input_norm2(tensor.input_norm2);
    for (const LevelReport& level : tensor.levels) {
      const auto [number, is_new] =
          numbers.emplace(level.codec, static_cast<uint32_t>(numbers.size()));
      if (is_new) message->add_codecs(level.codec);
      auto* const row = out->add_levels();
      row->set_codec(number->second);
      row->set_error_norm2(level.error_norm2);
      row->set_payload_bytes(level.payload_bytes);
      row->set_encode_ns(level.encode_ns);
      row->set_decode_ns(level.decode_ns);
    }
  }
}

// Returns the report of `worker`. MergeReports checks its numbers.
// InvalidArgument: a level names a codec that the message does not list.
template <typename Message>
absl::StatusOr<Report> ReportOf(const Message& message, uint32_t worker) {
  Report report{.worker = worker,
                .round = message.round(),
                .rounds = message.rounds(),
                .iteration_ns = message.iteration_ns(),
                .learning_rate = message.learning_rate(),
                .pulls_follow_pushes = message.pulls_follow_pushes(),
                .link = {.startup_ns = message.link().startup_ns(),
                         .ns_per_byte = message.link().ns_per_byte()},
                .steps = StepsOf(message)};
  for (const auto& tensor : message.tensors()) {
    TensorReport& read = report.tensors.emplace_back();
    read.tensor = {.key = tensor.key(),
                   .elements = tensor.elements(),
                   .rows = tensor.rows(),
                   .columns = tensor.columns()};
    read.ready_ns = tensor.ready_ns();
    read.pull_bytes = tensor.pull_bytes();
    read.input_norm2 = tensor.input_norm2();
    for (const auto& level : tensor.levels()) {
      if (level.codec() >= static_cast<uint32_t>(message.codecs_size())) {
        return absl::InvalidArgumentError(absl::StrCat("policy report of worker ", worker, ", key ",
                                                       tensor.key(), ": codec ", level.codec(),
                                                       ", expected under ", message.codecs_size()));
      }
      read.levels.push_back({.codec = message.codecs(static_cast<int>(level.codec())),
                             .error_norm2 = level.error_norm2(),
                             .payload_bytes = level.payload_bytes(),
                             .encode_ns = level.encode_ns(),
                             .decode_ns = level.decode_ns()});
    }
  }
  return report;
}

// Replaces the message's entries, reason and first round.
template <typename Message>
void PutDecision(const PolicyDecision& decision, Message* message) {
  message->set_from_round(decision.from_round);
  message->set_codec_below("none");
  message->set_codec("none");
  message->set_reason(decision.reason);
  message->clear_entries();
  for (const auto& [key, tensor] : decision.tensors) {
    auto* const entry = message->add_entries();
    entry->set_key(key);
    entry->set_codec(tensor.steps.back().codec);
    entry->set_reason(tensor.reason);
    if (tensor.steps.size() == 1) continue;
    for (const LadderStep& step : tensor.steps) {
      auto* const out = entry->add_steps();
      out->set_codec(step.codec);
      out->set_min_gain(step.min_gain);
    }
  }
}

// Returns what PutDecision put there.
template <typename Message>
PolicyDecision PolicyDecisionOf(const Message& message) {
  PolicyDecision decision{
      .from_round = message.from_round(), .tensors = {}, .reason = message.reason()};
  for (const auto& entry : message.entries()) {
    TensorDecision tensor{.steps = {{.codec = entry.codec()}}, .reason = entry.reason()};
    if (entry.steps_size() > 0) tensor.steps.clear();
    for (const auto& step : entry.steps()) {
      tensor.steps.push_back({.codec = step.codec(), .min_gain = step.min_gain()});
    }
    decision.tensors.insert_or_assign(entry.key(), std::move(tensor));
  }
  return decision;
}

}  // namespace slimps

#endif  // SLIMPS_COMPRESS_POLICY_CONTROLLERS_MESSAGES_H_
