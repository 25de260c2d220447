// SPDX-License-Identifier: Apache-2.0
// A Model over a libtorch network. Gradients leave through hooks behind autograd's accumulators.
// Each hook runs once per backward, when its parameter's gradient is final, while earlier layers
// are still computing.
#include <dlfcn.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <exception>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "proto/base/status_macros.h"
#include "worker/trainer/model.h"
#include "worker/trainer/networks.h"

namespace slimps {

namespace {

std::span<float> Floats(const torch::Tensor& tensor) {
  return {tensor.data_ptr<float>(), static_cast<size_t>(tensor.numel())};
}

wire::LayerKind KindOf(const torch::nn::Module& module) {
  if (module.as<torch::nn::Conv2d>() != nullptr) return wire::CONVOLUTION;
  if (module.as<torch::nn::Linear>() != nullptr) return wire::DENSE;
  if (module.as<torch::nn::LSTM>() != nullptr) return wire::RECURRENT;
  if (module.as<torch::nn::Embedding>() != nullptr) return wire::EMBEDDING;
  if (module.as<torch::nn::BatchNorm2d>() != nullptr) return wire::NORMALISATION;
  if (module.as<torch::nn::LayerNorm>() != nullptr) return wire::NORMALISATION;
  return wire::OTHER;
}

class AfterAccumulation final : public torch::autograd::FunctionPostHook {
 public:
  explicit AfterAccumulation(std::function<void()> call) : call_(std::move(call)) {}
  torch::autograd::variable_list operator()(const torch::autograd::variable_list& outputs,
                                            const torch::autograd::variable_list&) override {
    call_();
    return outputs;
  }

 private:
  std::function<void()> call_;
};

// Owned by the training thread.
class TorchModel final : public Model {
 public:
  TorchModel(std::shared_ptr<Network> network, std::vector<int64_t> input_shape)
      : network_(std::move(network)), input_shape_(std::move(input_shape)) {
    for (const auto& module : network_->named_modules()) {
      for (const auto& item : module.value()->named_parameters(/*recurse=*/false)) {
        AddParameter(module.key().empty() ? item.key() : module.key() + "." + item.key(),
                     KindOf(*module.value()), item.value());
      }
    }
  }

  std::span<const Parameter> parameters() const override { return parameters_; }

  absl::StatusOr<LossSums> ForwardBackward(const Minibatch& batch,
                                           const GradientReady& ready) override {
    return Guarded([&] {
      network_->train();
      // With an undefined gradient, the accumulator takes backward's own tensor instead of adding
      // to an old one.
      for (torch::Tensor& tensor : tensors_) tensor.mutable_grad() = torch::Tensor();
      const torch::Tensor logits = network_->forward(Input(batch));
      const torch::Tensor labels = Labels(batch);
      const torch::Tensor loss = torch::nn::functional::cross_entropy(logits, labels);
      ready_ = &ready;
      loss.backward();
      ready_ = nullptr;
      return Sums(logits.detach(), labels, loss.item<double>() * labels.numel());
    });
  }

  absl::StatusOr<LossSums> Evaluate(const Minibatch& batch) override {
    return Guarded([&] {
      const torch::NoGradGuard no_gradients;
      network_->eval();
      const torch::Tensor logits = network_->forward(Input(batch));
      const torch::Tensor labels = Labels(batch);
      namespace F = torch::nn::functional;
      const auto sum = F::CrossEntropyFuncOptions().reduction(torch::kSum);
      return Sums(logits, labels, F::cross_entropy(logits, labels, sum).item<double>());
    });
  }

 private:
  void AddParameter(std::string name, wire::LayerKind layer, const torch::Tensor& tensor) {
    const size_t index = tensors_.size();
    tensors_.push_back(tensor);
    parameters_.push_back({.name = std::move(name),
                           .shape = tensor.sizes().vec(),
                           .layer = layer,
                           .values = Floats(tensor)});
    // A tensor holds its accumulator only weakly, and the hook is destroyed with the accumulator.
    // So the model keeps it.
    accumulators_.push_back(torch::autograd::impl::grad_accumulator(tensor));
    accumulators_.back()->add_post_hook(
        std::make_unique<AfterAccumulation>([this, index] { GradientDone(index); }));
  }

  void GradientDone(size_t index) {
    torch::Tensor& gradient = tensors_[index].mutable_grad();
    if (ready_ == nullptr || !gradient.defined()) return;
    gradient = gradient.contiguous();
    (*ready_)(index, Floats(gradient));
  }

  torch::Tensor Input(const Minibatch& batch) const {
    std::vector<int64_t> shape = {static_cast<int64_t>(batch.samples)};
    shape.insert(shape.end(), input_shape_.begin(), input_shape_.end());
    return torch::from_blob(const_cast<float*>(batch.values.data()), shape, torch::kFloat32);
  }

  static torch::Tensor Labels(const Minibatch& batch) {
    return torch::from_blob(const_cast<int64_t*>(batch.labels.data()),
                            {static_cast<int64_t>(batch.labels.size())}, torch::kInt64);
  }

  static LossSums Sums(const torch::Tensor& logits, const torch::Tensor& labels, double loss) {
    LossSums sums;
    sums.loss = loss;
    sums.labels = static_cast<size_t>(labels.numel());
    sums.correct = static_cast<size_t>(logits.argmax(1).eq(labels).sum().item<int64_t>());
    return sums;
  }

  // Runs `body` and turns libtorch's exceptions into a Status.
  template <typename Body>
  absl::StatusOr<LossSums> Guarded(Body body) {
    try {
      return body();
    } catch (const std::exception& error) {
      ready_ = nullptr;
      return absl::InternalError(absl::StrCat("libtorch failed: ", error.what()));
    }
  }

  const std::shared_ptr<Network> network_;
  const std::vector<int64_t> input_shape_;
  std::vector<torch::Tensor> tensors_;
  std::vector<Parameter> parameters_;
  std::vector<std::shared_ptr<torch::autograd::Node>> accumulators_;
  const GradientReady* ready_ = nullptr;  // set while backward runs
};

}  // namespace

absl::StatusOr<std::unique_ptr<Model>> MakeModel(std::string_view name, const Dataset& data,
                                                 uint64_t seed) {
  try {
    torch::manual_seed(seed);
    SLIMPS_ASSIGN_OR_RETURN(std::shared_ptr<Network> network,
                            MakeNetwork(name, data.sample_shape, data.classes));
    return std::make_unique<TorchModel>(std::move(network), data.sample_shape);
  } catch (const std::exception& error) {
    return absl::InternalError(
        absl::StrCat("libtorch cannot make model ", std::string(name), ": ", error.what()));
  }
}

void SetComputeThreads(int threads) {
  torch::set_num_threads(threads);
  // OpenBLAS' pthread build keeps a pool of its own, which torch does not know about. It is there
  // only if Debian's libblas.so.3 is OpenBLAS, so the symbol is looked up instead of linked.
  using SetThreads = void (*)(int);
  if (auto* set = reinterpret_cast<SetThreads>(dlsym(RTLD_DEFAULT, "openblas_set_num_threads"))) {
    set(threads);
  }
}

}  // namespace slimps
