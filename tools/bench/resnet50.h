// The gradient tensors of ResNet-50 (He et al., "Deep Residual Learning for Image Recognition", 2016, table 1).
#ifndef SLIMPS_TOOLS_BENCH_RESNET50_H_
#define SLIMPS_TOOLS_BENCH_RESNET50_H_

#include <cstddef>
#include <vector>

#include "compress/codec/codec.h"

namespace slimps {

struct GradientTensor {
  size_t elements = 0;
  LayerKind layer = LayerKind::kOther;
};

// In forward order: 161 tensors, 25,557,032 elements.
std::vector<GradientTensor> ResNet50();

}  // namespace slimps

#endif  // SLIMPS_TOOLS_BENCH_RESNET50_H_
