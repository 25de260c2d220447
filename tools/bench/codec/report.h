// SPDX-License-Identifier: Apache-2.0
// Builds the reports that the bench writes. Pure, except that they read the machine's description.
//
//   cases     {"machine": {...}, "codecs": {...}, "results": [...]}
//   a model   {"machine": {...}, "table": {...}, "results": [...]}
#ifndef SLIMPS_TOOLS_BENCH_CODEC_REPORT_H_
#define SLIMPS_TOOLS_BENCH_CODEC_REPORT_H_

#include <cstddef>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "tools/bench/codec/cases.h"
#include "tools/bench/codec/model_table.h"

namespace slimps {

struct Measurement {
  Case measured;
  double gbps = 0;  // 1e9 bytes of fp32 gradient per second
  double reference_gbps = 0;
  size_t payload_bytes = 0;  // one worker's
  double sent_fraction = 0;  // fraction of one worker's elements
};

std::string ReportJson(std::span<const Measurement> measurements);

struct ModelMeasurement {
  Case measured;  // only setting, threads and kernels
  GradientSource source = GradientSource::kDrawn;
  ModelTimes times;
};

std::string ModelReportJson(const std::string& table, const ModelSize& size,
                            std::span<const ModelMeasurement> measurements);

}  // namespace slimps

#endif  // SLIMPS_TOOLS_BENCH_CODEC_REPORT_H_
