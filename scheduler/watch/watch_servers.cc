// SPDX-License-Identifier: Apache-2.0
#include "scheduler/watch/watch_servers.h"

#include <glog/logging.h>

#include <cstdio>
#include <string_view>
#include <utility>

#include "proto/base/status_copy.h"
#include "proto/base/status_macros.h"
#include "proto/net/address.h"
#include "scheduler/watch/watch_file.h"
#include "watch/http/metrics_server.h"
#include "watch/page/page_html.h"

namespace slimps {
namespace {

// Returns what this machine's programs call `address`.
std::string FromHere(const std::string& address) {
  const std::string port = address.substr(address.rfind(':'));
  if (address == "0.0.0.0" + port) return "127.0.0.1" + port;
  return address == "[::]" + port ? "[::1]" + port : address;
}

}  // namespace

absl::StatusOr<std::unique_ptr<WatchServers>> WatchServers::Start(const Options& options,
                                                                  WatchService* watch) {
  std::unique_ptr<WatchServers> servers(new WatchServers());
  const FormerPage former = ReadWatchFile(options.file, options.job_id);
  std::string token = options.token.empty() ? former.token : options.token;
  if (token.empty()) {
    SLIMPS_ASSIGN_OR_RETURN(token, DrawToken());
  }
  if (options.metrics_port.has_value()) {
    auto metrics = ServeMetrics(
        options.bind, *options.metrics_port, [watch] { return watch->Metrics(); }, token);
    SLIMPS_RETURN_IF_ERROR(Prefixed(metrics.status(), "--metrics_port"));
    servers->metrics_ = *std::move(metrics);
  }
  const bool serves = options.metrics_port.has_value() || options.page_port.has_value();
  if (serves && !IsLoopback(options.bind)) LOG(WARNING) << kPlainHttpWarning;
  if (!options.page_port.has_value()) return servers;
  const auto serve = [&](uint16_t port) {
    return HttpServer::Start(
        {.bind = options.bind, .port = port, .token = token},
        {{.path = "/",
          .content_type = "text/html; charset=utf-8",
          .kind = HttpRoute::Kind::kPage,
          .content = [] { return std::string(kPageHtml); }},
         {.path = "/job.json",
          .content_type = "application/json",
          .content = [watch] { return watch->Json(); }},
         {.path = "/events", .kind = HttpRoute::Kind::kEvents, .content = [watch] {
            return watch->Json();
          }}});
  };
  const uint16_t port = *options.page_port;
  absl::StatusOr<std::unique_ptr<HttpServer>> started = serve(port != 0 ? port : former.port);
  if (!started.ok() && port == 0 && former.port != 0) started = serve(0);
  SLIMPS_RETURN_IF_ERROR(Prefixed(started.status(), "--page_port"));
  servers->page_ = *std::move(started);
  const std::string& address = servers->page_->address();
  LOG(INFO) << "watch this job at http://" << AddressForOthers(address) << "/?token=" << token;
  if (options.file.empty()) return servers;
  SLIMPS_RETURN_IF_ERROR(WriteWatchFile(options.file, FromHere(address), token, options.job_id));
  servers->file_ = options.file;
  return servers;
}

WatchServers::~WatchServers() {
  if (!file_.empty()) std::remove(file_.c_str());
}

}  // namespace slimps
