// SPDX-License-Identifier: Apache-2.0
#include "python/extension/status.h"

#include <string>

#include "proto/base/plain_keys.h"

namespace slimps::python {

namespace py = pybind11;

py::object ToException(const absl::Status& status) {
  return py::module_::import("slimps.errors")
      .attr("from_status")(static_cast<int>(status.code()),
                           WithPlainKeys(std::string(status.message())));
}

void RaiseIfError(const absl::Status& status) {
  if (status.ok()) return;
  const py::object error = ToException(status);
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(error.ptr())), error.ptr());
  throw py::error_already_set();
}

}  // namespace slimps::python
