// SPDX-License-Identifier: Apache-2.0
#include <array>

#include "compress/policy/controllers/controller.h"
#include "compress/policy/controllers/policies.h"
#include "compress/spec/names.h"
#include "compress/spec/spec_text.h"
#include "proto/base/status_macros.h"

namespace slimps {
namespace {

struct Entry {
  std::string_view name;
  absl::StatusOr<std::unique_ptr<Controller>> (*make)(const SpecText&);
};

constexpr std::array<Entry, 8> kEntries = {{
    {"uniform", MakeUniform},
    {"kmeans", MakeClusters},
    {"global_topk", MakeGlobalTopK},
    {"accordion", MakeAccordion},
    {"gravac", MakeGravac},
    {"lgreco", MakeLgreco},
    {"lgreco_accordion", MakeLgrecoAccordion},
    {"joint", MakeJoint},
}};

}  // namespace

absl::StatusOr<std::unique_ptr<Controller>> MakeController(std::string_view text) {
  SLIMPS_ASSIGN_OR_RETURN(const SpecText spec, ParseSpecText("policy", text));
  for (const Entry& entry : kEntries) {
    if (entry.name == spec.name) return entry.make(spec);
  }
  return UnknownName("policy", spec.name, ControllerNames());
}

std::vector<std::string_view> ControllerNames() {
  std::vector<std::string_view> names;
  for (const Entry& entry : kEntries) names.push_back(entry.name);
  return names;
}

}  // namespace slimps
