// SPDX-License-Identifier: Apache-2.0
#include "worker/store_metrics.h"

#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include "proto/net/address.h"
#include "watch/http/metrics_server.h"
#include "watch/metrics_text.h"

namespace slimps {

absl::StatusOr<std::unique_ptr<HttpServer>> ServeStoreMetrics(const KVStoreOptions& options,
                                                              const KVStore* store) {
  const auto text = [store] {
    NodeSamples samples{.role = "worker", .rank = store->rank(), .report = {}};
    if (!samples.report.ParseFromString(store->Report(/*details=*/false))) return std::string();
    return MetricsText({samples});
  };
  auto server = ServeMetrics(ResolveForBind(options.watch_bind),
                             static_cast<uint16_t>(options.metrics_port), text);
  if (server.ok()) return server;
  return absl::Status(
      server.status().code(),
      absl::StrCat("metrics_port=", options.metrics_port, " (SLIMPS_METRICS_PORT), watch_bind=",
                   options.watch_bind, " (SLIMPS_WATCH_BIND): ", server.status().message(),
                   "; expected an address of this machine, and a free port of it or 0"));
}

}  // namespace slimps
