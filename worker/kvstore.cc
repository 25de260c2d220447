// SPDX-License-Identifier: Apache-2.0
#include "worker/kvstore.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "compress/codec/catalogue/dictionary.h"
#include "glog/logging.h"
#include "proto/base/awaited.h"
#include "proto/base/out_of_memory.h"
#include "proto/base/status_copy.h"
#include "proto/base/status_macros.h"
#include "proto/net/descriptors.h"
#include "proto/net/identity/node_keys.h"
#include "proto/net/zmq/zmq_transport.h"
#include "worker/combination.h"
#include "worker/device/copy_between.h"
#include "worker/device/host_values.h"
#include "worker/local/local_store.h"
#include "worker/store/dist_store.h"
#include "worker/store/guarded_store.h"

namespace slimps {

namespace {

absl::StatusOr<std::unique_ptr<KVStore>> Make(std::string_view type,
                                              const KVStoreOptions& options) {
  if (options.pass_non_finite && FindStoreMode(type) != wire::DIST_SYNC) {
    return absl::InvalidArgumentError(
        absl::StrCat("a ", std::string(type),
                     " store with non_finite=pass: expected dist_sync, whose rounds are sums of "
                     "gradients; elsewhere one such push spoils the value for good"));
  }
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
  SLIMPS_RETURN_IF_ERROR(ReserveDescriptors({.made = size_t{options.num_servers} + 1}));
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

absl::Status KVStore::Broadcast(const InitTensor& tensor, std::span<float> out,
                                const Place& place) {
  SLIMPS_RETURN_IF_ERROR(
      OrOutOfMemory([&] { return Init({tensor}); }, "init", tensor.key.typed_name()));
  if (place.on_host()) return Pull(tensor.key, out, /*priority=*/0);
  Awaited pulled;
  PullTo(tensor.key, {.values = out, .place = place, .done = pulled.Callback()}, /*priority=*/0);
  return pulled.Await();
}

absl::Status KVStore::PushRowSparse(const Key& key, std::span<const int64_t> rows,
                                    std::span<const float> values, int priority,
                                    const Place& place) {
  const auto push = [&]() -> absl::Status {
    const absl::StatusOr<HostValues> on_host = HostValues::Of(devices(), values, place);
    if (!on_host.ok()) {
      return Prefixed(on_host.status(), absl::StrCat("push of rows of key ", key.typed_name()));
    }
    return PushRowSparse(key, rows, on_host->span(), priority);
  };
  return OrOutOfMemory(push, "push of rows", key.typed_name());
}

absl::Status KVStore::PullRowsTo(const Key& key, std::span<const int64_t> row_ids,
                                 std::vector<int64_t>* rows, std::span<float> out,
                                 const Place& place, int priority) {
  const auto pull = [&]() -> absl::Status {
    const std::string what = absl::StrCat("pull of rows of key ", key.typed_name());
    if (!place.on_host() && !out.empty()) {  // before anything travels
      SLIMPS_RETURN_IF_ERROR(Prefixed(FindDevice(devices(), out, place).status(), what));
    }
    std::vector<int64_t> found;
    std::vector<float> values;
    SLIMPS_RETURN_IF_ERROR(PullRows(key, row_ids, &found, &values, priority));
    if (values.size() > out.size()) {
      return absl::InvalidArgumentError(absl::StrCat(what, ": ", found.size(),
                                                     " rows need room for ", values.size(),
                                                     " elements, got ", out.size()));
    }
    if (place.on_host()) {
      std::ranges::copy(values, out.begin());
    } else {
      SLIMPS_RETURN_IF_ERROR(Prefixed(
          CopyBetween(devices(), values, /*from_place=*/{}, out.first(values.size()), place),
          what));
    }
    *rows = std::move(found);
    return absl::OkStatus();
  };
  return OrOutOfMemory(pull, "pull of rows", key.typed_name());
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
