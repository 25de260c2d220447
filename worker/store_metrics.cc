// SPDX-License-Identifier: Apache-2.0
#include "worker/store_metrics.h"

#include "proto/net/address.h"
#include "watch/http/metrics_server.h"
#include "watch/metrics_text.h"

namespace slimps {

absl::StatusOr<std::unique_ptr<HttpServer>> ServeStoreMetrics(const std::string& bind, int32_t port,
                                                              const KVStore* store) {
  if (port < 0) return nullptr;
  const auto text = [store] {
    NodeSamples samples{.role = "worker", .rank = store->rank(), .report = {}};
    if (!samples.report.ParseFromString(store->Report(/*details=*/false))) return std::string();
    return MetricsText({samples});
  };
  return ServeMetrics(ResolveForBind(bind), static_cast<uint16_t>(port), text);
}

}  // namespace slimps
