// SPDX-License-Identifier: Apache-2.0
#include "worker/kvstore.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "compress/codec/catalogue/dictionary.h"
#include "glog/logging.h"
#include "proto/base/out_of_memory.h"
#include "proto/base/status_macros.h"
#include "proto/net/identity/node_keys.h"
#include "proto/net/zmq/zmq_transport.h"
#include "worker/combination.h"
#include "worker/local/local_store.h"
#include "worker/store/dist_store.h"
#include "worker/store/guarded_store.h"

namespace slimps {

namespace {

absl::StatusOr<std::unique_ptr<KVStore>> Make(std::string_view type,
                                              const KVStoreOptions& options) {
  if (type == "local" || type == "device") {
    SLIMPS_ASSIGN_OR_RETURN(auto local, LocalStore::Create(type, options));
    return std::make_unique<GuardedStore>(std::move(local));
  }
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
  if (options.key_file.empty() != options.scheduler_key.empty()) {
    return absl::InvalidArgumentError(
        "options key_file and scheduler_key go together, got one of them");
  }
  if (!options.key_file.empty()) {
    SLIMPS_ASSIGN_OR_RETURN(transport.secret_key, ReadKeyFile(options.key_file));
  }
  if (UsedSameHost(options) == SameHost::kShm) {
    const absl::Status shared = ShareMemory(&transport);
    if (!shared.ok()) LOG(WARNING) << shared.message();
  }
  SLIMPS_ASSIGN_OR_RETURN(
      auto store, DistStore::Create(*mode, options, std::make_unique<ZmqTransport>(transport)));
  return std::make_unique<GuardedStore>(std::move(store));
}

}  // namespace

absl::StatusOr<std::unique_ptr<KVStore>> KVStore::Create(std::string_view type,
                                                         const KVStoreOptions& options) {
  return OrOutOfMemory([&] { return Make(type, options); }, "creating a store");
}

absl::Status KVStore::Broadcast(const InitTensor& tensor, std::span<float> out) {
  SLIMPS_RETURN_IF_ERROR(
      OrOutOfMemory([&] { return Init({tensor}); }, "init", tensor.key.typed_name()));
  return Pull(tensor.key, out, /*priority=*/0);
}

absl::Status KVStore::SetGradientCompression(const std::map<std::string, std::string>& dictionary) {
  const auto set = [&]() -> absl::Status {
    SLIMPS_ASSIGN_OR_RETURN(const DictionaryCodec codec, CodecSpecFromDictionary(dictionary));
    return ChangeCompression(codec.spec.ToString(),
                             codec.every_key ? CompressedKeys::kAll : CompressedKeys::kByThreshold);
  };
  return OrOutOfMemory(set, "setting gradient compression");
}

}  // namespace slimps
