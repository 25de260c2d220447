// SPDX-License-Identifier: Apache-2.0
// c_api.h: init, push and pull.
#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "proto/base/status_macros.h"
#include "proto/base/thread.h"
#include "worker/capi/c_api.h"
#include "worker/capi/c_api_structs.h"
#include "worker/capi/c_api_support.h"

namespace slimps {
namespace {

static_assert(SLIMPS_BFLOAT16 == static_cast<int>(wire::BFLOAT16));
static_assert(SLIMPS_LAYER_NORMALISATION == static_cast<int>(wire::NORMALISATION));

absl::Status CheckEnum(const std::string& what, int32_t got, int32_t most) {
  if (got >= 0 && got <= most) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(what, ": expected 0 to ", most, ", got ", got));
}

absl::StatusOr<size_t> ElementsOf(const std::string& what, std::span<const int64_t> shape) {
  size_t elements = 1;
  for (const int64_t extent : shape) {
    const auto size = static_cast<size_t>(extent);
    if (extent < 0 || (size > 0 && elements > PTRDIFF_MAX / sizeof(float) / size)) {
      return absl::InvalidArgumentError(
          absl::StrCat(what, ".shape: expected extents from 0 that fit into memory, got ", extent));
    }
    elements *= size;
  }
  return elements;
}

absl::StatusOr<InitTensor> ToTensor(const std::string& what, const void* given) {
  SLIMPS_ASSIGN_OR_RETURN(const slimps_tensor tensor, ReadSized<slimps_tensor>(what, given));
  absl::StatusOr<Key> key = ToKey(tensor.key);
  if (!key.ok()) {
    return absl::InvalidArgumentError(absl::StrCat(what, ".", key.status().message()));
  }
  SLIMPS_ASSIGN_OR_RETURN(const std::span<const int64_t> shape,
                          ToSpan((what + ".shape").c_str(), tensor.shape, tensor.dimensions));
  SLIMPS_ASSIGN_OR_RETURN(const size_t elements, ElementsOf(what, shape));
  SLIMPS_RETURN_IF_ERROR(CheckEnum(what + ".dtype", tensor.dtype, SLIMPS_BFLOAT16));
  SLIMPS_RETURN_IF_ERROR(CheckEnum(what + ".layer", tensor.layer, SLIMPS_LAYER_NORMALISATION));
  InitTensor made{.key = *std::move(key),
                  .shape = {shape.begin(), shape.end()},
                  .value = {tensor.values, tensor.values == nullptr ? 0 : elements},
                  .dtype = static_cast<wire::DType>(tensor.dtype)};
  if (tensor.layer != SLIMPS_LAYER_BY_SHAPE) {
    made.layer = static_cast<wire::LayerKind>(tensor.layer);
  }
  return made;
}

// A pull under way. It notes an answer that comes on the asking thread while that thread is still
// asking: the caller may hold a lock, so `done` must not run there.
struct AskedPull {
  slimps_done done;
  void* user_data;
  const Thread::Id asker = Thread::CurrentId();
  bool asking = true;                   // for the asking thread alone
  std::optional<absl::Status> at_once;  // for the asking thread alone

  void Answer(const absl::Status& status) {
    if (Thread::CurrentId() == asker && asking) {
      at_once = status;
    } else {
      HandOver(status);
    }
  }

  void HandOver(const absl::Status& status) const {
    std::string message;
    const char* shown = "";
    try {
      message = std::string(status.message());
      shown = message.c_str();
    } catch (...) {
      shown = "out of memory";
    }
    done(user_data, static_cast<slimps_status>(status.code()), shown);
  }
};

struct PulledRows {
  std::vector<int64_t> rows;
  std::vector<float> values;
};

}  // namespace
}  // namespace slimps

using slimps::CheckPointer;
using slimps::Guarded;
using slimps::Key;
using slimps::ToKey;
using slimps::ToSpan;

extern "C" {

slimps_status slimps_init(slimps_store* store, const slimps_tensor* tensors, size_t count) {
  return Guarded(__func__, [&]() -> absl::Status {
    SLIMPS_RETURN_IF_ERROR(CheckPointer("store", store));
    SLIMPS_RETURN_IF_ERROR(ToSpan("tensors", tensors, count).status());
    // The caller's header says how far apart the caller's tensors lie.
    const size_t stride = count == 0 ? 0 : tensors->struct_size;
    std::vector<slimps::InitTensor> made;
    made.reserve(count);
    for (size_t i = 0; i < count; ++i) {
      const std::string what = absl::StrCat("tensors[", i, "]");
      const auto* tensor = reinterpret_cast<const slimps_tensor*>(
          reinterpret_cast<const char*>(tensors) + i * stride);
      if (tensor->struct_size != stride) {
        return absl::InvalidArgumentError(
            absl::StrCat(what, ".struct_size: expected that of tensors[0], ", stride, ", got ",
                         tensor->struct_size));
      }
      SLIMPS_ASSIGN_OR_RETURN(slimps::InitTensor one, slimps::ToTensor(what, tensor));
      made.push_back(std::move(one));
    }
    return store->store->Init(made);
  });
}

slimps_status slimps_broadcast(slimps_store* store, const slimps_tensor* tensor, float* out,
                               size_t elements) {
  return Guarded(__func__, [&]() -> absl::Status {
    SLIMPS_RETURN_IF_ERROR(CheckPointer("store", store));
    SLIMPS_RETURN_IF_ERROR(CheckPointer("tensor", tensor));
    SLIMPS_ASSIGN_OR_RETURN(const slimps::InitTensor made, slimps::ToTensor("tensor", tensor));
    SLIMPS_ASSIGN_OR_RETURN(const std::span<float> target, ToSpan("out", out, elements));
    return store->store->Broadcast(made, target);
  });
}

slimps_status slimps_push(slimps_store* store, slimps_key key, const float* gradient,
                          size_t elements, int32_t priority) {
  return Guarded(__func__, [&]() -> absl::Status {
    SLIMPS_RETURN_IF_ERROR(CheckPointer("store", store));
    SLIMPS_ASSIGN_OR_RETURN(const Key name, ToKey(key));
    SLIMPS_ASSIGN_OR_RETURN(const auto values, ToSpan("gradient", gradient, elements));
    return store->store->Push(name, values, priority);
  });
}

slimps_status slimps_push_sum(slimps_store* store, slimps_key key, const float* const* gradients,
                              size_t devices, size_t elements, int32_t priority) {
  return Guarded(__func__, [&]() -> absl::Status {
    SLIMPS_RETURN_IF_ERROR(CheckPointer("store", store));
    SLIMPS_ASSIGN_OR_RETURN(const Key name, ToKey(key));
    SLIMPS_ASSIGN_OR_RETURN(const auto arrays, ToSpan("gradients", gradients, devices));
    std::vector<std::span<const float>> values;
    for (const float* array : arrays) {
      SLIMPS_ASSIGN_OR_RETURN(const auto one, ToSpan("gradients", array, elements));
      values.push_back(one);
    }
    return store->store->PushSum(name, values, priority);
  });
}

slimps_status slimps_push_nothing(slimps_store* store, slimps_key key) {
  return Guarded(__func__, [&]() -> absl::Status {
    SLIMPS_RETURN_IF_ERROR(CheckPointer("store", store));
    SLIMPS_ASSIGN_OR_RETURN(const Key name, ToKey(key));
    return store->store->PushNothing(name);
  });
}

slimps_status slimps_pull(slimps_store* store, slimps_key key, float* out, size_t elements,
                          int32_t priority) {
  return Guarded(__func__, [&]() -> absl::Status {
    SLIMPS_RETURN_IF_ERROR(CheckPointer("store", store));
    SLIMPS_ASSIGN_OR_RETURN(const Key name, ToKey(key));
    SLIMPS_ASSIGN_OR_RETURN(const auto target, ToSpan("out", out, elements));
    return store->store->Pull(name, target, priority);
  });
}

slimps_status slimps_pull_async(slimps_store* store, slimps_key key, float* out, size_t elements,
                                int32_t priority, slimps_done done, void* user_data) {
  return Guarded(__func__, [&]() -> absl::Status {
    SLIMPS_RETURN_IF_ERROR(CheckPointer("store", store));
    SLIMPS_ASSIGN_OR_RETURN(const Key name, ToKey(key));
    SLIMPS_ASSIGN_OR_RETURN(const auto target, ToSpan("out", out, elements));
    if (done == nullptr) {
      return absl::InvalidArgumentError("done: expected a function, got NULL");
    }
    const std::shared_ptr<slimps::AskedPull> asked(new slimps::AskedPull{done, user_data});
    store->store->PullAsync(name, target, priority,
                            [asked](const absl::Status& status) { asked->Answer(status); });
    asked->asking = false;
    if (!asked->at_once.has_value()) return absl::OkStatus();
    // An error that is known at once is this call's status, and `done` is not called.
    if (asked->at_once->ok()) {
      store->answers.Post([asked] { asked->HandOver(absl::OkStatus()); });
    }
    return *asked->at_once;
  });
}

slimps_status slimps_pushpull(slimps_store* store, slimps_key key, const float* gradient,
                              float* out, size_t elements, int32_t priority) {
  return Guarded(__func__, [&]() -> absl::Status {
    SLIMPS_RETURN_IF_ERROR(CheckPointer("store", store));
    SLIMPS_ASSIGN_OR_RETURN(const Key name, ToKey(key));
    SLIMPS_ASSIGN_OR_RETURN(const auto values, ToSpan("gradient", gradient, elements));
    SLIMPS_ASSIGN_OR_RETURN(const auto target, ToSpan("out", out, elements));
    return store->store->PushPull(name, values, target, priority);
  });
}

slimps_status slimps_push_row_sparse(slimps_store* store, slimps_key key, const int64_t* rows,
                                     size_t num_rows, const float* values, size_t elements,
                                     int32_t priority) {
  return Guarded(__func__, [&]() -> absl::Status {
    SLIMPS_RETURN_IF_ERROR(CheckPointer("store", store));
    SLIMPS_ASSIGN_OR_RETURN(const Key name, ToKey(key));
    SLIMPS_ASSIGN_OR_RETURN(const auto numbers, ToSpan("rows", rows, num_rows));
    SLIMPS_ASSIGN_OR_RETURN(const auto pushed, ToSpan("values", values, elements));
    return store->store->PushRowSparse(name, numbers, pushed, priority);
  });
}

slimps_status slimps_pull_rows(slimps_store* store, slimps_key key, const int64_t* row_ids,
                               size_t num_ids, int64_t* rows, float* values, size_t elements,
                               size_t* num_rows, int32_t priority) {
  return Guarded(__func__, [&]() -> absl::Status {
    SLIMPS_RETURN_IF_ERROR(CheckPointer("store", store));
    SLIMPS_ASSIGN_OR_RETURN(const Key name, ToKey(key));
    SLIMPS_ASSIGN_OR_RETURN(const auto ids, ToSpan("row_ids", row_ids, num_ids));
    SLIMPS_ASSIGN_OR_RETURN(const auto row_room, ToSpan("rows", rows, num_ids));
    SLIMPS_ASSIGN_OR_RETURN(const auto room, ToSpan("values", values, elements));
    SLIMPS_RETURN_IF_ERROR(CheckPointer("num_rows", num_rows));
    slimps::PulledRows pulled;
    SLIMPS_RETURN_IF_ERROR(
        store->store->PullRows(name, ids, &pulled.rows, &pulled.values, priority));
    if (pulled.values.size() > room.size()) {
      return absl::InvalidArgumentError(
          absl::StrCat("values: ", pulled.rows.size(), " rows of key ", name.typed_name(),
                       " need room for ", pulled.values.size(), " elements, got ", room.size()));
    }
    std::copy(pulled.rows.begin(), pulled.rows.end(), row_room.begin());
    std::copy(pulled.values.begin(), pulled.values.end(), room.begin());
    *num_rows = pulled.rows.size();
    return absl::OkStatus();
  });
}

}  // extern "C"
