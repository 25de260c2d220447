// SPDX-License-Identifier: Apache-2.0
#include "compress/policy/controllers/report.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "compress/policy/robust.h"
#include "proto/base/status_macros.h"

namespace slimps {
namespace {

absl::Status BadReport(const Report& report, const std::string& what) {
  return absl::InvalidArgumentError(
      absl::StrCat("report of worker ", report.worker, " to round ", report.round, ": ", what));
}

bool IsAmount(double value) { return std::isfinite(value) && value >= 0; }

absl::Status CheckTensor(const Report& report, const TensorReport& tensor) {
  const auto bad = [&](const std::string& what) {
    return BadReport(report, absl::StrCat("key ", tensor.tensor.key, ": ", what));
  };
  const auto& [key, elements, rows, columns] = tensor.tensor;
  const bool matrix = rows > 0 && columns > 0;
  if (matrix ? elements % rows != 0 || elements / rows != columns : rows + columns > 0) {
    return bad(absl::StrCat(rows, " rows of ", columns, " columns, expected ", elements,
                            " elements in all"));
  }
  if (!IsAmount(tensor.ready_ns) || !IsAmount(tensor.input_norm2)) {
    return bad("expected a finite ready_ns and input_norm2 of 0 or more");
  }
  std::set<std::string> codecs;
  for (const LevelReport& level : tensor.levels) {
    if (!codecs.insert(level.codec).second) return bad(absl::StrCat(level.codec, " comes twice"));
    if (!IsAmount(level.error_norm2) || !IsAmount(level.encode_ns) || !IsAmount(level.decode_ns)) {
      return bad(
          absl::StrCat(level.codec, ": expected a finite error and finite times of 0 or ", "more"));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckReport(const Report& report) {
  const LinkReport& link = report.link;
  for (const double amount :
       {report.iteration_ns, report.learning_rate, link.startup_ns, link.ns_per_byte}) {
    if (!IsAmount(amount)) {
      return BadReport(report, "expected finite times, link and learning rate of 0 or more");
    }
  }
  for (const StepReport& step : report.steps) {
    if (!IsAmount(step.iteration_ns) || !IsAmount(step.gain)) {
      return BadReport(report, "expected a finite time and gain of 0 or more for each step");
    }
  }
  for (size_t i = 0; i < report.tensors.size(); ++i) {
    if (i > 0 && report.tensors[i].tensor.key <= report.tensors[i - 1].tensor.key) {
      return BadReport(report,
                       absl::StrCat("key ", report.tensors[i].tensor.key, " comes after key ",
                                    report.tensors[i - 1].tensor.key, ", expected rising keys"));
    }
    SLIMPS_RETURN_IF_ERROR(CheckTensor(report, report.tensors[i]));
  }
  return absl::OkStatus();
}

absl::Status CheckAgree(const Report& report, const Report& first) {
  if (report.round != first.round || report.rounds != first.rounds) {
    return BadReport(report, absl::StrCat(report.rounds, " rounds, expected ", first.rounds,
                                          " to round ", first.round));
  }
  if (report.steps.size() != first.steps.size()) {
    return BadReport(report,
                     absl::StrCat(report.steps.size(), " steps, expected ", first.steps.size(),
                                  " as in the report of worker ", first.worker));
  }
  return absl::OkStatus();
}

// Returns the trimmed mean of what the workers that know it (not 0) give.
template <typename Items, typename Value>
double MeanKnown(const Items& items, Value value) {
  std::vector<double> known;
  for (const auto& item : items) {
    if (const double v = value(*item); v > 0) known.push_back(v);
  }
  return TrimmedMeanOfReals(std::move(known));
}

template <typename Items, typename Value>
double Sum(const Items& items, Value value) {
  double sum = 0;
  for (const auto& item : items) sum += value(*item);
  return sum;
}

template <typename Items, typename Value>
uint64_t MeanBytes(const Items& items, Value value) {
  return static_cast<uint64_t>(
      std::ceil(Sum(items, [&](const auto& item) { return static_cast<double>(value(item)); }) /
                static_cast<double>(items.size())));
}

using Reports = std::vector<const Report*>;  // in rank order
using Tensors = std::vector<const TensorReport*>;

std::optional<LevelReport> MergeLevel(const std::string& codec, const Tensors& tensors) {
  std::vector<const LevelReport*> levels;
  for (const TensorReport* tensor : tensors) {
    const auto level = std::ranges::find(tensor->levels, codec, &LevelReport::codec);
    if (level == tensor->levels.end()) return std::nullopt;
    levels.push_back(&*level);
  }
  return LevelReport{
      .codec = codec,
      .error_norm2 = Sum(levels, [](const LevelReport& l) { return l.error_norm2; }),
      .payload_bytes = MeanBytes(levels, [](const LevelReport& l) { return l.payload_bytes; }),
      .encode_ns = MeanKnown(levels, [](const LevelReport& l) { return l.encode_ns; }),
      .decode_ns = MeanKnown(levels, [](const LevelReport& l) { return l.decode_ns; })};
}

absl::StatusOr<std::optional<TensorReport>> MergeTensor(const TensorInfo& info,
                                                        const Reports& reports) {
  Tensors tensors;
  for (const Report* report : reports) {
    const auto tensor = std::ranges::lower_bound(
        report->tensors, info.key, {}, [](const TensorReport& t) { return t.tensor.key; });
    if (tensor == report->tensors.end() || tensor->tensor.key != info.key) return std::nullopt;
    if (tensor->tensor != info) {
      return BadReport(*report, absl::StrCat("key ", info.key, " has another shape than in the ",
                                             "report of worker ", reports[0]->worker));
    }
    tensors.push_back(&*tensor);
  }
  TensorReport merged{
      .tensor = info,
      .ready_ns = MeanKnown(tensors, [](const TensorReport& t) { return t.ready_ns; }),
      .pull_bytes = MeanBytes(tensors, [](const TensorReport& t) { return t.pull_bytes; }),
      .input_norm2 = Sum(tensors, [](const TensorReport& t) { return t.input_norm2; })};
  for (const LevelReport& level : tensors[0]->levels) {
    if (auto both = MergeLevel(level.codec, tensors)) merged.levels.push_back(*std::move(both));
  }
  return merged;
}

StepReport MergeStep(size_t step, const Reports& reports) {
  StepReport merged;
  double gains = 0, gain_workers = 0;
  for (const Report* report : reports) {
    const StepReport& own = report->steps[step];
    merged.rounds += own.rounds;
    merged.iteration_ns += own.iteration_ns * static_cast<double>(own.rounds);
    gains += own.gain;
    gain_workers += own.gain > 0 ? 1 : 0;
  }
  if (merged.rounds > 0) merged.iteration_ns /= static_cast<double>(merged.rounds);
  if (gain_workers > 0) merged.gain = gains / gain_workers;
  return merged;
}

LinkReport MergeLinks(const Reports& reports) {
  const auto mean = [&](double LinkReport::*part) {
    return MeanKnown(reports, [part](const Report& report) { return report.link.*part; });
  };
  return {.startup_ns = mean(&LinkReport::startup_ns),
          .ns_per_byte = mean(&LinkReport::ns_per_byte)};
}

absl::StatusOr<Reports> InRankOrder(std::span<const Report> reports) {
  if (reports.empty()) return absl::InvalidArgumentError("expected a report, got none");
  Reports ordered;
  for (const Report& report : reports) ordered.push_back(&report);
  std::ranges::sort(ordered, {}, &Report::worker);
  for (size_t i = 0; i < ordered.size(); ++i) {
    SLIMPS_RETURN_IF_ERROR(CheckReport(*ordered[i]));
    SLIMPS_RETURN_IF_ERROR(CheckAgree(*ordered[i], *ordered[0]));
    if (i > 0 && ordered[i]->worker == ordered[i - 1]->worker) {
      return BadReport(*ordered[i], "comes twice");
    }
  }
  return ordered;
}

}  // namespace

absl::StatusOr<Report> MergeReports(std::span<const Report> reports) {
  SLIMPS_ASSIGN_OR_RETURN(const Reports ordered, InRankOrder(reports));
  const Report& first = *ordered[0];
  const auto mean = [&](double Report::*part) {
    return MeanKnown(ordered, [part](const Report& report) { return report.*part; });
  };
  Report merged{.worker = first.worker,
                .workers = static_cast<uint32_t>(ordered.size()),
                .round = first.round,
                .rounds = first.rounds,
                .iteration_ns = mean(&Report::iteration_ns),
                .pulls_follow_pushes = first.pulls_follow_pushes,
                .link = MergeLinks(ordered)};
  for (const Report* report : ordered) {
    if (merged.learning_rate == 0) merged.learning_rate = report->learning_rate;
  }
  for (size_t step = 0; step < first.steps.size(); ++step) {
    merged.steps.push_back(MergeStep(step, ordered));
  }
  for (const TensorReport& tensor : first.tensors) {
    SLIMPS_ASSIGN_OR_RETURN(auto both, MergeTensor(tensor.tensor, ordered));
    if (both.has_value()) merged.tensors.push_back(*std::move(both));
  }
  return merged;
}

}  // namespace slimps
