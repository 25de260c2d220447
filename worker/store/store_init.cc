// SPDX-License-Identifier: Apache-2.0
#include "worker/store/store_init.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/base/hash.h"
#include "proto/base/status_macros.h"
#include "proto/status_proto.h"
#include "worker/courier/item_gathering.h"
#include "worker/tensor/value_check.h"

namespace slimps {

absl::StatusOr<DeclaredTensors> DeclareTensors(const std::vector<InitTensor>& tensors,
                                               const DeclareOptions& options,
                                               Membership* membership, RpcClient* rpc) {
  wire::Header question = membership->MakeHeader();
  wire::DeclareKeys& declare = *question.mutable_declare_keys();
  declare.set_partition_elements(std::max<size_t>(1, options.partition_bytes / sizeof(float)));
  declare.set_compression(options.compression);
  declare.set_number(options.number);
  for (const InitTensor& tensor : tensors) {
    SLIMPS_ASSIGN_OR_RETURN(*declare.add_keys(), DeclarationOf(tensor));
  }
  SLIMPS_ASSIGN_OR_RETURN(const wire::Header answer,
                          rpc->Call(membership->scheduler(), question, options.timeout,
                                    "declaring keys at the scheduler"));
  SLIMPS_RETURN_IF_ERROR(FromStatusProto(answer.placement().status()));
  if (answer.placement().keys_size() != declare.keys_size()) {
    return absl::DataLossError(absl::StrCat("placement: expected ", declare.keys_size(),
                                            " keys, got ", answer.placement().keys_size()));
  }
  DeclaredTensors declared{.plans = {},
                           .differing_compression = answer.placement().differing_compression()};
  for (size_t i = 0; i < tensors.size(); ++i) {
    const int at = static_cast<int>(i);
    SLIMPS_ASSIGN_OR_RETURN(TensorPlan plan,
                            MakeTensorPlan(tensors[i].key, declare.keys(at),
                                           answer.placement().keys(at), options.num_servers));
    declared.plans.push_back(std::move(plan));
  }
  return declared;
}

wire::InitItem MakeInitItem(const TensorPlan& tensor, size_t partition, Combine combine) {
  const PartitionPlan& plan = tensor.partitions[partition];
  wire::InitItem init;
  init.mutable_id()->set_key(tensor.key.id());
  init.mutable_id()->set_partition(static_cast<uint32_t>(partition));
  *init.mutable_info() = tensor.info;
  init.set_offset(plan.offset);
  init.set_elements(plan.elements);
  init.set_partitions(static_cast<uint32_t>(tensor.partitions.size()));
  init.set_format(wire::RAW_F32);
  init.set_combine(static_cast<wire::Combine>(combine));
  return init;
}

absl::Status SendInitialValues(const std::vector<InitTensor>& tensors,
                               const std::vector<TensorPlan>& plans,
                               const InitialValueOptions& options, Courier* courier) {
  // Every value is checked before the first is sent, so that an error leaves the servers as they
  // were.
  for (size_t k = 0; k < tensors.size(); ++k) {
    SLIMPS_RETURN_IF_ERROR(CheckLength(plans[k], tensors[k].value.size(), "initial value"));
    SLIMPS_RETURN_IF_ERROR(
        CheckFinite(plans[k].key, tensors[k].value, /*scale=*/1, "initial value"));
  }
  ItemGathering gathering(courier, {.max_bytes = options.max_bytes});
  for (size_t k = 0; k < tensors.size(); ++k) {
    const TensorPlan& tensor = plans[k];
    for (size_t i = 0; i < tensor.partitions.size(); ++i) {
      const PartitionPlan& partition = tensor.partitions[i];
      wire::InitItem init = MakeInitItem(tensor, i, options.combine);
      init.set_auxiliary(options.auxiliary);
      Payload value = Payload::Copy(
          std::as_bytes(tensors[k].value.subspan(partition.offset, partition.elements)));
      init.set_payload_bytes(value.size());
      if (options.hashing == PayloadHashing::kXxh3) init.set_payload_hash(HashBytes(value.bytes()));
      gathering.Add(partition.server, {.item = std::move(init),
                                       .payload = std::move(value),
                                       .key_name = tensor.key.typed_name(),
                                       .done = {}});
    }
  }
  return gathering.Await().status();
}

}  // namespace slimps
