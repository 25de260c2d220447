// SPDX-License-Identifier: Apache-2.0
// The kind of layer that a tensor belongs to, for codecs that treat layers differently (adacomp).
#ifndef SLIMPS_PYTHON_EXTENSION_LAYER_H_
#define SLIMPS_PYTHON_EXTENSION_LAYER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "proto/slimps.pb.h"

namespace slimps::python {

// Returns the kind `name`, a name of wire::LayerKind in small letters. Empty: LayerByShape.
// ValueError: there is no such kind.
wire::LayerKind ToLayer(const std::string& name, const std::vector<int64_t>& shape);

}  // namespace slimps::python

#endif  // SLIMPS_PYTHON_EXTENSION_LAYER_H_
