// SPDX-License-Identifier: Apache-2.0
// c_api.h: init, rows, and what else is done with one tensor. Pushes and pulls: c_api_lists.cc.
#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "proto/base/status_macros.h"
#include "proto/base/thread.h"
#include "worker/capi/c_api.h"
#include "worker/capi/c_api_handle.h"
#include "worker/capi/c_api_structs.h"
#include "worker/capi/c_api_support.h"

namespace slimps {
namespace {

static_assert(SLIMPS_BFLOAT16 == static_cast<int>(wire::BFLOAT16));

absl::StatusOr<InitTensor> ToTensor(const std::string& what, const slimps_tensor& tensor) {
  absl::StatusOr<Key> key = ToKey(tensor.key);
  if (!key.ok()) {
    return absl::InvalidArgumentError(absl::StrCat(what, ".", key.status().message()));
  }
  SLIMPS_ASSIGN_OR_RETURN(Shape shape, ToShape(what, tensor.shape, tensor.dimensions));
  SLIMPS_RETURN_IF_ERROR(CheckChoice(what + ".dtype", tensor.dtype, SLIMPS_BFLOAT16));
  SLIMPS_ASSIGN_OR_RETURN(const wire::LayerKind layer, ToLayer(what, tensor.layer, shape));
  SLIMPS_ASSIGN_OR_RETURN(const Place place,
                          SaidOrFoundPlace(what + ".place", tensor.place, tensor.values));
  return InitTensor{.key = *std::move(key),
                    .shape = std::move(shape.extents),
                    .value = {tensor.values, tensor.values == nullptr ? 0 : shape.elements},
                    .layer = layer,
                    .dtype = static_cast<wire::DType>(tensor.dtype),
                    .place = place};
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

}  // namespace
}  // namespace slimps

using slimps::AskKey;
using slimps::AwaitKey;
using slimps::AwaitWith;
using slimps::CheckPointer;
using slimps::Key;
using slimps::KVStore;
using slimps::ToSpan;

extern "C" {

slimps_status slimps_init(slimps_store* store, const slimps_tensor* tensors, size_t count) {
  const auto convert = [&]() -> absl::StatusOr<std::vector<slimps::InitTensor>> {
    SLIMPS_ASSIGN_OR_RETURN(const auto given, slimps::ReadSizedArray("tensors", tensors, count));
    std::vector<slimps::InitTensor> made;
    for (const slimps_tensor& tensor : given) {
      const std::string what = absl::StrCat("tensors[", made.size(), "]");
      SLIMPS_ASSIGN_OR_RETURN(slimps::InitTensor one, slimps::ToTensor(what, tensor));
      made.push_back(std::move(one));
    }
    return made;
  };
  return AwaitWith(__func__, store, convert,
                   [](KVStore* open, const auto& made) { return open->Init(made); });
}

slimps_status slimps_broadcast(slimps_store* store, const slimps_tensor* tensor, float* out,
                               size_t elements) {
  const auto convert = [&]() -> absl::StatusOr<slimps::InitTensor> {
    SLIMPS_RETURN_IF_ERROR(CheckPointer("tensor", tensor));
    SLIMPS_ASSIGN_OR_RETURN(const auto given, slimps::ReadSized<slimps_tensor>("tensor", tensor));
    return slimps::ToTensor("tensor", given);
  };
  return AwaitWith(__func__, store, convert, [=](KVStore* open, const auto& made) -> absl::Status {
    SLIMPS_ASSIGN_OR_RETURN(const std::span<float> target, ToSpan("out", out, elements));
    return open->Broadcast(made, target, slimps::PlaceOf(out));
  });
}

slimps_status slimps_push_nothing(slimps_store* store, slimps_key key) {
  return AwaitKey(__func__, store, key,
                  [](KVStore* open, const Key& name) { return open->PushNothing(name); });
}

slimps_status slimps_pull_async(slimps_store* store, slimps_key key, float* out, size_t elements,
                                int32_t priority, slimps_done done, void* user_data) {
  return AskKey(__func__, store, key, [&](KVStore* open, const Key& name) -> absl::Status {
    SLIMPS_ASSIGN_OR_RETURN(const auto target, ToSpan("out", out, elements));
    if (done == nullptr) {
      return absl::InvalidArgumentError("done: expected a function, got NULL");
    }
    const std::shared_ptr<slimps::AskedPull> asked(new slimps::AskedPull{done, user_data});
    const slimps::Place place = slimps::PlaceOf(out);
    const auto answer = [asked](const absl::Status& status) { asked->Answer(status); };
    if (place.on_host()) {
      open->PullAsync(name, target, priority, answer);
    } else {
      open->PullTo(name, {.values = target, .place = place, .done = answer}, priority);
    }
    asked->asking = false;
    if (!asked->at_once.has_value()) return absl::OkStatus();
    // An error that is known at once is this call's status, and `done` is not called.
    if (asked->at_once->ok()) {
      store->shared->answers().Post([asked] { asked->HandOver(absl::OkStatus()); });
    }
    return *asked->at_once;
  });
}

slimps_status slimps_push_row_sparse(slimps_store* store, slimps_key key, const int64_t* rows,
                                     size_t num_rows, const float* values, size_t elements,
                                     int32_t priority) {
  return AwaitKey(__func__, store, key, [=](KVStore* open, const Key& name) -> absl::Status {
    SLIMPS_ASSIGN_OR_RETURN(const auto numbers, ToSpan("rows", rows, num_rows));
    SLIMPS_ASSIGN_OR_RETURN(const auto pushed, ToSpan("values", values, elements));
    return open->PushRowSparse(name, numbers, pushed, priority, slimps::PlaceOf(values));
  });
}

slimps_status slimps_pull_rows(slimps_store* store, slimps_key key, const int64_t* row_ids,
                               size_t num_ids, int64_t* rows, float* values, size_t elements,
                               size_t* num_rows, int32_t priority) {
  return AwaitKey(__func__, store, key, [=](KVStore* open, const Key& name) -> absl::Status {
    SLIMPS_ASSIGN_OR_RETURN(const auto ids, ToSpan("row_ids", row_ids, num_ids));
    SLIMPS_ASSIGN_OR_RETURN(const auto row_room, ToSpan("rows", rows, num_ids));
    SLIMPS_ASSIGN_OR_RETURN(const auto room, ToSpan("values", values, elements));
    SLIMPS_RETURN_IF_ERROR(CheckPointer("num_rows", num_rows));
    std::vector<int64_t> pulled;
    SLIMPS_RETURN_IF_ERROR(
        open->PullRowsTo(name, ids, &pulled, room, slimps::PlaceOf(values), priority));
    std::ranges::copy(pulled, row_room.begin());
    *num_rows = pulled.size();
    return absl::OkStatus();
  });
}

}  // extern "C"
