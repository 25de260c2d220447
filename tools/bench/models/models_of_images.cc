// SPDX-License-Identifier: Apache-2.0
// Convolutional networks on images of 224 x 224 pixels and 1000 classes.
#include <array>
#include <string>

#include "absl/strings/str_cat.h"
#include "tools/bench/models/model_builder.h"

namespace slimps {
namespace {

constexpr int64_t kClasses = 1000;

// A convolution without bias and the batch normalisation after it, as torchvision names them.
void ResidualConvolution(ModelBuilder& model, const std::string& block, int index,
                         const ModelBuilder::ConvolutionLayer& layer) {
  model.Convolution(absl::StrCat(block, "conv", index), layer);
  model.Normalisation(absl::StrCat(block, "bn", index), layer.out);
}

ModelShape ResNet(const std::string& name, const std::array<int, 4>& blocks, double ratio) {
  ModelBuilder model(name,
                     "torchvision.models (stride in the 3 x 3 convolution); He et al., \"Deep "
                     "Residual Learning for Image Recognition\", 2016",
                     ratio);
  ResidualConvolution(model, "", 1, {.in = 3, .out = 64, .kernel = 7, .size = 112});
  int64_t in = 64;
  int64_t size = 56;
  for (int stage = 0; stage < 4; ++stage) {
    const int64_t width = int64_t{64} << stage;
    const int64_t out = 4 * width;
    for (int block = 0; block < blocks[static_cast<size_t>(stage)]; ++block) {
      const std::string prefix = absl::StrCat("layer", stage + 1, ".", block, ".");
      const int64_t half = stage > 0 && block == 0 ? size / 2 : size;
      ResidualConvolution(model, prefix, 1, {.in = in, .out = width, .size = size});
      ResidualConvolution(model, prefix, 2, {.in = width, .out = width, .kernel = 3, .size = half});
      ResidualConvolution(model, prefix, 3, {.in = width, .out = out, .size = half});
      if (block == 0) {
        model.Convolution(prefix + "downsample.0", {.in = in, .out = out, .size = half});
        model.Normalisation(prefix + "downsample.1", out);
      }
      in = out;
      size = half;
    }
  }
  model.Dense("fc", {.in = in, .out = kClasses});
  return std::move(model).Build();
}

// One row of figure 5 of Ioffe and Szegedy. 0: there is no such branch; for `pool`, its channels
// pass unchanged.
struct Inception {
  const char* name;
  int64_t one;                          // 1 x 1
  int64_t three_reduce, three;          // 1 x 1, 3 x 3
  int64_t double_reduce, double_three;  // 1 x 1, 3 x 3, 3 x 3
  int64_t pool;                         // pool, 1 x 1
};

void BatchNormalised(ModelBuilder& model, const std::string& name,
                     const ModelBuilder::ConvolutionLayer& layer) {
  model.Convolution(name, layer);
  model.Normalisation(name + "_bn", layer.out);
}

// Adds a block and returns its output's channels. `size` and `out_size` are the widths of its input
// and output.
int64_t AddInception(ModelBuilder& model, const Inception& block, int64_t in, int64_t size,
                     int64_t out_size) {
  const std::string prefix = absl::StrCat("inception_", block.name, "_");
  const auto add = [&](const char* name, int64_t from, int64_t to, int64_t kernel, int64_t at) {
    BatchNormalised(model, prefix + name,
                    {.in = from, .out = to, .kernel = kernel, .size = at, .bias = true});
  };
  if (block.one > 0) add("1x1", in, block.one, 1, out_size);
  add("3x3_reduce", in, block.three_reduce, 1, size);
  add("3x3", block.three_reduce, block.three, 3, out_size);
  add("double_3x3_reduce", in, block.double_reduce, 1, size);
  add("double_3x3_1", block.double_reduce, block.double_three, 3, size);
  add("double_3x3_2", block.double_three, block.double_three, 3, out_size);
  if (block.pool > 0) add("pool_proj", in, block.pool, 1, out_size);
  return block.one + block.three + block.double_three + (block.pool > 0 ? block.pool : in);
}

// Stages of 3 x 3 convolutions, with `deep` convolutions in each of the last three.
ModelShape Vgg(const std::string& name, const std::string& configuration, int deep, double ratio) {
  ModelBuilder model(name,
                     absl::StrCat("torchvision.models; Simonyan and Zisserman, \"Very Deep "
                                  "Convolutional Networks for Large-Scale Image Recognition\", "
                                  "2015, configuration ",
                                  configuration),
                     ratio);
  struct Stage {
    int convolutions;
    int64_t channels, size;
  };
  int64_t in = 3;
  int index = 0;  // torchvision counts activations and pools too
  for (const Stage& stage :
       {Stage{2, 64, 224}, {2, 128, 112}, {deep, 256, 56}, {deep, 512, 28}, {deep, 512, 14}}) {
    for (int i = 0; i < stage.convolutions; ++i, index += 2) {
      model.Convolution(
          absl::StrCat("features.", index),
          {.in = in, .out = stage.channels, .kernel = 3, .size = stage.size, .bias = true});
      in = stage.channels;
    }
    ++index;
  }
  model.Dense("classifier.0", {.in = 512 * 7 * 7, .out = 4096});
  model.Dense("classifier.3", {.in = 4096, .out = 4096});
  model.Dense("classifier.6", {.in = 4096, .out = kClasses});
  return std::move(model).Build();
}

}  // namespace

ModelShape AlexNet() {
  ModelBuilder model("alexnet",
                     "torchvision.models; Krizhevsky, \"One weird trick for parallelizing "
                     "convolutional neural networks\", 2014",
                     16.4);
  model.Convolution("features.0", {.in = 3, .out = 64, .kernel = 11, .size = 55, .bias = true});
  model.Convolution("features.3", {.in = 64, .out = 192, .kernel = 5, .size = 27, .bias = true});
  model.Convolution("features.6", {.in = 192, .out = 384, .kernel = 3, .size = 13, .bias = true});
  model.Convolution("features.8", {.in = 384, .out = 256, .kernel = 3, .size = 13, .bias = true});
  model.Convolution("features.10", {.in = 256, .out = 256, .kernel = 3, .size = 13, .bias = true});
  model.Dense("classifier.1", {.in = 256 * 6 * 6, .out = 4096});
  model.Dense("classifier.4", {.in = 4096, .out = 4096});
  model.Dense("classifier.6", {.in = 4096, .out = kClasses});
  return std::move(model).Build();
}

ModelShape Vgg16() { return Vgg("vgg16", "D", 3, 5.85); }

ModelShape Vgg19() { return Vgg("vgg19", "E", 4, 4.0); }

ModelShape ResNet50() { return ResNet("resnet50", {3, 4, 6, 3}, 5.07); }

ModelShape ResNet152() { return ResNet("resnet152", {3, 8, 36, 3}, 4.0); }

ModelShape InceptionBn() {
  ModelBuilder model("inception_bn",
                     "Ioffe and Szegedy, \"Batch Normalization\", 2015, figure 5, without its "
                     "auxiliary classifiers; biases beside the normalisations as in MXNet's symbol",
                     4.04);
  BatchNormalised(model, "conv1", {.in = 3, .out = 64, .kernel = 7, .size = 112, .bias = true});
  BatchNormalised(model, "conv2_reduce", {.in = 64, .out = 64, .size = 56, .bias = true});
  BatchNormalised(model, "conv2", {.in = 64, .out = 192, .kernel = 3, .size = 56, .bias = true});
  int64_t channels = 192;
  int64_t size = 28;
  for (const Inception& block : {Inception{"3a", 64, 64, 64, 64, 96, 32},
                                 {"3b", 64, 64, 96, 64, 96, 64},
                                 {"3c", 0, 128, 160, 64, 96, 0},
                                 {"4a", 224, 64, 96, 96, 128, 128},
                                 {"4b", 192, 96, 128, 96, 128, 128},
                                 {"4c", 160, 128, 160, 128, 160, 128},
                                 {"4d", 96, 128, 192, 160, 192, 128},
                                 {"4e", 0, 128, 192, 192, 256, 0},
                                 {"5a", 352, 192, 320, 160, 224, 128},
                                 {"5b", 352, 192, 320, 192, 224, 128}}) {
    const int64_t out_size = block.one == 0 ? size / 2 : size;
    channels = AddInception(model, block, channels, size, out_size);
    size = out_size;
  }
  model.Dense("fc", {.in = channels, .out = kClasses});
  return std::move(model).Build();
}

}  // namespace slimps
