// SPDX-License-Identifier: Apache-2.0
#include "watch/metrics_text.h"

#include <prometheus/metric_family.h>
#include <prometheus/text_serializer.h>

#include <map>
#include <utility>

#include "watch/metrics.h"

namespace slimps {
namespace {

using prometheus::ClientMetric;
using prometheus::MetricFamily;

MetricFamily FamilyOf(const MetricInfo& info) {
  MetricFamily family;
  family.name = std::string(info.name);
  family.help = std::string(info.help);
  family.type = info.kind == MetricKind::kCounter ? prometheus::MetricType::Counter
                                                  : prometheus::MetricType::Gauge;
  return family;
}

ClientMetric MetricOf(const NodeSamples& node, const MetricInfo& info,
                      const watch::Sample& sample) {
  ClientMetric metric;
  metric.label = {{"role", node.role}, {"rank", std::to_string(node.rank)}};
  for (size_t i = 0; i < info.labels.size(); ++i) {
    metric.label.push_back({std::string(info.labels[i]), sample.labels(static_cast<int>(i))});
  }
  if (info.kind == MetricKind::kCounter) {
    metric.counter.value = sample.value();
  } else {
    metric.gauge.value = sample.value();
  }
  return metric;
}

}  // namespace

std::string MetricsText(const std::vector<NodeSamples>& nodes) {
  std::map<uint32_t, MetricFamily> families;
  for (const NodeSamples& node : nodes) {
    for (const watch::Sample& sample : node.report.samples()) {
      const MetricInfo* const info = FindMetric(sample.metric());
      if (info == nullptr) continue;
      if (static_cast<size_t>(sample.labels_size()) != info->labels.size()) continue;
      const auto [family, is_new] = families.try_emplace(sample.metric());
      if (is_new) family->second = FamilyOf(*info);
      family->second.metric.push_back(MetricOf(node, *info, sample));
    }
  }
  std::vector<MetricFamily> all;
  for (auto& [number, family] : families) all.push_back(std::move(family));
  return prometheus::TextSerializer().Serialize(all);
}

}  // namespace slimps
