#include "python/extension/status.h"

#include <pybind11/pybind11.h>

#include <string>

namespace slimps::python {

namespace py = pybind11;

void RaiseIfError(const absl::Status& status) {
  if (status.ok()) return;
  const py::object error =
      py::module_::import("slimps.errors")
          .attr("from_status")(static_cast<int>(status.code()), std::string(status.message()));
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(error.ptr())), error.ptr());
  throw py::error_already_set();
}

}  // namespace slimps::python
