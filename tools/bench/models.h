// The tensors of real models, as shapes and work alone: what a job of that model would push and pull.
#ifndef SLIMPS_TOOLS_BENCH_MODELS_H_
#define SLIMPS_TOOLS_BENCH_MODELS_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "compress/codec/codec.h"

namespace slimps {

// One gradient tensor.
struct ModelTensor {
  std::string name;
  std::vector<int64_t> shape;
  LayerKind layer = LayerKind::kOther;
  // Multiply-adds of the layer's forward pass, for one sample, on the layer's weight; 0 on its bias and the like.
  double multiply_adds = 0;

  size_t elements() const;
};

struct ModelShape {
  std::string name;
  std::string source;                // where the shapes are published
  std::vector<ModelTensor> tensors;  // in forward order
  // fp32 communication time over computation time: SlimGC's table 2 where the model is in it, else 4.0.
  double communication_to_compute = 4.0;

  size_t elements() const;
};

// alexnet, vgg16, resnet50, resnet152, inception_bn, lstm_ptb, bert_base, gpt2.
std::vector<std::string> ModelNames();
// NotFound, with the names there are: another name.
[[nodiscard]] absl::StatusOr<ModelShape> FindModel(std::string_view name);

}  // namespace slimps

#endif  // SLIMPS_TOOLS_BENCH_MODELS_H_
