// SPDX-License-Identifier: Apache-2.0
// Converts statuses to Python exceptions; the classes are in slimps/errors.py.
//
//   RaiseIfError(store->Push(key, gradient, priority));   // with the GIL held
#ifndef SLIMPS_PYTHON_EXTENSION_STATUS_H_
#define SLIMPS_PYTHON_EXTENSION_STATUS_H_

#include <pybind11/pybind11.h>

#include "absl/status/status.h"

namespace slimps::python {

// Returns the exception of the status's code, with the whole message.
// REQUIRES: the caller holds the GIL; `status` is not OK.
pybind11::object ToException(const absl::Status& status);

// Throws that exception as pybind11::error_already_set, unless the status is OK.
// REQUIRES: the caller holds the GIL.
void RaiseIfError(const absl::Status& status);

}  // namespace slimps::python

#endif  // SLIMPS_PYTHON_EXTENSION_STATUS_H_
