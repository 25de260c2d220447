// SPDX-License-Identifier: Apache-2.0
// What the functions of the C API share: they check C values and turn them into C++ ones.
//
//   SLIMPS_ASSIGN_OR_RETURN(const Key name, ToKey(key));
//   SLIMPS_ASSIGN_OR_RETURN(const std::span<float> target, ToSpan("out", out, elements));
//
// Thread-safe.
#ifndef SLIMPS_WORKER_CAPI_C_API_SUPPORT_H_
#define SLIMPS_WORKER_CAPI_C_API_SUPPORT_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "worker/capi/c_api.h"
#include "worker/capi/c_api_calls.h"
#include "worker/device/place.h"
#include "worker/kvstore.h"

struct slimps_options {
  slimps::KVStoreOptions options;
  std::string text;  // of the last slimps_options_get
};

struct slimps_optimizer {
  slimps::wire::OptimizerSpec spec;
};

namespace slimps {

// Returns a copy; null: all defaults.
inline KVStoreOptions OptionsOf(const slimps_options* options) {
  return options == nullptr ? KVStoreOptions() : options->options;
}

// The functions below return InvalidArgument with the message "`what`: expected ..., got ...".
[[nodiscard]] absl::Status CheckPointer(const char* what, const void* pointer);
[[nodiscard]] absl::Status CheckText(const char* what, const char* text);
[[nodiscard]] absl::StatusOr<Key> ToKey(const slimps_key& key);

// The result is valid as long as `key.typed_name()` is.
[[nodiscard]] slimps_key FromKey(const Key& key);

[[nodiscard]] absl::Status CheckChoice(const std::string& what, int32_t got, int32_t most);

// `last_kind`: the largest kind that makes sense here. `array` is what lies there.
[[nodiscard]] absl::StatusOr<Place> ToPlace(const char* what, const slimps_place& given,
                                            int32_t last_kind, const float* array);

// Returns where an array lies whose place the caller has not said. One on a GPU belongs to its
// legacy default stream.
[[nodiscard]] Place PlaceOf(const float* array);

// Returns `said`; null: PlaceOf(array). An array on loan makes no sense here.
[[nodiscard]] absl::StatusOr<Place> SaidOrFoundPlace(const std::string& what,
                                                     const slimps_place* said, const float* array);

struct Shape {
  std::vector<int64_t> extents;
  size_t elements = 1;
};
[[nodiscard]] absl::StatusOr<Shape> ToShape(const std::string& what, const int64_t* shape,
                                            size_t dimensions);

// Returns the layer of a tensor of the given shape. `layer` is one of SLIMPS_LAYER_...
[[nodiscard]] absl::StatusOr<wire::LayerKind> ToLayer(const std::string& what, int32_t layer,
                                                      const Shape& shape);

// `momentum` may be SLIMPS_OWN_MOMENTUM.
inline Hyper ToHyper(double learning_rate, double weight_decay, double momentum) {
  Hyper hyper{.learning_rate = learning_rate, .weight_decay = weight_decay};
  if (momentum != SLIMPS_OWN_MOMENTUM) hyper.momentum = momentum;
  return hyper;
}

// Returns the caller's array.
// InvalidArgument: `data` is null with elements, or the array is larger than memory can be.
template <typename Element>
[[nodiscard]] absl::StatusOr<std::span<Element>> ToSpan(const char* what, Element* data,
                                                        size_t elements) {
  if (data == nullptr && elements > 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(what, ": expected ", elements, " elements, got NULL"));
  }
  if (elements > PTRDIFF_MAX / sizeof(Element)) {
    return absl::InvalidArgumentError(absl::StrCat(
        what, ": expected an array that fits into memory, got ", elements, " elements"));
  }
  return std::span<Element>(data, elements);
}

}  // namespace slimps

#endif  // SLIMPS_WORKER_CAPI_C_API_SUPPORT_H_
