// SPDX-License-Identifier: Apache-2.0
#include "worker/store/auxiliary_tensors.h"

#include <algorithm>
#include <iterator>
#include <span>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "compress/codec/phases.h"
#include "proto/base/key.h"
#include "proto/base/status_macros.h"
#include "proto/partition_limits.h"

namespace slimps {

AuxiliaryTensors::AuxiliaryTensors(const Codec& codec, const std::vector<InitTensor>& tensors,
                                   const DeclareOptions& options)
    : all_(tensors), of_tensors_(tensors.size()) {
  const PhasedCodec* const phases = codec.phases();
  if (phases == nullptr) return;
  const PartitionWishes wishes = {.servers = options.num_servers,
                                  .usual_elements = options.partition_bytes / sizeof(float),
                                  .max_elements = kMaxPartitionBytes / sizeof(float)};
  size_t longest = 0;
  for (size_t i = 0; i < tensors.size(); ++i) {
    of_tensors_[i].first = all_.size();
    const std::vector<AuxiliaryShape> keys = phases->AuxiliaryKeys(tensors[i].shape);
    if (keys.empty()) continue;
    all_[i].partition_elements = phases->PartitionElements(tensors[i].shape, wishes);
    for (const AuxiliaryShape& key : keys) {
      of_tensors_[i].combines.push_back(key.combine);
      all_.push_back({.key = Key::Auxiliary(key.name, tensors[i].key),
                      .shape = {static_cast<int64_t>(key.rows), static_cast<int64_t>(key.columns)},
                      .value = {},
                      .partition_elements = key.elements()});
      longest = std::max(longest, key.elements());
    }
  }
  zeros_.resize(longest);
}

std::vector<std::vector<TensorPlan>> AuxiliaryTensors::Take(std::vector<TensorPlan>* plans) const {
  std::vector<std::vector<TensorPlan>> keys(of_tensors_.size());
  for (size_t i = 0; i < keys.size(); ++i) {
    for (size_t phase = 0; phase < of_tensors_[i].combines.size(); ++phase) {
      keys[i].push_back(std::move((*plans)[of_tensors_[i].first + phase]));
    }
  }
  plans->erase(plans->begin() + static_cast<std::ptrdiff_t>(of_tensors_.size()), plans->end());
  return keys;
}

absl::Status AuxiliaryTensors::SendValues(const std::vector<std::vector<TensorPlan>>& keys,
                                          const InitialValueOptions& options,
                                          Courier* courier) const {
  for (const Combine combine : {Combine::kSum, Combine::kMaximum, Combine::kOrthogonalise}) {
    std::vector<InitTensor> values;
    std::vector<TensorPlan> plans;
    for (size_t i = 0; i < keys.size(); ++i) {
      for (size_t phase = 0; phase < keys[i].size(); ++phase) {
        if (of_tensors_[i].combines[phase] != combine) continue;
        const TensorPlan& plan = keys[i][phase];
        plans.push_back(plan);
        values.push_back(all_[of_tensors_[i].first + phase]);
        values.back().value = std::span(zeros_).first(plan.elements);
      }
    }
    InitialValueOptions those = options;
    those.combine = combine;
    those.auxiliary = true;
    SLIMPS_RETURN_IF_ERROR(SendInitialValues(values, plans, those, courier));
  }
  return absl::OkStatus();
}

absl::Status CheckTakesSome(const Codec& codec, const std::vector<const TensorPlan*>& tensors) {
  const TensorPlan* largest = nullptr;
  for (const TensorPlan* tensor : tensors) {
    const auto& shape = tensor->info.shape();
    if (codec.Takes({shape.data(), static_cast<size_t>(shape.size())})) return absl::OkStatus();
    if (shape.size() < 2 || (largest != nullptr && largest->elements >= tensor->elements)) continue;
    largest = tensor;
  }
  if (largest == nullptr) return absl::OkStatus();
  const auto rows = static_cast<size_t>(largest->info.shape(0));
  return absl::InvalidArgumentError(absl::StrCat(
      "codec ", codec.spec().ToString(), " takes no tensor: even for the largest matrix, key ",
      largest->key.typed_name(), " with ", rows, " rows of ", largest->elements / rows,
      ", its factors have more than half of the numbers; expected a smaller rank (or "
      "s), or another codec"));
}

}  // namespace slimps
