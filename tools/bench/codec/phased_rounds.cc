// SPDX-License-Identifier: Apache-2.0
#include "tools/bench/codec/phased_rounds.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "compress/codec/lowrank/orthonormal.h"
#include "proto/base/status_macros.h"

namespace slimps {

PhasedRounds::PhasedRounds(std::unique_ptr<Codec> codec, std::array<int64_t, 2> shape,
                           BenchData& data)
    : codec_(std::move(codec)),
      shape_(shape),
      elements_(static_cast<size_t>(shape[0] * shape[1])),
      keys_(codec_->phases()->AuxiliaryKeys(shape_)),
      data_(data) {
  for (const AuxiliaryShape& key : keys_) contributed_.emplace_back(key.elements());
  if (codec_->wants_residual()) {
    residual_ = data.Floats(BenchData::kResidual, elements_);
    std::ranges::fill(residual_, 0.0f);
  }
  if (codec_->phases()->wants_memory() && !keys_.empty()) memory_.resize(keys_.back().elements());
}

absl::StatusOr<std::unique_ptr<PhasedRounds>> PhasedRounds::Create(const CodecSetting& setting,
                                                                   const Kernels& kernels,
                                                                   size_t elements,
                                                                   const RowGrid& grid,
                                                                   BenchData& data) {
  SLIMPS_ASSIGN_OR_RETURN(auto codec, MakeCodec(setting, kernels));
  const size_t columns = grid.elements == 0 ? 1 : grid.row_elements;
  if (codec->phases() == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat("codec ", setting.label, " has no phases"));
  }
  std::unique_ptr<PhasedRounds> rounds(new PhasedRounds(
      std::move(codec), {static_cast<int64_t>(elements / columns), static_cast<int64_t>(columns)},
      data));
  if (rounds->keys_.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("codec ", setting.label, " has no phases for ", rounds->shape_[0], " rows of ",
                     columns, " elements; expected larger matrices (--matrix)"));
  }
  return rounds;
}

absl::Status PhasedRounds::Run() {
  const uint64_t round = ++round_;
  const BenchData::Gradient gradient = data_.OfRound(elements_, round);
  const PhasedPart part = {
      .elements = elements_, .gradient = gradient.values, .residual = residual_};
  const std::unique_ptr<PhasedRun> run =
      codec_->phases()->BeginExchange({.shape = shape_,
                                       .parts = {&part, 1},
                                       .memory = memory_,
                                       .grad_scale = gradient.sign,
                                       .context = {.key = 1, .round = round}});
  const uint32_t alone[] = {0};
  for (size_t phase = 0; phase < keys_.size(); ++phase) {
    std::vector<float>& values = contributed_[phase];
    SLIMPS_RETURN_IF_ERROR(run->Contribute(phase, values));
    if (keys_[phase].combine == Combine::kOrthogonalise) {
      Orthonormalise(keys_[phase].rows, keys_[phase].columns, round, values);
    }
    SLIMPS_RETURN_IF_ERROR(run->Take(phase, values, alone));
  }
  return absl::OkStatus();
}

size_t PhasedRounds::contributed_bytes() const {
  size_t elements = 0;
  for (const AuxiliaryShape& key : keys_) elements += key.elements();
  return elements * sizeof(float);
}

}  // namespace slimps
