// SPDX-License-Identifier: Apache-2.0
// Serves a node's own metrics at /metrics, for --metrics_port of servers and workers.
//
//   SLIMPS_ASSIGN_OR_RETURN(const auto metrics,
//                           ServeMetrics({.port = 9101}, "worker", rank, reporter));
#ifndef SLIMPS_WATCH_HTTP_METRICS_SERVER_H_
#define SLIMPS_WATCH_HTTP_METRICS_SERVER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "watch/http/http_server.h"

namespace slimps {

// Serves what report(false) returns, a NodeReport as bytes (Membership::SetReporter), until the
// server is destroyed. `report` is called on any thread.
// Errors are those of HttpServer::Start.
[[nodiscard]] absl::StatusOr<std::unique_ptr<HttpServer>> ServeMetrics(
    const HttpServer::Options& options, const std::string& role, uint32_t rank,
    std::function<std::string(bool details)> report);

// Returns the options of a server that listens at `bind`, an address, and `port`. Where others can
// reach it, it asks for a token.
// Internal: the system has no randomness.
[[nodiscard]] absl::StatusOr<HttpServer::Options> MetricsOptions(const std::string& bind,
                                                                 uint16_t port);

}  // namespace slimps

#endif  // SLIMPS_WATCH_HTTP_METRICS_SERVER_H_
