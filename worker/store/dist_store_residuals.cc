// SPDX-License-Identifier: Apache-2.0
// DistStore: saves and loads what the codecs of this worker keep.
#include <utility>

#include "compress/codec/state/state_store.h"
#include "proto/base/out_of_memory.h"
#include "proto/base/status_macros.h"
#include "worker/saved/residuals.h"
#include "worker/store/dist_store.h"

namespace slimps {

absl::StatusOr<std::string> DistStore::SaveResiduals() {
  SLIMPS_RETURN_IF_ERROR(Wait());
  std::string content;
  SLIMPS_RETURN_IF_ERROR(push_->UseStates([&](StateStore& states) {
    const auto build = [&] {
      content = BuildResiduals(keys_.WithElements(), options_.grad_scale, states);
      return absl::OkStatus();
    };
    return OrOutOfMemory(build, "saving residuals");
  }));
  return content;
}

absl::Status DistStore::LoadResiduals(std::string_view content) {
  SLIMPS_RETURN_IF_ERROR(Wait());
  StateStore loaded;
  const auto parse = [&] {
    return ParseResiduals(content, keys_.WithElements(), options_.grad_scale, &loaded);
  };
  SLIMPS_RETURN_IF_ERROR(OrOutOfMemory(parse, "loading residuals"));
  return push_->UseStates([&](StateStore& states) {
    states.ReplaceBy(std::move(loaded));
    return absl::OkStatus();
  });
}

}  // namespace slimps
