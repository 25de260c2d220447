// SPDX-License-Identifier: Apache-2.0
// Serves a worker's own metrics for Prometheus.
#ifndef SLIMPS_WORKER_STORE_METRICS_H_
#define SLIMPS_WORKER_STORE_METRICS_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "watch/http/http_server.h"
#include "worker/kvstore.h"

namespace slimps {

// Serves what `store` reports at /metrics of `bind`, an address or a host, until the server is
// destroyed. Returns nullptr if `port` is negative.
// REQUIRES: `store` outlives the server and is not closed before.
// Errors are those of ServeMetrics.
[[nodiscard]] absl::StatusOr<std::unique_ptr<HttpServer>> ServeStoreMetrics(const std::string& bind,
                                                                            int32_t port,
                                                                            const KVStore* store);

}  // namespace slimps

#endif  // SLIMPS_WORKER_STORE_METRICS_H_
