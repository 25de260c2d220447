// SPDX-License-Identifier: Apache-2.0
// Structs of the C API that begin with their size and grow at the end. Programs and libraries of
// different minor versions have them in different lengths.
//
//   SLIMPS_ASSIGN_OR_RETURN(const slimps_tensor tensor,
//                           ReadSized<slimps_tensor>("tensors[0]", given));
//   SLIMPS_RETURN_IF_ERROR(FillSized("totals", made, totals));
//
// Pure; thread-safe.
#ifndef SLIMPS_WORKER_CAPI_C_API_STRUCTS_H_
#define SLIMPS_WORKER_CAPI_C_API_STRUCTS_H_

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "proto/base/status_macros.h"
#include "worker/capi/c_api.h"
#include "worker/capi/c_api_calls.h"
#include "worker/capi/c_api_exchange.h"
#include "worker/capi/c_api_support.h"

namespace slimps {

// sizeof in the version of the API that first had the struct. Never changes.
template <typename Struct>
inline constexpr size_t kFirstSize = 0;
template <>
inline constexpr size_t kFirstSize<slimps_tensor> = 64;
template <>
inline constexpr size_t kFirstSize<slimps_item> = 64;
template <>
inline constexpr size_t kFirstSize<slimps_parameter> = 48;
template <>
inline constexpr size_t kFirstSize<slimps_exchange_settings> = 32;
template <>
inline constexpr size_t kFirstSize<slimps_exchange_times> = 32;
template <>
inline constexpr size_t kFirstSize<slimps_clipping> = 32;
template <>
inline constexpr size_t kFirstSize<slimps_totals> = 112;
template <>
inline constexpr size_t kFirstSize<slimps_decision> = 40;
template <>
inline constexpr size_t kFirstSize<slimps_optimizer_state> = 88;

// Checks the size that a caller's struct claims.
// InvalidArgument: smaller than in its first version, or a value that can only be uninitialised.
[[nodiscard]] absl::Status CheckStructSize(const std::string& what, size_t got, size_t least);

// Reads a struct as long as the caller's header has it. Fields that the caller lacks are 0.
// InvalidArgument: a bad size, or a field unknown to this library is not 0: it would ask for
// something that this library does not have.
template <typename Struct>
[[nodiscard]] absl::StatusOr<Struct> ReadSized(const std::string& what, const void* given) {
  size_t size = 0;
  std::memcpy(&size, given, sizeof(size));
  SLIMPS_RETURN_IF_ERROR(CheckStructSize(what, size, kFirstSize<Struct>));
  const auto* bytes = static_cast<const unsigned char*>(given);
  if (size > sizeof(Struct) &&
      std::any_of(bytes + sizeof(Struct), bytes + size, [](unsigned char b) { return b != 0; })) {
    return absl::InvalidArgumentError(
        absl::StrCat(what, ": has fields beyond the ", sizeof(Struct),
                     " bytes that this library knows; it is older than the program's header"));
  }
  Struct read;
  std::memset(static_cast<void*>(&read), 0, sizeof(read));
  std::memcpy(static_cast<void*>(&read), given, std::min(size, sizeof(read)));
  return read;
}

// Reads an array of `count` such structs. They lie as far apart as the caller's header has it,
// which is what the first struct's size says.
// InvalidArgument: as above, or the structs claim unlike sizes, or they are more than memory holds.
template <typename Struct>
[[nodiscard]] absl::StatusOr<std::vector<Struct>> ReadSizedArray(const char* what,
                                                                 const Struct* first,
                                                                 size_t count) {
  SLIMPS_RETURN_IF_ERROR(ToSpan(what, first, count).status());
  std::vector<Struct> all;
  all.reserve(count);
  const size_t stride = count == 0 ? 0 : first->struct_size;
  for (size_t i = 0; i < count; ++i) {
    const auto* one =
        reinterpret_cast<const Struct*>(reinterpret_cast<const char*>(first) + i * stride);
    if (one->struct_size != stride) {
      return absl::InvalidArgumentError(absl::StrCat(what, "[", i,
                                                     "].struct_size: expected that of ", what,
                                                     "[0], ", stride, ", got ", one->struct_size));
    }
    const absl::StatusOr<Struct> read = ReadSized<Struct>("", one);
    if (!read.ok()) {
      return absl::InvalidArgumentError(absl::StrCat(what, "[", i, "]", read.status().message()));
    }
    all.push_back(*read);
  }
  return all;
}

// Copies as much of `made` as the caller's struct `out` has room for. The rest of `out` becomes 0.
// InvalidArgument: a bad size.
template <typename Struct>
[[nodiscard]] absl::Status FillSized(const std::string& what, const Struct& made, Struct* out) {
  const size_t size = out->struct_size;
  SLIMPS_RETURN_IF_ERROR(CheckStructSize(what, size, kFirstSize<Struct>));
  std::memset(static_cast<void*>(out), 0, size);
  std::memcpy(static_cast<void*>(out), &made, std::min(size, sizeof(made)));
  std::memcpy(static_cast<void*>(out), &size, sizeof(size));
  return absl::OkStatus();
}

}  // namespace slimps

#endif  // SLIMPS_WORKER_CAPI_C_API_STRUCTS_H_
