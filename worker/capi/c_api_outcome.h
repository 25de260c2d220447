// SPDX-License-Identifier: Apache-2.0
// How a call of the C API ends: a status, and a message for slimps_last_error. Statuses and
// exceptions become outcomes here, on the calling thread or on one of the library's.
//
//   slimps_status slimps_barrier(slimps_store* store) {
//     return Guarded(__func__, [&]() -> absl::Status { ... });
//   }
//
// Thread-safe.
#ifndef SLIMPS_WORKER_CAPI_C_API_OUTCOME_H_
#define SLIMPS_WORKER_CAPI_C_API_OUTCOME_H_

#include <string>
#include <utility>

#include "absl/status/status.h"
#include "worker/capi/c_api.h"

namespace slimps {

struct Outcome {
  slimps_status status = SLIMPS_OK;
  std::string message;            // an error's; begins with the function's name
  const char* literal = nullptr;  // shown in the message's place if there was no memory for it

  const char* shown() const { return literal != nullptr ? literal : message.c_str(); }
};

Outcome OutcomeOf(const char* function, const absl::Status& status) noexcept;

// Same, for the exception that is being handled.
Outcome OutcomeOfException(const char* function) noexcept;

// Runs `body`, which returns a Status. Turns what it returns or throws into an outcome.
template <typename Body>
Outcome Caught(const char* function, const Body& body) noexcept {
  try {
    return OutcomeOf(function, body());
  } catch (...) {
    return OutcomeOfException(function);
  }
}

// Returns the status. Keeps the message of an error for this thread's LastError.
slimps_status Report(Outcome outcome) noexcept;

// Returns the message of this thread's last error; "" if there was none.
const char* LastError() noexcept;

// Caught and Report in one.
template <typename Body>
slimps_status Guarded(const char* function, const Body& body) noexcept {
  return Report(Caught(function, body));
}

// Carries a status through code that passes only exceptions on. Its outcome is the status.
struct StatusError {
  absl::Status status;
};

}  // namespace slimps

#endif  // SLIMPS_WORKER_CAPI_C_API_OUTCOME_H_
