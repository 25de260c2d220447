// SPDX-License-Identifier: Apache-2.0
// A threshold table in words, for people: one line for each size, the rule, the threshold, and what
// it is estimated to save of a step. Pure functions.
//
// A size's line has the times that decide (DecidedRows) in ms, the gain (the paper's t_c / t_q) and
// what is done with the size. Times that were not measured have a ~ before them.
#ifndef SLIMPS_COMPRESS_POLICY_THRESHOLD_EXPLANATION_H_
#define SLIMPS_COMPRESS_POLICY_THRESHOLD_EXPLANATION_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "compress/policy/threshold_table.h"

namespace slimps {

// Explains the table with `threshold` in force. Hysteresis may keep it off the best one.
std::string ExplainTable(const ThresholdTable& table, std::optional<uint64_t> threshold);

// Explains the table with its best threshold.
std::string ExplainTable(const ThresholdTable& table);

// One line for a log: what was decided, and of how many of a step's bytes.
struct DecisionLine {
  std::string text;
  // Under a tenth of a step's bytes is compressed. The text says how to compress all of them, since
  // a run that tries a codec's accuracy tests hardly anything.
  bool is_nearly_raw = false;
};

// `option` is the one that sets the threshold: "threshold" or "pull_threshold".
DecisionLine SummarizeDecision(const ThresholdTable& table, std::optional<uint64_t> threshold,
                               std::string_view option);

}  // namespace slimps

#endif  // SLIMPS_COMPRESS_POLICY_THRESHOLD_EXPLANATION_H_
