// SPDX-License-Identifier: Apache-2.0
#include "tools/bench/cluster/gradient_pool.h"

#include <algorithm>
#include <numeric>

#include "tools/bench/models/gradient_maker.h"

namespace slimps {
namespace {

constexpr size_t kMostPlaces = 64;
constexpr size_t kLine = 16;  // floats of a cache line

}  // namespace

GradientPool::GradientPool(const ModelShape& model, uint64_t worker) {
  const GradientMaker maker(worker);
  for (const ModelTensor& shape : model.tensors) {
    Tensor& tensor = tensors_.emplace_back();
    tensor.elements = shape.elements();
    const size_t rows_of_step = kLine / std::gcd(kLine, shape.cols());
    tensor.step = rows_of_step * shape.cols();
    tensor.places = std::clamp(shape.rows() / rows_of_step, size_t{1}, kMostPlaces);
    const size_t again = (tensor.places - 1) * tensor.step;
    tensor.values = AlignedBuffer::OfFloats(tensor.elements + again);
    const std::span<float> all = tensor.values.floats();
    maker.Make(shape.gradient, shape.rows(), shape.cols(), tensors_.size(),
               all.first(tensor.elements));
    std::copy_n(all.begin(), again, all.begin() + static_cast<ptrdiff_t>(tensor.elements));
  }
}

std::span<const float> GradientPool::Of(size_t tensor, uint64_t round) const {
  const Tensor& found = tensors_[tensor];
  return found.values.floats().subspan(round % found.places * found.step, found.elements);
}

}  // namespace slimps
