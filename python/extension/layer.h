// What layer a tensor belongs to, as codecs that treat layers differently (adacomp) are told.
#ifndef SLIMPS_PYTHON_EXTENSION_LAYER_H_
#define SLIMPS_PYTHON_EXTENSION_LAYER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "proto/slimps.pb.h"

namespace slimps::python {

// `name` is one of wire::LayerKind's in small letters. Empty: LayerByShape. ValueError: another name.
wire::LayerKind ToLayer(const std::string& name, const std::vector<int64_t>& shape);

}  // namespace slimps::python

#endif  // SLIMPS_PYTHON_EXTENSION_LAYER_H_
