// SPDX-License-Identifier: Apache-2.0
#include "worker/tensor/init_tensor.h"

#include <cstddef>
#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "proto/element_count.h"

namespace slimps {

absl::StatusOr<wire::KeyInfo> DeclarationOf(const InitTensor& tensor) {
  constexpr uint64_t kMaxElements = std::numeric_limits<size_t>::max() / sizeof(float);
  wire::KeyInfo info;
  info.set_key(tensor.key.id());
  info.set_name(tensor.key.typed_name());
  info.set_dtype(tensor.dtype);
  info.set_layer(tensor.declared_layer());
  info.set_partition_elements(tensor.partition_elements);
  for (const int64_t extent : tensor.shape) info.add_shape(extent);
  if (ElementCount(info, kMaxElements).value_or(0) > 0) return info;
  return absl::InvalidArgumentError(absl::StrCat("init of key ", info.name(), ": shape [",
                                                 absl::StrJoin(info.shape(), ", "),
                                                 "]: expected 1 to ", kMaxElements, " elements"));
}

}  // namespace slimps
