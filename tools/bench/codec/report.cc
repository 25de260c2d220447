// SPDX-License-Identifier: Apache-2.0
#include "tools/bench/codec/report.h"

#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"

namespace slimps {
namespace {

using Json = nlohmann::ordered_json;

// Returns the value of the first line "name : value" in a file; "unknown" if there is no such line.
std::string FirstValue(const char* path, const std::string& name) {
  std::ifstream lines(path);
  for (std::string line; std::getline(lines, line);) {
    const size_t colon = line.find(':');
    if (colon == line.npos || line.compare(0, name.size(), name) != 0) continue;
    const size_t begin = line.find_first_not_of(" \t", colon + 1);
    return begin == line.npos ? "" : line.substr(begin);
  }
  return "unknown";
}

std::string FirstLine(const char* path) {
  std::ifstream lines(path);
  std::string line;
  return std::getline(lines, line) ? line : "unknown";
}

Json Machine() {
  return {{"cpu", FirstValue("/proc/cpuinfo", "model name")},
          {"cores", std::thread::hardware_concurrency()},
          {"best_isa", std::string(BestKernels().name)},
          {"memory_bytes",
           std::strtoull(FirstValue("/proc/meminfo", "MemTotal").c_str(), nullptr, 10) << 10},
          {"huge_pages", FirstLine("/sys/kernel/mm/transparent_hugepage/enabled")}};
}

}  // namespace

std::string ReportJson(std::span<const Measurement> measurements) {
  Json codecs = Json::object(), results = Json::array();
  for (const Measurement& m : measurements) {
    const Case& c = m.measured;
    codecs[c.setting.label]["spec"] = c.setting.spec;
    codecs[c.setting.label]["sent_fraction"] = m.sent_fraction;
    codecs[c.setting.label]["has_phases"] = HasPhases(c.setting);
    results.push_back({{"codec", c.setting.label},
                       {"op", std::string(OperationName(c.operation))},
                       {"workers", c.workers},
                       {"elements", c.elements},
                       {"threads", c.threads},
                       {"isa", std::string(c.kernels->name)},
                       {"gbps", m.gbps},
                       {"reference_gbps", m.reference_gbps},
                       {"fraction_of_reference", m.gbps / m.reference_gbps},
                       {"payload_bytes", m.payload_bytes}});
  }
  return Json{{"machine", Machine()}, {"codecs", codecs}, {"results", results}}.dump(2) + "\n";
}

std::string ModelReportJson(const std::string& table, const ModelSize& size,
                            std::span<const ModelMeasurement> measurements) {
  Json results = Json::array();
  for (const ModelMeasurement& m : measurements) {
    const Case& c = m.measured;
    results.push_back({{"codec", c.setting.label},
                       {"spec", c.setting.spec},
                       {"gradient", std::string(GradientName(m.source))},
                       {"threads", c.threads},
                       {"isa", std::string(c.kernels->name)},
                       {"encode_ms", 1e3 * m.times.encode_seconds},
                       {"decode_ms", 1e3 * m.times.decode_seconds},
                       {"payload_bytes", m.times.payload_bytes}});
  }
  const Json model = {
      {"name", table}, {"elements", size.elements}, {"partitions", size.partitions}};
  return Json{{"machine", Machine()}, {"table", model}, {"results", results}}.dump(2) + "\n";
}

}  // namespace slimps
