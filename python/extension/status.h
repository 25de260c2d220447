// Statuses as Python exceptions: the classes are slimps/errors.py's.
//
//   RaiseIfError(store->Push(key, gradient, priority));   // with the GIL held
#ifndef SLIMPS_PYTHON_EXTENSION_STATUS_H_
#define SLIMPS_PYTHON_EXTENSION_STATUS_H_

#include <pybind11/pybind11.h>

#include "absl/status/status.h"

namespace slimps::python {

// The exception of the status's code, with its whole message. REQUIRES: the GIL; not OK.
pybind11::object ToException(const absl::Status& status);
// Throws it as pybind11::error_already_set, unless the status is OK. REQUIRES: the GIL.
void RaiseIfError(const absl::Status& status);

}  // namespace slimps::python

#endif  // SLIMPS_PYTHON_EXTENSION_STATUS_H_
