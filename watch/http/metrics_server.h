// SPDX-License-Identifier: Apache-2.0
// Serves metrics at /metrics, for --metrics_port.
//
//   SLIMPS_ASSIGN_OR_RETURN(const auto metrics, ServeMetrics("127.0.0.1", 9101, [&] {
//     return MetricsText({{.role = "server", .rank = 0, .report = node.Report()}});
//   }));
#ifndef SLIMPS_WATCH_HTTP_METRICS_SERVER_H_
#define SLIMPS_WATCH_HTTP_METRICS_SERVER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "watch/http/http_server.h"

namespace slimps {

// Serves what text() returns at `bind`, a numeric address, until the server is destroyed, and logs
// where. Where others can reach that address, it asks for `token`, which the log has; "": for one
// that it draws, with kPlainHttpWarning. `text` is called on any thread.
// Errors are those of HttpServer::Start.
[[nodiscard]] absl::StatusOr<std::unique_ptr<HttpServer>> ServeMetrics(
    const std::string& bind, uint16_t port, std::function<std::string()> text,
    const std::string& token = "");

}  // namespace slimps

#endif  // SLIMPS_WATCH_HTTP_METRICS_SERVER_H_
