// SPDX-License-Identifier: Apache-2.0
#include "worker/store/auxiliary_tensors.h"

#include <algorithm>
#include <iterator>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/base/key.h"
#include "proto/base/status_macros.h"
#include "proto/partition_limits.h"

namespace slimps {

AuxiliaryTensors::AuxiliaryTensors(const std::vector<std::vector<const Codec*>>& codecs,
                                   const std::vector<InitTensor>& tensors,
                                   const DeclareOptions& options)
    : all_(tensors), of_tensors_(tensors.size()) {
  const PartitionWishes wishes = {.servers = options.num_servers,
                                  .usual_elements = options.partition_bytes / sizeof(float),
                                  .max_elements = kMaxPartitionBytes / sizeof(float)};
  size_t longest = 0;
  for (size_t i = 0; i < tensors.size(); ++i) {
    std::vector<OneKey>& keys = of_tensors_[i].keys;
    of_tensors_[i].first = all_.size();
    for (const Codec* codec : codecs[i]) {
      const PhasedCodec* const phases = codec->phases();
      if (phases == nullptr || !codec->Takes(tensors[i].shape)) continue;
      if (keys.empty()) {
        all_[i].partition_elements = phases->PartitionElements(tensors[i].shape, wishes);
      }
      AddKeys(*phases, tensors[i].shape, &keys);
    }
    for (const OneKey& key : keys) {
      const AuxiliaryShape& shape = key.shape;
      all_.push_back(
          {.key = Key::Auxiliary(shape.name, tensors[i].key),
           .shape = {static_cast<int64_t>(shape.rows), static_cast<int64_t>(shape.columns)},
           .value = {},
           .partition_elements = shape.elements()});
      longest = std::max(longest, shape.elements());
    }
  }
  zeros_.resize(longest);
}

void AuxiliaryTensors::AddKeys(const PhasedCodec& phases, std::span<const int64_t> shape,
                               std::vector<OneKey>* keys) {
  const std::vector<AuxiliaryShape> wanted = phases.AuxiliaryKeys(shape);
  for (const AuxiliaryShape& one : wanted) {
    auto found =
        std::ranges::find(*keys, one.name, [](const OneKey& key) { return key.shape.name; });
    if (found == keys->end()) found = keys->insert(found, {.shape = one});
    found->shape.rows = std::max(found->shape.rows, one.rows);
    found->keeps_memory |= phases.wants_memory() && &one == &wanted.back();
  }
}

std::vector<std::vector<PhaseKey>> AuxiliaryTensors::Take(std::vector<TensorPlan>* plans) const {
  std::vector<std::vector<PhaseKey>> keys(of_tensors_.size());
  for (size_t i = 0; i < keys.size(); ++i) {
    size_t at = of_tensors_[i].first;
    for (const OneKey& key : of_tensors_[i].keys) {
      keys[i].push_back({.plan = std::move((*plans)[at++]), .keeps_memory = key.keeps_memory});
    }
  }
  plans->erase(plans->begin() + static_cast<std::ptrdiff_t>(of_tensors_.size()), plans->end());
  return keys;
}

absl::Status AuxiliaryTensors::SendValues(const std::vector<std::vector<PhaseKey>>& keys,
                                          const InitialValueOptions& options,
                                          Courier* courier) const {
  for (const Combine combine : {Combine::kSum, Combine::kMaximum, Combine::kOrthogonalise}) {
    std::vector<InitTensor> values;
    std::vector<TensorPlan> plans;
    for (size_t i = 0; i < keys.size(); ++i) {
      for (size_t k = 0; k < keys[i].size(); ++k) {
        if (of_tensors_[i].keys[k].shape.combine != combine) continue;
        const TensorPlan& plan = keys[i][k].plan;
        plans.push_back(plan);
        values.push_back(all_[of_tensors_[i].first + k]);
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

}  // namespace slimps
