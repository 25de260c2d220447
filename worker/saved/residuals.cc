// SPDX-License-Identifier: Apache-2.0
#include "worker/saved/residuals.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>

#include "absl/strings/str_cat.h"
#include "proto/base/hash.h"
#include "proto/base/key.h"
#include "proto/base/partition_grid.h"
#include "proto/base/status_macros.h"
#include "worker/saved/checked_content.h"

namespace slimps {
namespace {

constexpr std::string_view kMagic = "SLPSRESI";
constexpr uint32_t kVersion = 1;
constexpr uint32_t kVersionWithPolicy = 2;

PartitionGrid GridOf(const TensorPlan& tensor) {
  return {.elements = tensor.elements, .partition_elements = tensor.partitions[0].elements};
}

// How the saved tensor was cut into partitions, and how this store cuts it.
struct Cut {
  PartitionGrid from, to;
};
// nullopt: another codec's memory, of no use here.
using Cuts = std::map<KeyId, std::optional<Cut>>;

absl::Status ReadKey(ContentReader& reader, const std::vector<const TensorPlan*>& tensors,
                     Cuts* cuts) {
  SLIMPS_ASSIGN_OR_RETURN(const std::string_view text, reader.TakeText("a key's name"));
  const std::string name(text);
  uint64_t elements = 0, partition_elements = 0;
  SLIMPS_RETURN_IF_ERROR(reader.Read(&elements, "a key's elements"));
  SLIMPS_RETURN_IF_ERROR(reader.Read(&partition_elements, "a key's partitions"));
  const auto tensor = std::ranges::find_if(
      tensors, [&](const TensorPlan* one) { return one->key.typed_name() == name; });
  const bool fits = tensor != tensors.end() && elements == (*tensor)->elements;
  if (!fits && Key::IsAuxiliary(name)) {
    cuts->emplace(HashText(name), std::nullopt);
    return absl::OkStatus();
  }
  if (tensor == tensors.end()) {
    return reader.Wrong(absl::StrCat("key ", name, ": expected a key of this store, got one that ",
                                     "was never initialised"));
  }
  if (!fits) {
    return reader.Wrong(absl::StrCat("key ", name, ": expected ", (*tensor)->elements,
                                     " elements, got ", elements));
  }
  const Cut cut{.from = {.elements = elements, .partition_elements = partition_elements},
                .to = GridOf(**tensor)};
  if (!cuts->emplace((*tensor)->key.id(), cut).second) {
    return reader.Wrong(absl::StrCat("key ", name, " comes twice"));
  }
  return absl::OkStatus();
}

}  // namespace

std::string BuildResiduals(const std::vector<const TensorPlan*>& tensors, float grad_scale,
                           const StateStore& states, std::string_view policy) {
  ContentBuilder content(kMagic);
  content.Add(policy.empty() ? kVersion : kVersionWithPolicy);
  content.Add(grad_scale);
  content.Add(static_cast<uint32_t>(tensors.size()));
  for (const TensorPlan* tensor : tensors) {
    const PartitionGrid grid = GridOf(*tensor);
    content.AddText(tensor->key.typed_name());
    content.Add(uint64_t{grid.elements});
    content.Add(uint64_t{grid.partition_elements});
  }
  if (!policy.empty()) content.AddText(policy);
  content.AddBytes(states.Serialize());
  return std::move(content).Seal();
}

absl::Status ParseResiduals(std::string_view content, const std::vector<const TensorPlan*>& tensors,
                            float grad_scale, StateStore* states, std::string* policy) {
  SLIMPS_ASSIGN_OR_RETURN(ContentReader reader, ContentReader::Open(content, kMagic, "residuals"));
  uint32_t version = 0, keys = 0;
  float scale = 0;
  SLIMPS_RETURN_IF_ERROR(reader.Read(&version, "version"));
  if (version != kVersion && version != kVersionWithPolicy) {
    return reader.Wrong(
        absl::StrCat("expected version ", kVersion, " or ", kVersionWithPolicy, ", got ", version));
  }
  SLIMPS_RETURN_IF_ERROR(reader.Read(&scale, "grad_scale"));
  if (scale != grad_scale) {
    return reader.Wrong(absl::StrCat("expected those of gradients times grad_scale ", grad_scale,
                                     ", got times ", scale));
  }
  SLIMPS_RETURN_IF_ERROR(reader.Read(&keys, "keys"));
  Cuts cuts;
  for (uint32_t i = 0; i < keys; ++i) SLIMPS_RETURN_IF_ERROR(ReadKey(reader, tensors, &cuts));
  std::string_view progress;
  if (version == kVersionWithPolicy) {
    SLIMPS_ASSIGN_OR_RETURN(progress, reader.TakeText("the policy"));
  }
  if (policy != nullptr) *policy = std::string(progress);
  SLIMPS_RETURN_IF_ERROR(states->Parse(reader.rest()));
  for (const KeyId key : states->Keys()) {
    const auto cut = cuts.find(key);
    if (cut == cuts.end()) {
      return reader.Wrong(absl::StrCat("states of key ", absl::Hex(key), ", which is not listed"));
    }
    if (!cut->second.has_value()) {
      states->Forget(key);
      continue;
    }
    SLIMPS_RETURN_IF_ERROR(states->Repartition(key, cut->second->from, cut->second->to));
  }
  return absl::OkStatus();
}

}  // namespace slimps
