#include "tools/bench/resnet50.h"

namespace slimps {
namespace {

struct Stage {
  size_t blocks;
  size_t channels;
};

void AddConvolution(size_t in, size_t out, size_t kernel, std::vector<GradientTensor>& tensors) {
  tensors.push_back({in * out * kernel * kernel, LayerKind::kConvolution});
  tensors.push_back({out, LayerKind::kNormalisation});  // its batch normalisation's scale
  tensors.push_back({out, LayerKind::kNormalisation});  // and shift
}

}  // namespace

std::vector<GradientTensor> ResNet50() {
  std::vector<GradientTensor> tensors;
  AddConvolution(3, 64, 7, tensors);
  size_t in = 64;
  for (const Stage& stage : {Stage{3, 64}, {4, 128}, {6, 256}, {3, 512}}) {
    const size_t out = 4 * stage.channels;
    for (size_t block = 0; block < stage.blocks; ++block) {
      AddConvolution(in, stage.channels, 1, tensors);
      AddConvolution(stage.channels, stage.channels, 3, tensors);
      AddConvolution(stage.channels, out, 1, tensors);
      if (block == 0) AddConvolution(in, out, 1, tensors);  // the shortcut
      in = out;
    }
  }
  tensors.push_back({in * 1000, LayerKind::kDense});
  tensors.push_back({1000, LayerKind::kDense});
  return tensors;
}

}  // namespace slimps
