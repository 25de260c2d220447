// SPDX-License-Identifier: Apache-2.0
#include "watch/http/metrics_server.h"

#include <glog/logging.h>

#include <utility>

#include "proto/base/status_macros.h"
#include "watch/metrics_text.h"

namespace slimps {

absl::StatusOr<std::unique_ptr<HttpServer>> ServeMetrics(const std::string& bind, uint16_t port,
                                                         std::function<std::string()> text,
                                                         const std::string& token) {
  HttpServer::Options options{.bind = bind, .port = port, .token = ""};
  const bool is_loopback = bind.starts_with("127.") || bind == "::1";
  const bool draws = !is_loopback && token.empty();
  if (!is_loopback) options.token = token;
  if (draws) {
    SLIMPS_ASSIGN_OR_RETURN(options.token, DrawToken());
  }
  SLIMPS_ASSIGN_OR_RETURN(
      std::unique_ptr<HttpServer> server,
      HttpServer::Start(
          options,
          {{.path = "/metrics", .content_type = kMetricsContentType, .content = std::move(text)}}));
  if (draws) LOG(WARNING) << kPlainHttpWarning;
  LOG(INFO) << "metrics at http://" << AddressForOthers(server->address()) << "/metrics"
            << (is_loopback ? "" : "?token=") << options.token;
  return server;
}

}  // namespace slimps
