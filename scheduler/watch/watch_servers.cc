// SPDX-License-Identifier: Apache-2.0
#include "scheduler/watch/watch_servers.h"

#include <glog/logging.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/base/file.h"
#include "proto/base/status_copy.h"
#include "proto/base/status_macros.h"
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

absl::Status WriteForThisUser(const std::string& path, const nlohmann::json& content) {
  const mode_t before = umask(0077);  // the file has a secret
  const absl::Status written = WriteFileDurably(
      path, content.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
  umask(before);
  return Prefixed(written, "--watch_file");
}

}  // namespace

absl::StatusOr<std::unique_ptr<WatchServers>> WatchServers::Start(const Options& options,
                                                                  WatchService* watch) {
  std::unique_ptr<WatchServers> servers(new WatchServers());
  if (options.metrics_port.has_value()) {
    SLIMPS_ASSIGN_OR_RETURN(servers->metrics_, ServeMetrics(options.bind, *options.metrics_port,
                                                            [watch] { return watch->Metrics(); }));
  }
  if (!options.page_port.has_value()) return servers;
  SLIMPS_ASSIGN_OR_RETURN(const std::string token, DrawToken());
  absl::StatusOr<std::unique_ptr<HttpServer>> started =
      HttpServer::Start({.bind = options.bind, .port = *options.page_port, .token = token},
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
  SLIMPS_RETURN_IF_ERROR(Prefixed(started.status(), "--page_port"));
  servers->page_ = *std::move(started);
  const std::string& address = servers->page_->address();
  LOG(INFO) << "watch this job at http://" << AddressForOthers(address) << "/?token=" << token;
  if (options.file.empty()) return servers;
  SLIMPS_RETURN_IF_ERROR(
      WriteForThisUser(options.file, {{"address", absl::StrCat("http://", FromHere(address))},
                                      {"token", token},
                                      {"job", options.job_id},
                                      {"pid", getpid()}}));
  servers->file_ = options.file;
  return servers;
}

WatchServers::~WatchServers() {
  if (!file_.empty()) std::remove(file_.c_str());
}

}  // namespace slimps
