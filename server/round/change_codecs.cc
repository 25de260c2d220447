// SPDX-License-Identifier: Apache-2.0
#include "server/round/change_codecs.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "compress/codec/phases.h"
#include "proto/base/status_macros.h"

namespace slimps {
namespace {

absl::Status Refuse(const std::string& spec, const std::string& why) {
  return absl::InvalidArgumentError(
      absl::StrCat("codec ", spec, " for the change of weights: ", why));
}

}  // namespace

absl::StatusOr<std::shared_ptr<const ChangeCodec>> ChangeCodecs::Find(const std::string& spec) {
  if (spec.empty()) return nullptr;
  const auto found = codecs_.find(spec);
  if (found != codecs_.end()) return found->second;
  absl::StatusOr<std::unique_ptr<Codec>> codec = MakeCodec(spec);
  if (!codec.ok()) return Refuse(spec, std::string(codec.status().message()));
  if ((*codec)->wants_momentum()) {
    return Refuse(spec, "expected one without momentum of its own; that belongs to gradients");
  }
  if ((*codec)->combine() == Combine::kMajority) {
    return Refuse(spec, "expected one that keeps magnitudes; a vote has none");
  }
  if (const PhasedCodec* phases = (*codec)->phases();
      phases != nullptr && !phases->encodes_alone()) {
    return Refuse(spec, "expected one without phases; no worker has a part in that change");
  }
  auto made = std::make_shared<ChangeCodec>();
  made->codec = *std::move(codec);
  made->by_blocks = dynamic_cast<const BlockCodec*>(made->codec.get());
  made->workspace = workspace_;
  made->clock = clock_;
  if (codecs_.size() >= kMaxKept) codecs_.clear();  // partitions share those in use
  codecs_.emplace(spec, made);
  return made;
}

}  // namespace slimps
