// SPDX-License-Identifier: Apache-2.0
// What the functions of c_api.h share: they check C values and turn them into C++ ones, and turn
// Status and exceptions into a status and this thread's message.
//
//   slimps_status slimps_pull(slimps_store* store, slimps_key key, float* out, size_t elements,
//                             int32_t priority) {
//     return AskKey("slimps_pull", store, key, [&](KVStore* open, const Key& name) {
//       ...
//
// Thread-safe.
#ifndef SLIMPS_WORKER_CAPI_C_API_SUPPORT_H_
#define SLIMPS_WORKER_CAPI_C_API_SUPPORT_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "proto/base/status_macros.h"
#include "worker/capi/c_api.h"
#include "worker/capi/c_api_answers.h"
#include "worker/kvstore.h"

struct slimps_options {
  slimps::KVStoreOptions options;
};

struct slimps_optimizer {
  slimps::wire::OptimizerSpec spec;
};

struct slimps_store {
  std::string type;  // as slimps_create was asked for it
  slimps::AnswerThread answers;
  // Declared last, so that it ends first: its threads may still hand over answers.
  std::unique_ptr<slimps::KVStore> store;
};

namespace slimps {

// Returns the status code. Keeps the message of an error for slimps_last_error.
slimps_status Report(const char* function, const absl::Status& status) noexcept;

// Same, for the exception that is being handled.
slimps_status ReportException(const char* function) noexcept;

// Runs `body`, which returns a Status. Reports what it returns or throws.
template <typename Body>
slimps_status Guarded(const char* function, Body body) noexcept {
  try {
    return Report(function, body());
  } catch (...) {
    return ReportException(function);
  }
}

// Carries a status through code that passes only exceptions on. Guarded reports the status.
struct StatusError {
  absl::Status status;
};

// The functions below return InvalidArgument with the message "`what`: expected ..., got ...".
[[nodiscard]] absl::Status CheckPointer(const char* what, const void* pointer);
[[nodiscard]] absl::Status CheckText(const char* what, const char* text);
[[nodiscard]] absl::StatusOr<Key> ToKey(const slimps_key& key);

// The result is valid as long as `key.typed_name()` is.
[[nodiscard]] slimps_key FromKey(const Key& key);

// Runs `body(KVStore*)`, which returns a Status, once `store` is checked.
template <typename Body>
slimps_status Ask(const char* function, const slimps_store* store, Body body) noexcept {
  return Guarded(function, [&]() -> absl::Status {
    SLIMPS_RETURN_IF_ERROR(CheckPointer("store", store));
    return body(store->store.get());
  });
}

// Runs `body(KVStore*, const Key&)`, which returns a Status, once `store` and `key` are checked.
template <typename Body>
slimps_status AskKey(const char* function, const slimps_store* store, const slimps_key& key,
                     Body body) noexcept {
  return Ask(function, store, [&](KVStore* open) -> absl::Status {
    SLIMPS_ASSIGN_OR_RETURN(const Key name, ToKey(key));
    return body(open, name);
  });
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
