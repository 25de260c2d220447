// SPDX-License-Identifier: Apache-2.0
// Serves a worker's own metrics for Prometheus.
#ifndef SLIMPS_WORKER_STORE_METRICS_H_
#define SLIMPS_WORKER_STORE_METRICS_H_

#include <memory>

#include "absl/status/statusor.h"
#include "watch/http/http_server.h"
#include "worker/kvstore.h"

namespace slimps {

// Serves what `store` reports at /metrics of options.watch_bind, an address or a host, until the
// server is destroyed.
// REQUIRES: options.metrics_port >= 0; `store` outlives the server and is not closed before.
// Unavailable: it cannot listen there; the message has both options and their variables.
[[nodiscard]] absl::StatusOr<std::unique_ptr<HttpServer>> ServeStoreMetrics(
    const KVStoreOptions& options, const KVStore* store);

}  // namespace slimps

#endif  // SLIMPS_WORKER_STORE_METRICS_H_
