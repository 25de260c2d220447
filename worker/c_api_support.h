// What the functions of c_api.h have in common: C values checked and turned into C++ ones, and Status and exceptions
// turned into a status and this thread's message.
//
//   slimps_status slimps_pull(slimps_store* store, slimps_key key, float* out, size_t elements, int32_t priority) {
//     return Guarded("slimps_pull", [&]() -> absl::Status {
//       SLIMPS_RETURN_IF_ERROR(CheckPointer("store", store));
//       SLIMPS_ASSIGN_OR_RETURN(const Key name, ToKey(key));
//       ...
//
// Thread-safe.
#ifndef SLIMPS_WORKER_C_API_SUPPORT_H_
#define SLIMPS_WORKER_C_API_SUPPORT_H_

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
#include "worker/c_api.h"
#include "worker/c_api_answers.h"
#include "worker/kvstore.h"

struct slimps_options {
  slimps::KVStoreOptions options;
};

struct slimps_optimizer {
  slimps::wire::OptimizerSpec spec;
};

struct slimps_store {
  std::string type;  // as it was asked for
  slimps::AnswerThread answers;
  // Ends first: its threads may still hand over answers.
  std::unique_ptr<slimps::KVStore> store;
};

namespace slimps {

// Keeps the message for slimps_last_error and gives the code back; nothing is kept of OK.
slimps_status Report(const char* function, const absl::Status& status) noexcept;
// The same for the exception that is being handled.
slimps_status ReportException(const char* function) noexcept;

template <typename Body>
slimps_status Guarded(const char* function, Body body) noexcept {
  try {
    return Report(function, body());
  } catch (...) {
    return ReportException(function);
  }
}

// Thrown from where only an exception gets through; Guarded reports its status.
struct StatusError {
  absl::Status status;
};

// InvalidArgument, "`what`: expected ..., got ..."; so too below.
[[nodiscard]] absl::Status CheckPointer(const char* what, const void* pointer);
[[nodiscard]] absl::Status CheckText(const char* what, const char* text);
[[nodiscard]] absl::StatusOr<Key> ToKey(const slimps_key& key);
// Only valid as long as `typed_name` is.
[[nodiscard]] slimps_key FromKey(const Key& key);

// Of the functions that do no more than ask a store: `body(KVStore*)` gives a Status.
template <typename Body>
slimps_status Ask(const char* function, const slimps_store* store, Body body) noexcept {
  return Guarded(function, [&]() -> absl::Status {
    SLIMPS_RETURN_IF_ERROR(CheckPointer("store", store));
    return body(store->store.get());
  });
}

// A null pointer goes with 0 elements alone, and no array is larger than memory can be.
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

#endif  // SLIMPS_WORKER_C_API_SUPPORT_H_
