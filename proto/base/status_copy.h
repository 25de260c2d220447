// SPDX-License-Identifier: Apache-2.0
// Copies of a Status.
//
//   return Prefixed(WriteFileDurably(path, text), "--report");  // "--report: cannot write ..."
#ifndef SLIMPS_PROTO_BASE_STATUS_COPY_H_
#define SLIMPS_PROTO_BASE_STATUS_COPY_H_

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace slimps {

// Returns `status` with "PREFIX: " before its message; OK stays OK.
inline absl::Status Prefixed(const absl::Status& status, absl::string_view prefix) {
  if (status.ok()) return status;
  return {status.code(), absl::StrCat(prefix, ": ", status.message())};
}

// Copies a status without sharing its reference count. That count is inside Abseil, where
// ThreadSanitizer cannot follow it from thread to thread.
inline absl::Status CopyUnshared(const absl::Status& status) {
  return {status.code(), status.message()};
}

}  // namespace slimps

#endif  // SLIMPS_PROTO_BASE_STATUS_COPY_H_
