// SPDX-License-Identifier: Apache-2.0
// LocalStore: row-sparse pushes, and pulls of chosen rows.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/base/out_of_memory.h"
#include "proto/base/status_macros.h"
#include "worker/local/local_store.h"
#include "worker/tensor/row_sparse.h"

namespace slimps {
namespace {

std::vector<float> CopyOf(std::span<const float> values) { return {values.begin(), values.end()}; }

// Restores all rows of `after` except `touched` (rising) to their values in `before`. An empty
// `before` stands for zeros.
void PutBack(std::span<const float> before, std::span<const int64_t> touched, size_t row_elements,
             std::span<float> after) {
  if (after.empty()) return;  // the optimizer does not have this moment
  size_t begin = 0;
  for (size_t i = 0; i <= touched.size(); ++i) {
    const size_t end =
        i < touched.size() ? static_cast<size_t>(touched[i]) * row_elements : after.size();
    const auto gap = after.subspan(begin, end - begin);
    if (before.empty()) {
      std::ranges::fill(gap, 0.0f);
    } else {
      std::ranges::copy(before.subspan(begin, gap.size()), gap.begin());
    }
    begin = end + row_elements;
  }
}

}  // namespace

absl::Status LocalStore::PushRowSparse(const Key& key, std::span<const int64_t> rows,
                                       std::span<const float> values, int /*priority*/) {
  SLIMPS_RETURN_IF_ERROR(FirstError());
  SLIMPS_ASSIGN_OR_RETURN(const TensorPlan* plan, keys_.Find(key));
  SLIMPS_ASSIGN_OR_RETURN(const InForce in_force, Find(key, plan->elements, "push of rows"));
  if (in_force.compressor != nullptr) {
    return absl::FailedPreconditionError(absl::StrCat(
        "push of rows of key ", key.typed_name(), ": expected gradient compression none, got ",
        in_force.compressor->codec().spec().ToString(),
        ", whose residuals belong to whole tensors"));
  }
  const auto push = [&]() -> absl::Status {
    SLIMPS_ASSIGN_OR_RETURN(const SummedRows sums,
                            SumByRow(*plan, rows, values, options_.grad_scale));
    const size_t row_elements = RowElements(*plan);
    std::vector<float> sum(plan->elements);
    for (size_t i = 0; i < sums.rows.size(); ++i) {
      std::copy_n(sums.values.begin() + static_cast<std::ptrdiff_t>(i * row_elements), row_elements,
                  sum.begin() + sums.rows[i] * static_cast<std::ptrdiff_t>(row_elements));
    }
    Tensor& tensor = *in_force.tensor;
    MutexLock lock(&tensor.mutex);
    // An updater gets the whole sum, and without an optimizer the whole sum replaces the value.
    // Only an optimizer steps the pushed rows alone.
    if (in_force.rule->updater != nullptr ||
        in_force.rule->spec.kind() == wire::OptimizerSpec::NONE) {
      Apply(in_force, sum);
      return absl::OkStatus();
    }
    ApplyToRows(in_force, sum, sums.rows, row_elements);
    return absl::OkStatus();
  };
  return OrOutOfMemory(push, "push of rows", key.typed_name());
}

void LocalStore::ApplyToRows(const InForce& in_force, std::span<const float> sum,
                             std::span<const int64_t> rows, size_t row_elements) {
  // The optimizer steps the whole tensor, and the untouched rows are put back afterwards. A moment
  // that does not exist yet, or that is of another optimizer, begins with zeros.
  Tensor& tensor = *in_force.tensor;
  const bool goes_on = tensor.state_of == in_force.rule->spec.kind();
  const std::vector<float> weights = CopyOf(tensor.weights.floats());
  const auto moment = [&](AlignedBuffer& buffer) {
    return goes_on && buffer.size() > 0 ? CopyOf(buffer.floats()) : std::vector<float>();
  };
  const std::vector<float> first = moment(tensor.state.first_moment);
  const std::vector<float> second = moment(tensor.state.second_moment);
  Apply(in_force, sum);
  PutBack(weights, rows, row_elements, tensor.weights.floats());
  PutBack(first, rows, row_elements, tensor.state.first_moment.floats());
  PutBack(second, rows, row_elements, tensor.state.second_moment.floats());
}

absl::Status LocalStore::PullRows(const Key& key, std::span<const int64_t> row_ids,
                                  std::vector<int64_t>* rows, std::vector<float>* values,
                                  int priority) {
  SLIMPS_RETURN_IF_ERROR(FirstError());
  SLIMPS_ASSIGN_OR_RETURN(const TensorPlan* plan, keys_.Find(key));
  const auto pull = [&]() -> absl::Status {
    SLIMPS_ASSIGN_OR_RETURN(std::vector<int64_t> unique, UniqueRows(*plan, row_ids));
    std::vector<float> whole(plan->elements);
    SLIMPS_RETURN_IF_ERROR(Pull(key, whole, priority));
    const size_t row_elements = RowElements(*plan);
    std::vector<float> found;
    found.reserve(unique.size() * row_elements);
    for (const int64_t row : unique) {
      const auto at = whole.begin() + row * static_cast<std::ptrdiff_t>(row_elements);
      found.insert(found.end(), at, at + static_cast<std::ptrdiff_t>(row_elements));
    }
    *rows = std::move(unique);
    *values = std::move(found);
    return absl::OkStatus();
  };
  return OrOutOfMemory(pull, "pull of rows", key.typed_name());
}

}  // namespace slimps
