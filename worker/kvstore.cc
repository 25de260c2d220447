#include "worker/kvstore.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "glog/logging.h"
#include "proto/net/zmq_transport.h"
#include "worker/combination.h"
#include "worker/dist_store.h"
#include "worker/local_store.h"

namespace slimps {

absl::StatusOr<std::unique_ptr<KVStore>> KVStore::Create(std::string_view type,
                                                         const KVStoreOptions& options) {
  if (type == "local" || type == "device") return LocalStore::Create(type, options);
  const std::optional<wire::StoreMode> mode = FindStoreMode(type);
  if (!mode.has_value()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "store type: expected local, device, dist_sync, dist_device_sync, dist_async or dist_ssp, "
        "got \"",
        std::string(type), "\""));
  }
  ZmqTransportOptions transport;
  transport.clock = options.clock;
  transport.emulate_link_bytes_per_second = options.emulate_link_bytes_per_second;
  transport.emulate_link_latency = options.emulate_link_latency;
  if (UsedSameHost(options) == SameHost::kShm) {
    const absl::Status shared = ShareMemory(&transport);
    if (!shared.ok()) LOG(WARNING) << shared.message();
  }
  return DistStore::Create(*mode, options, std::make_unique<ZmqTransport>(transport));
}

}  // namespace slimps
