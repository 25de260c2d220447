// Statuses as Python exceptions: the classes are slimps/errors.py's.
//
//   RaiseIfError(store->Push(key, gradient, priority));   // with the GIL held
#ifndef SLIMPS_PYTHON_EXTENSION_STATUS_H_
#define SLIMPS_PYTHON_EXTENSION_STATUS_H_

#include "absl/status/status.h"

namespace slimps::python {

// Throws pybind11::error_already_set with the exception of the status's code and its whole message, unless it is OK.
// REQUIRES: the GIL.
void RaiseIfError(const absl::Status& status);

}  // namespace slimps::python

#endif  // SLIMPS_PYTHON_EXTENSION_STATUS_H_
