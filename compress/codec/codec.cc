// SPDX-License-Identifier: Apache-2.0
#include "compress/codec/codec.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "compress/codec/encode_run.h"
#include "compress/codec/momentum_input.h"
#include "compress/format/levels.h"
#include "compress/kernels/kernels.h"
#include "proto/base/status_macros.h"

namespace slimps {

float EncodeStats::ResidualBound() const {
  // The fp32 sums may be a few parts in a thousand less than the exact ones.
  return static_cast<float>(std::sqrt(error_norm2) * 1.01);
}

absl::StatusOr<EncodeStats> Codec::Encode(const EncodeInput& input, std::span<std::byte> payload,
                                          EncodeWorkspace& workspace) const {
  // Everything is checked before anything is written: an error must leave the states alone.
  SLIMPS_RETURN_IF_ERROR(CheckArguments(input, payload.size()));
  if (!KnownEncodable(input)) {
    const size_t bad = FindUnencodable(input, 0, Blocks(input.gradient.size()));
    if (bad != kEncodable) return DescribeUnencodable(input, bad);
  }
  workspace.Reset();
  return EncodeValid(input, payload, workspace);
}

absl::StatusOr<EncodeStats> Codec::Encode(const EncodeInput& input,
                                          std::span<std::byte> payload) const {
  EncodeWorkspace workspace;
  return Encode(input, payload, workspace);
}

absl::Status Codec::CheckArguments(const EncodeInput& input, size_t payload_bytes) const {
  const size_t elements = input.gradient.size();
  const auto refuse = [this](const std::string& expected, const std::string& got) {
    return absl::InvalidArgumentError(
        absl::StrCat("encode ", spec_.name, ": expected ", expected, ", got ", got));
  };
  if (elements > kMaxLevelsElements) {
    return refuse(absl::StrCat("at most ", kMaxLevelsElements, " elements"),
                  absl::StrCat(elements));
  }
  if (!input.residual.empty() && input.residual.size() != elements) {
    return refuse(absl::StrCat("a residual of ", elements, " elements"),
                  absl::StrCat(input.residual.size()));
  }
  if ((wants_momentum() || !input.momentum.empty()) && input.momentum.size() != elements) {
    return refuse(absl::StrCat("a momentum of ", elements, " elements"),
                  absl::StrCat(input.momentum.size()));
  }
  if (const size_t in_grid = input.context.grid.elements; in_grid != 0 && in_grid != elements) {
    return refuse(absl::StrCat("a grid of ", elements, " elements"), absl::StrCat(in_grid));
  }
  if (!std::isfinite(input.grad_scale)) {
    return refuse("a finite grad_scale", absl::StrCat(input.grad_scale));
  }
  if (payload_bytes < MaxPayloadBytes(elements)) {
    return refuse(absl::StrCat(MaxPayloadBytes(elements), " bytes for the payload"),
                  absl::StrCat(payload_bytes));
  }
  return absl::OkStatus();
}

bool Codec::KnownEncodable(const EncodeInput& input) const {
  if (const auto rule = Momentum(input.grad_scale); rule.has_value()) {
    return slimps::KnownEncodable(input, *rule, limit_);
  }
  // An encoding has looked at the same x.
  if (const Codec* finer = input.finer.codec; finer != nullptr && input.residual.empty()) {
    if (finer->limit() <= limit_) return true;
  }
  const double residual = input.residual.empty() ? 0 : static_cast<double>(input.residual_bound);
  const double gradient = static_cast<double>(input.gradient_bound);
  // x is rounded twice, which together is far less than this margin.
  return (gradient * std::fabs(static_cast<double>(input.grad_scale)) + residual) * 1.000001 <=
         static_cast<double>(limit_);
}

size_t Codec::FindUnencodable(const EncodeInput& input, size_t first_block,
                              size_t last_block) const {
  if (const auto rule = Momentum(input.grad_scale); rule.has_value()) {
    return slimps::FindUnencodable(kernels_, input, *rule, limit_, first_block, last_block);
  }
  const size_t first = first_block * kBlockElements;
  const size_t last = std::min(last_block * kBlockElements, input.gradient.size());
  if (first >= last) return kEncodable;
  const float* const residual = input.residual.empty() ? nullptr : input.residual.data() + first;
  const size_t bad = kernels_.raw.find_unencodable(input.gradient.data() + first, residual,
                                                   input.grad_scale, limit_, last - first);
  return bad == last - first ? kEncodable : first + bad;
}

absl::Status Codec::DescribeUnencodable(const EncodeInput& input, size_t element) const {
  const float gradient = input.gradient[element];
  const std::string where =
      absl::StrCat("gradient element ", element, " of ", input.gradient.size());
  if (!std::isfinite(gradient)) {
    return absl::InvalidArgumentError(
        absl::StrCat(where, ": expected a finite number, got ", gradient));
  }
  const std::string residual =
      input.residual.empty() ? "" : absl::StrCat(" and a residual of ", input.residual[element]);
  const std::string momentum =
      wants_momentum() ? absl::StrCat(", with a momentum of ", input.momentum[element]) : "";
  return absl::InvalidArgumentError(
      absl::StrCat(where, " is ", gradient, "; times grad_scale ", input.grad_scale, residual,
                   " it exceeds what codec ", spec_.name, " carries, ", limit_, momentum));
}

absl::StatusOr<float> Codec::AdvanceMomentum(const EncodeInput& input, std::span<float> out) const {
  const auto rule = Momentum(input.grad_scale);
  if (!rule.has_value()) return input.momentum_bound;
  return StepMomentum(kernels_, input, *rule, out);
}

}  // namespace slimps
