// SPDX-License-Identifier: Apache-2.0
// Early return on an error Status. Later releases of Abseil offer this; Debian's does not.
//
//   SLIMPS_RETURN_IF_ERROR(CheckHeader(header, limits));
//   SLIMPS_ASSIGN_OR_RETURN(auto frame, ParseFrame(bytes));
#ifndef SLIMPS_PROTO_BASE_STATUS_MACROS_H_
#define SLIMPS_PROTO_BASE_STATUS_MACROS_H_

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#define SLIMPS_RETURN_IF_ERROR(expression)         \
  do {                                             \
    ::absl::Status slimps_status = (expression);   \
    if (!slimps_status.ok()) return slimps_status; \
  } while (false)

#define SLIMPS_CONCAT_INNER(a, b) a##b
#define SLIMPS_CONCAT(a, b) SLIMPS_CONCAT_INNER(a, b)

#define SLIMPS_ASSIGN_OR_RETURN(target, expression) \
  SLIMPS_ASSIGN_OR_RETURN_INNER(SLIMPS_CONCAT(slimps_statusor_, __LINE__), target, expression)

#define SLIMPS_ASSIGN_OR_RETURN_INNER(holder, target, expression) \
  auto holder = (expression);                                     \
  if (!holder.ok()) return holder.status();                       \
  target = *std::move(holder)

#endif  // SLIMPS_PROTO_BASE_STATUS_MACROS_H_
