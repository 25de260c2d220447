// SPDX-License-Identifier: Apache-2.0
#include "worker/trainer/networks.h"

#include <cmath>
#include <limits>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace slimps {

namespace {

namespace nn = torch::nn;
namespace F = torch::nn::functional;

constexpr int64_t kMlpHidden = 512;
constexpr int64_t kLenetHidden = 500;
constexpr int64_t kEmbedding = 64;
constexpr int64_t kLstmHidden = 256;
constexpr int64_t kTransformerWidth = 128;
constexpr int64_t kTransformerLayers = 4;
constexpr int64_t kTransformerHeads = 4;
// Two 5x5 convolutions and two poolings leave at least one pixel of an image with this side.
constexpr int64_t kLenetMinSide = 16;

int64_t Elements(const std::vector<int64_t>& shape) {
  int64_t elements = 1;
  for (const int64_t extent : shape) elements *= extent;
  return elements;
}

class Logistic final : public Network {
 public:
  Logistic(int64_t inputs, int64_t classes)
      : linear_(register_module("linear", nn::Linear(inputs, classes))) {}
  torch::Tensor forward(torch::Tensor x) override { return linear_(x.flatten(1)); }

 private:
  nn::Linear linear_;
};

class Mlp final : public Network {
 public:
  Mlp(int64_t inputs, int64_t classes)
      : hidden1_(register_module("hidden1", nn::Linear(inputs, kMlpHidden))),
        hidden2_(register_module("hidden2", nn::Linear(kMlpHidden, kMlpHidden))),
        output_(register_module("output", nn::Linear(kMlpHidden, classes))) {}
  torch::Tensor forward(torch::Tensor x) override {
    x = torch::relu(hidden1_(x.flatten(1)));
    return output_(torch::relu(hidden2_(x)));
  }

 private:
  nn::Linear hidden1_, hidden2_, output_;
};

class Lenet final : public Network {
 public:
  Lenet(const std::vector<int64_t>& shape, int64_t classes)
      : conv1_(register_module("conv1", nn::Conv2d(nn::Conv2dOptions(shape[0], 20, 5)))),
        conv2_(register_module("conv2", nn::Conv2d(nn::Conv2dOptions(20, 50, 5)))),
        hidden_(register_module(
            "hidden", nn::Linear(50 * Pooled(shape[1]) * Pooled(shape[2]), kLenetHidden))),
        output_(register_module("output", nn::Linear(kLenetHidden, classes))) {}
  torch::Tensor forward(torch::Tensor x) override {
    x = torch::max_pool2d(torch::relu(conv1_(x)), 2);
    x = torch::max_pool2d(torch::relu(conv2_(x)), 2);
    return output_(torch::relu(hidden_(x.flatten(1))));
  }

 private:
  static int64_t Pooled(int64_t side) { return ((side - 4) / 2 - 4) / 2; }
  nn::Conv2d conv1_, conv2_;
  nn::Linear hidden_, output_;
};

nn::Conv2d Conv3x3(int64_t in, int64_t out, int64_t stride) {
  return nn::Conv2d(nn::Conv2dOptions(in, out, 3).stride(stride).padding(1).bias(false));
}

class ResidualBlock final : public nn::Module {
 public:
  ResidualBlock(int64_t in, int64_t out, int64_t stride)
      : stride_(stride),
        added_(out - in),
        conv1_(register_module("conv1", Conv3x3(in, out, stride))),
        norm1_(register_module("norm1", nn::BatchNorm2d(out))),
        conv2_(register_module("conv2", Conv3x3(out, out, 1))),
        norm2_(register_module("norm2", nn::BatchNorm2d(out))) {}
  torch::Tensor forward(const torch::Tensor& x) {
    torch::Tensor y = norm2_(conv2_(torch::relu(norm1_(conv1_(x)))));
    return torch::relu(y + Shortcut(x));
  }

 private:
  // The paper's option A: every second pixel, and zeros for the added channels.
  torch::Tensor Shortcut(const torch::Tensor& x) const {
    if (stride_ == 1 && added_ == 0) return x;
    using torch::indexing::None;
    using torch::indexing::Slice;
    const torch::Tensor thinned =
        x.index({Slice(), Slice(), Slice(None, None, stride_), Slice(None, None, stride_)});
    return F::pad(thinned, F::PadFuncOptions({0, 0, 0, 0, added_ / 2, added_ - added_ / 2}));
  }

  int64_t stride_ = 1;
  int64_t added_ = 0;
  nn::Conv2d conv1_;
  nn::BatchNorm2d norm1_;
  nn::Conv2d conv2_;
  nn::BatchNorm2d norm2_;
};

class Resnet20 final : public Network {
 public:
  Resnet20(int64_t channels, int64_t classes)
      : conv_(register_module("conv", Conv3x3(channels, 16, 1))),
        norm_(register_module("norm", nn::BatchNorm2d(16))) {
    int64_t in = 16;
    for (int stage = 0; stage < 3; ++stage) {
      const int64_t out = int64_t{16} << stage;
      for (int block = 0; block < 3; ++block) {
        blocks_.push_back(register_module(
            absl::StrCat("stage", stage + 1, "_block", block + 1),
            std::make_shared<ResidualBlock>(in, out, stage > 0 && block == 0 ? 2 : 1)));
        in = out;
      }
    }
    output_ = register_module("output", nn::Linear(in, classes));
    for (auto& module : modules(/*include_self=*/false)) {
      if (auto* conv = module->as<nn::Conv2d>()) {
        nn::init::kaiming_normal_(conv->weight, 0, torch::kFanOut, torch::kReLU);
      }
    }
  }
  torch::Tensor forward(torch::Tensor x) override {
    // With channels last, convolutions of few channels take up to a third less time.
    x = torch::relu(norm_(conv_(x.contiguous(torch::MemoryFormat::ChannelsLast))));
    for (auto& block : blocks_) x = block->forward(x);
    return output_(x.mean({2, 3}));
  }

 private:
  nn::Conv2d conv_;
  nn::BatchNorm2d norm_;
  std::vector<std::shared_ptr<ResidualBlock>> blocks_;
  nn::Linear output_{nullptr};
};

class CharacterLstm final : public Network {
 public:
  explicit CharacterLstm(int64_t classes)
      : embedding_(register_module("embedding", nn::Embedding(classes, kEmbedding))),
        lstm_(register_module(
            "lstm", nn::LSTM(nn::LSTMOptions(kEmbedding, kLstmHidden).batch_first(true)))),
        output_(register_module("output", nn::Linear(kLstmHidden, classes))) {}
  torch::Tensor forward(torch::Tensor x) override {
    const torch::Tensor hidden = std::get<0>(lstm_(embedding_(x.to(torch::kInt64))));
    return output_(hidden.flatten(0, 1));
  }

 private:
  nn::Embedding embedding_;
  nn::LSTM lstm_;
  nn::Linear output_;
};

class CausalAttention final : public nn::Module {
 public:
  CausalAttention(int64_t width, int64_t heads)
      : heads_(heads),
        query_key_value_(register_module("query_key_value", nn::Linear(width, 3 * width))),
        output_(register_module("output", nn::Linear(width, width))) {}
  // `hidden` is {batch, window, width}. `future` is {window, window}: true where a character would
  // see a later one.
  torch::Tensor forward(const torch::Tensor& hidden, const torch::Tensor& future) {
    const int64_t batch = hidden.size(0), window = hidden.size(1), width = hidden.size(2);
    const torch::Tensor by_head = query_key_value_(hidden)
                                      .view({batch, window, 3, heads_, width / heads_})
                                      .permute({2, 0, 3, 1, 4});
    const double scale = 1 / std::sqrt(static_cast<double>(width / heads_));
    const torch::Tensor scores = by_head[0].matmul(by_head[1].transpose(2, 3)) * scale;
    constexpr double kNever = -std::numeric_limits<double>::infinity();
    const torch::Tensor seen = scores.masked_fill(future, kNever).softmax(-1).matmul(by_head[2]);
    return output_(seen.transpose(1, 2).reshape({batch, window, width}));
  }

 private:
  int64_t heads_ = 0;
  nn::Linear query_key_value_, output_;
};

class TransformerBlock final : public nn::Module {
 public:
  TransformerBlock(int64_t width, int64_t heads)
      : norm1_(register_module("norm1", nn::LayerNorm(nn::LayerNormOptions({width})))),
        attention_(register_module("attention", std::make_shared<CausalAttention>(width, heads))),
        norm2_(register_module("norm2", nn::LayerNorm(nn::LayerNormOptions({width})))),
        hidden_(register_module("hidden", nn::Linear(width, 4 * width))),
        output_(register_module("output", nn::Linear(4 * width, width))) {}
  torch::Tensor forward(const torch::Tensor& x, const torch::Tensor& future) {
    const torch::Tensor y = x + attention_->forward(norm1_(x), future);
    return y + output_(torch::gelu(hidden_(norm2_(y))));
  }

 private:
  nn::LayerNorm norm1_;
  std::shared_ptr<CausalAttention> attention_;
  nn::LayerNorm norm2_;
  nn::Linear hidden_, output_;
};

class CharacterTransformer final : public Network {
 public:
  CharacterTransformer(int64_t window, int64_t classes)
      : embedding_(register_module("embedding", nn::Embedding(classes, kTransformerWidth))),
        positions_(register_module("positions", nn::Embedding(window, kTransformerWidth))) {
    for (int64_t layer = 1; layer <= kTransformerLayers; ++layer) {
      blocks_.push_back(register_module(
          absl::StrCat("block", layer),
          std::make_shared<TransformerBlock>(kTransformerWidth, kTransformerHeads)));
    }
    norm_ = register_module("norm", nn::LayerNorm(nn::LayerNormOptions({kTransformerWidth})));
    output_ = register_module("output", nn::Linear(kTransformerWidth, classes));
    constexpr double kDeviation = 0.02;  // of GPT-2's first weights
    for (auto& module : modules(/*include_self=*/false)) {
      if (auto* linear = module->as<nn::Linear>()) {
        nn::init::normal_(linear->weight, 0, kDeviation);
        nn::init::zeros_(linear->bias);
      } else if (auto* embedding = module->as<nn::Embedding>()) {
        nn::init::normal_(embedding->weight, 0, kDeviation);
      }
    }
  }
  torch::Tensor forward(torch::Tensor x) override {
    const int64_t window = x.size(1);
    const torch::Tensor future = torch::ones({window, window}, torch::kBool).triu(1);
    x = embedding_(x.to(torch::kInt64)) + positions_(torch::arange(window));
    for (auto& block : blocks_) x = block->forward(x, future);
    return output_(norm_(x).flatten(0, 1));
  }

 private:
  nn::Embedding embedding_, positions_;
  std::vector<std::shared_ptr<TransformerBlock>> blocks_;
  nn::LayerNorm norm_{nullptr};
  nn::Linear output_{nullptr};
};

absl::Status DoesNotFit(std::string_view name, std::string_view expected,
                        const std::vector<int64_t>& shape) {
  return absl::InvalidArgumentError(absl::StrCat("model ", std::string(name), " expects ",
                                                 std::string(expected), ", got samples of shape {",
                                                 absl::StrJoin(shape, ", "), "}"));
}

}  // namespace

absl::StatusOr<std::shared_ptr<Network>> MakeNetwork(std::string_view name,
                                                     const std::vector<int64_t>& sample_shape,
                                                     int64_t classes) {
  const bool image = sample_shape.size() == 3;
  if (name == "lstm" || name == "char_transformer") {
    if (sample_shape.size() != 1) return DoesNotFit(name, "windows of text", sample_shape);
    if (name == "lstm") return std::make_shared<CharacterLstm>(classes);
    return std::make_shared<CharacterTransformer>(sample_shape[0], classes);
  }
  if (name != "logistic" && name != "mlp" && name != "lenet" && name != "resnet20") {
    return absl::InvalidArgumentError(absl::StrCat(
        "model '", std::string(name),
        "' is unknown; known: logistic, mlp, lenet, resnet20, lstm, char_transformer"));
  }
  if (!image) return DoesNotFit(name, "images", sample_shape);
  if (name == "logistic") return std::make_shared<Logistic>(Elements(sample_shape), classes);
  if (name == "mlp") return std::make_shared<Mlp>(Elements(sample_shape), classes);
  if (name == "resnet20") return std::make_shared<Resnet20>(sample_shape[0], classes);
  if (sample_shape[1] < kLenetMinSide || sample_shape[2] < kLenetMinSide) {
    return DoesNotFit(name, "images of at least 16x16", sample_shape);
  }
  return std::make_shared<Lenet>(sample_shape, classes);
}

}  // namespace slimps
