// SPDX-License-Identifier: Apache-2.0
#include "tools/bench/cluster/cluster_report.h"

#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "proto/base/clock.h"
#include "proto/base/key.h"

namespace slimps {
namespace {

std::string OrNull(std::optional<uint64_t> number) {
  return number.has_value() ? absl::StrCat(*number) : "null";
}

}  // namespace

ClusterFigures FiguresOf(const ClusterTimeline& timeline, const Accelerator& accelerator) {
  ClusterFigures figures;
  const std::vector<SteadyTime>& ends = timeline.iteration_ends;
  if (ends.size() < 2) return figures;
  for (size_t i = 1; i < ends.size(); ++i) {
    figures.iteration_ms.push_back(absl::ToDoubleMilliseconds(ends[i] - ends[i - 1]));
  }
  const IntervalSet window({{ends.front(), ends.back()}});
  const auto per_iteration = [&](absl::Duration sum) {
    return absl::ToDoubleMilliseconds(sum) / static_cast<double>(ends.size() - 1);
  };
  const IntervalSet computed = IntervalSet(accelerator.computed()).And(window);
  std::vector<Interval> encoding = accelerator.encoded();
  // If the accelerator encodes, the CPU's encoding only makes the payload and does not count: on a
  // real device the CPU would not do it.
  const bool on_cpu = encoding.empty();
  for (const TraceEvent& event : timeline.events) {
    if (on_cpu && event.stage == TraceStage::kEncode) {
      encoding.push_back({event.began, event.ended});
    }
  }
  absl::Duration encode_sum;
  for (const Interval& span : encoding) encode_sum += IntervalSet({span}).And(window).Length();
  const IntervalSet encoded = IntervalSet(std::move(encoding)).And(window);
  const IntervalSet busy = timeline.link_busy.And(window);
  figures.compute_ms = per_iteration(computed.Length());
  figures.encode_ms = per_iteration(encode_sum);
  figures.encode_exposed_ms = per_iteration(encoded.Minus(computed).Minus(busy).Length());
  figures.overlap_ms = per_iteration(encoded.Or(busy).And(computed).Length());
  figures.exposed_comm_ms = per_iteration(busy.Minus(computed).Length());
  return figures;
}

double CompressedBytes(const ModelShape& model, std::optional<uint64_t> threshold_bytes) {
  if (!threshold_bytes.has_value()) return 0;
  double bytes = 0;
  for (const ModelTensor& tensor : model.tensors) {
    const uint64_t own = tensor.elements() * sizeof(float);
    if (own >= *threshold_bytes) bytes += static_cast<double>(own);
  }
  return bytes;
}

double CompressedBytes(const ModelShape& model, std::span<const KeyCodec> chosen) {
  std::set<Key> compressed;
  for (const KeyCodec& each : chosen) {
    if (each.codec != "none") compressed.insert(each.key);
  }
  double bytes = 0;
  for (const ModelTensor& tensor : model.tensors) {
    if (compressed.contains(Key(tensor.name))) {
      bytes += static_cast<double>(tensor.elements() * sizeof(float));
    }
  }
  return bytes;
}

std::string ClusterReportJson(const ClusterReport& report) {
  const ClusterFigures& f = report.figures;
  std::string json = absl::StrFormat(
      "{\"model\": \"%s\", \"gradient_bytes\": %d, \"tensors\": %d, \"compute_ms\": %.4f, "
      "\"encode_ms\": %.4f, \"encode_exposed_ms\": %.4f, \"overlap_ms\": %.4f, "
      "\"exposed_comm_ms\": %.4f, \"worker_cpu_ms\": %.4f, \"wire_bytes_out\": %.1f, "
      "\"wire_bytes_in\": %.1f, "
      "\"payload_bytes_out\": %.1f, \"payload_bytes_in\": %.1f, \"shared_bytes\": %.1f, "
      "\"compressed_bytes\": %.1f, "
      "\"pull_compressed_bytes\": %.1f, ",
      report.model, report.gradient_bytes, report.tensors, f.compute_ms, f.encode_ms,
      f.encode_exposed_ms, f.overlap_ms, f.exposed_comm_ms, f.worker_cpu_ms, f.wire_bytes_out,
      f.wire_bytes_in, f.payload_bytes_out, f.payload_bytes_in, f.shared_bytes, f.compressed_bytes,
      f.pull_compressed_bytes);
  absl::StrAppend(&json, "\"threshold_bytes\": ", OrNull(report.threshold_bytes),
                  ", \"pull_threshold_bytes\": ", OrNull(report.pull_threshold_bytes),
                  ", \"borrowed_rss_bytes\": ", f.borrowed_rss_bytes,
                  ", \"max_rss_bytes\": ", report.max_rss_bytes, ", \"weights_hash\": \"",
                  absl::Hex(report.weights_hash), "\", \"iteration_ms\": [");
  for (size_t i = 0; i < f.iteration_ms.size(); ++i) {
    absl::StrAppendFormat(&json, "%s%.4f", i == 0 ? "" : ", ", f.iteration_ms[i]);
  }
  return json + "]}\n";
}

}  // namespace slimps
