// SPDX-License-Identifier: Apache-2.0
#include "watch/http/metrics_server.h"

#include <utility>

#include "proto/base/status_macros.h"
#include "watch/metrics_text.h"
#include "watch/node_report.pb.h"

namespace slimps {
namespace {

bool IsLoopback(const std::string& bind) { return bind.starts_with("127.") || bind == "::1"; }

}  // namespace

absl::StatusOr<HttpServer::Options> MetricsOptions(const std::string& bind, uint16_t port) {
  HttpServer::Options options{.bind = bind, .port = port, .token = ""};
  if (!IsLoopback(bind)) {
    SLIMPS_ASSIGN_OR_RETURN(options.token, DrawToken());
  }
  return options;
}

absl::StatusOr<std::unique_ptr<HttpServer>> ServeMetrics(
    const HttpServer::Options& options, const std::string& role, uint32_t rank,
    std::function<std::string(bool details)> report) {
  const auto content = [role, rank, report = std::move(report)] {
    NodeSamples samples{.role = role, .rank = rank, .report = {}};
    if (!samples.report.ParseFromString(report(false))) return std::string();
    return MetricsText({std::move(samples)});
  };
  return HttpServer::Start(
      options, {{.path = "/metrics", .content_type = kMetricsContentType, .content = content}});
}

}  // namespace slimps
