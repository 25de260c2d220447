// SPDX-License-Identifier: Apache-2.0
// The scheduler's HTTP servers: the live page with its data, and the metrics. What they serve is
// WatchService's.
//
//   GET /           the page     GET /job.json   the state    GET /events   the state as a stream
//   GET /metrics    on its own port
#ifndef SLIMPS_SCHEDULER_WATCH_WATCH_SERVERS_H_
#define SLIMPS_SCHEDULER_WATCH_WATCH_SERVERS_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "scheduler/watch/watch_service.h"
#include "watch/http/http_server.h"

namespace slimps {

// Owned by the main thread.
class WatchServers final {
 public:
  struct Options {
    std::string bind = "127.0.0.1";        // a numeric address
    std::optional<uint16_t> metrics_port;  // 0: any free one; nullopt: none
    std::optional<uint16_t> page_port;
    // The watch file (watch_file.h), for `slimps status`; "": none. REQUIRES: a page_port.
    std::string file;
    std::string token;  // "": that of `file`, or else a new one
    std::string job_id;
  };

  // Listens, and logs where. The page always asks for the token, the metrics where others can
  // reach `bind`; then kPlainHttpWarning is logged once for both. Where the job's former scheduler
  // has left its file, the page is what that one's was.
  // REQUIRES: `watch` outlives the servers.
  // Unavailable: a port is taken, or the file cannot be written.
  [[nodiscard]] static absl::StatusOr<std::unique_ptr<WatchServers>> Start(const Options& options,
                                                                           WatchService* watch);
  // Stops, and removes the file.
  ~WatchServers();
  WatchServers(const WatchServers&) = delete;
  WatchServers& operator=(const WatchServers&) = delete;

 private:
  WatchServers() = default;

  std::string file_;  // "": it has written none
  std::unique_ptr<HttpServer> metrics_;
  std::unique_ptr<HttpServer> page_;
};

}  // namespace slimps

#endif  // SLIMPS_SCHEDULER_WATCH_WATCH_SERVERS_H_
