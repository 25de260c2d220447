// SPDX-License-Identifier: Apache-2.0
#include "worker/plan/codec_table.h"

#include <utility>

#include "proto/base/status_macros.h"

namespace slimps {

absl::StatusOr<const Codec*> CodecTable::Find(const std::string& spec) {
  auto found = codecs_.find(spec);
  if (found == codecs_.end()) {
    SLIMPS_ASSIGN_OR_RETURN(std::unique_ptr<Codec> codec, MakeCodec(spec));
    found = codecs_.emplace(spec, std::move(codec)).first;
  }
  return found->second.get();
}

absl::Status CodecTable::FindAll(const wire::CodecMap& map) {
  SLIMPS_RETURN_IF_ERROR(Find(map.codec()).status());
  SLIMPS_RETURN_IF_ERROR(Find(map.codec_below()).status());
  for (const wire::CodecEntry& entry : map.entries()) {
    SLIMPS_RETURN_IF_ERROR(Find(entry.codec()).status());
    for (const wire::CodecStep& step : entry.steps()) {
      SLIMPS_RETURN_IF_ERROR(Find(step.codec()).status());
    }
  }
  return absl::OkStatus();
}

}  // namespace slimps
