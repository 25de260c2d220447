// SPDX-License-Identifier: Apache-2.0
#include "worker/saved/optimizer_states.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/base/status_macros.h"
#include "proto/limits.h"
#include "worker/saved/checked_content.h"

namespace slimps {
namespace {

constexpr std::string_view kMagic = "SLPSOPTS";
constexpr uint32_t kVersion = 1;

absl::Status ReadKey(ContentReader& reader, uint32_t tensors, OptimizerStates* states) {
  SLIMPS_ASSIGN_OR_RETURN(const std::string_view name, reader.TakeText("a key's name"));
  KeyState key;
  SLIMPS_RETURN_IF_ERROR(reader.Read(&key.elements, "a key's elements"));
  SLIMPS_RETURN_IF_ERROR(reader.Read(&key.updates, "a key's updates"));
  if (key.elements > kDefaultLimits.max_elements) {
    return reader.Wrong(absl::StrCat("key ", std::string(name), ": expected at most ",
                                     kDefaultLimits.max_elements, " elements, got ", key.elements));
  }
  if (key.updates > kMaxUpdates) {
    return reader.Wrong(absl::StrCat("key ", std::string(name), ": expected at most ", kMaxUpdates,
                                     " updates, got ", key.updates));
  }
  for (uint32_t i = 0; i < tensors; ++i) {
    SLIMPS_ASSIGN_OR_RETURN(const std::string_view bytes,
                            reader.Take(key.elements * sizeof(float), "a key's state"));
    // Take has found the bytes, so a file cannot make this allocate more than it holds.
    std::vector<float>& values = key.tensors.emplace_back(key.elements);
    if (!bytes.empty()) std::memcpy(values.data(), bytes.data(), bytes.size());
    const auto bad = std::ranges::find_if(values, [](float x) { return !std::isfinite(x); });
    if (bad != values.end()) {
      return reader.Wrong(absl::StrCat("key ", std::string(name), ": element ",
                                       bad - values.begin(), " of state tensor ", i + 1, " is ",
                                       *bad, "; expected finite values"));
    }
  }
  if (!states->keys.emplace(name, std::move(key)).second) {
    return reader.Wrong(absl::StrCat("key ", std::string(name), " comes twice"));
  }
  return absl::OkStatus();
}

}  // namespace

std::string BuildOptimizerStates(const OptimizerStates& states) {
  size_t bytes = kMagic.size() + 4 * sizeof(uint32_t) + sizeof(uint64_t);
  for (const auto& [name, key] : states.keys) {
    bytes += sizeof(uint32_t) + name.size() + 2 * sizeof(uint64_t);
    for (const std::vector<float>& tensor : key.tensors) bytes += tensor.size() * sizeof(float);
  }
  ContentBuilder content(kMagic, bytes);
  content.Add(kVersion);
  content.Add(static_cast<uint32_t>(states.kind));
  content.Add(states.tensors);
  content.Add(static_cast<uint32_t>(states.keys.size()));
  for (const auto& [name, key] : states.keys) {
    content.AddText(name);
    content.Add(key.elements);
    content.Add(key.updates);
    for (const std::vector<float>& tensor : key.tensors) {
      content.AddBytes(
          {reinterpret_cast<const char*>(tensor.data()), tensor.size() * sizeof(float)});
    }
  }
  return std::move(content).Seal();
}

absl::StatusOr<OptimizerStates> ParseOptimizerStates(std::string_view content) {
  SLIMPS_ASSIGN_OR_RETURN(ContentReader reader,
                          ContentReader::Open(content, kMagic, "optimizer states"));
  uint32_t version = 0, kind = 0, keys = 0;
  OptimizerStates states;
  SLIMPS_RETURN_IF_ERROR(reader.Read(&version, "version"));
  if (version != kVersion) {
    return reader.Wrong(absl::StrCat("expected version ", kVersion, ", got ", version));
  }
  SLIMPS_RETURN_IF_ERROR(reader.Read(&kind, "optimizer"));
  SLIMPS_RETURN_IF_ERROR(reader.Read(&states.tensors, "tensors"));
  SLIMPS_RETURN_IF_ERROR(reader.Read(&keys, "keys"));
  if (kind > static_cast<uint32_t>(wire::OptimizerSpec::Kind_MAX) ||
      !wire::OptimizerSpec::Kind_IsValid(static_cast<int>(kind)) ||
      states.tensors > kMaxStateTensors) {
    return reader.Wrong(absl::StrCat("expected an optimizer with up to ", kMaxStateTensors,
                                     " state tensors, got kind ", kind, " with ", states.tensors));
  }
  states.kind = static_cast<wire::OptimizerSpec::Kind>(kind);
  for (uint32_t i = 0; i < keys; ++i) {
    SLIMPS_RETURN_IF_ERROR(ReadKey(reader, states.tensors, &states));
  }
  if (!reader.rest().empty()) {
    return reader.Wrong(absl::StrCat(reader.rest().size(), " bytes are left after the last key"));
  }
  return states;
}

absl::Status CheckKeys(const OptimizerStates& states,
                       const std::vector<const TensorPlan*>& tensors) {
  for (const TensorPlan* tensor : tensors) {
    const auto found = states.keys.find(tensor->key.typed_name());
    if (found == states.keys.end()) {
      return absl::InvalidArgumentError(absl::StrCat("loading optimizer states: key ",
                                                     tensor->key.typed_name(), " is not in them"));
    }
    if (found->second.elements != tensor->elements) {
      return absl::InvalidArgumentError(
          absl::StrCat("loading optimizer states: key ", tensor->key.typed_name(), ": expected ",
                       tensor->elements, " elements, got ", found->second.elements));
    }
  }
  if (states.keys.size() == tensors.size()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("loading optimizer states: expected those of ",
                                                 tensors.size(), " keys, got ",
                                                 states.keys.size()));
}

absl::Status CheckOptimizer(const OptimizerStates& states, wire::OptimizerSpec::Kind kind,
                            uint32_t tensors) {
  if (states.kind == kind && states.tensors == tensors) return absl::OkStatus();
  // Its state says whether the variance is frozen.
  if (states.kind == kind && kind == wire::OptimizerSpec::ONEBIT_ADAM && states.tensors >= 2) {
    return absl::OkStatus();
  }
  return absl::FailedPreconditionError(
      absl::StrCat("loading optimizer states: expected those of ", DescribeOptimizer(kind, tensors),
                   ", as the store has it, got ", DescribeOptimizer(states.kind, states.tensors)));
}

std::string DescribeOptimizer(wire::OptimizerSpec::Kind kind, uint32_t tensors) {
  return absl::StrCat(wire::OptimizerSpec::Kind_Name(kind), " with ", tensors, " state tensors");
}

}  // namespace slimps
