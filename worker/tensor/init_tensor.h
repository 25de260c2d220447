// SPDX-License-Identifier: Apache-2.0
// A tensor as the caller of KVStore::Init describes it. Pure; thread-safe.
#ifndef SLIMPS_WORKER_TENSOR_INIT_TENSOR_H_
#define SLIMPS_WORKER_TENSOR_INIT_TENSOR_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/base/key.h"
#include "proto/slimps.pb.h"
#include "worker/device/place.h"

namespace slimps {

// Returns the layer kind of a tensor that declares none, for codecs that treat layers differently
// (adacomp). Frameworks' weights are (out, in) in dense layers and (out, in, kernel ...) in
// convolutions.
inline wire::LayerKind LayerByShape(std::span<const int64_t> shape) {
  if (shape.size() > 2) return wire::CONVOLUTION;
  return shape.size() == 2 ? wire::DENSE : wire::OTHER;
}

struct InitTensor {
  Key key;
  std::vector<int64_t> shape;
  std::span<const float> value;                         // rank 0's; others may leave it empty
  std::optional<wire::LayerKind> layer = std::nullopt;  // nullopt: LayerByShape
  wire::DType dtype = wire::FLOAT32;  // on the wire and when pulled; the servers keep fp32
  size_t partition_elements = 0;      // not 0: for this tensor, in place of the store's
  Place place = {};                   // where `value` lies

  wire::LayerKind declared_layer() const { return layer.value_or(LayerByShape(shape)); }
};

// Returns the tensor's declaration, as the scheduler and the servers get it.
// InvalidArgument (names key and shape): a negative extent, no elements, or more than memory can
// address.
[[nodiscard]] absl::StatusOr<wire::KeyInfo> DeclarationOf(const InitTensor& tensor);

}  // namespace slimps

#endif  // SLIMPS_WORKER_TENSOR_INIT_TENSOR_H_
