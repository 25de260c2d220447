// SPDX-License-Identifier: Apache-2.0
#include "python/extension/layer.h"

#include <pybind11/pybind11.h>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "worker/kvstore.h"

namespace slimps::python {

wire::LayerKind ToLayer(const std::string& name, const std::vector<int64_t>& shape) {
  if (name.empty()) return LayerByShape(shape);
  wire::LayerKind layer = wire::OTHER;
  if (!wire::LayerKind_Parse(absl::AsciiStrToUpper(name), &layer)) {
    throw pybind11::value_error(absl::StrCat("unknown layer \"", name, "\""));
  }
  return layer;
}

}  // namespace slimps::python
