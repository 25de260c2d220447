// SPDX-License-Identifier: Apache-2.0
#include "compress/codec/sparse/adacomp.h"

#include "absl/strings/str_cat.h"
#include "compress/codec/sparse/adacomp_run.h"
#include "proto/base/status_macros.h"

namespace slimps {

absl::StatusOr<std::unique_ptr<Codec>> MakeAdaCompCodec(const CodecSpec& spec,
                                                        const Kernels& kernels) {
  SLIMPS_ASSIGN_OR_RETURN(const BinLengths lengths, BinLengthOptions(spec));
  SLIMPS_ASSIGN_OR_RETURN(const float scale_factor,
                          FloatOption(spec, "scale_factor", FloatRange::kPositive, 2));
  if (scale_factor < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("codec adacomp, option scale_factor: expected 1 or more, got ", scale_factor));
  }
  SLIMPS_ASSIGN_OR_RETURN(const ErrorFeedback feedback,
                          ErrorFeedbackOption(spec, ErrorFeedback::kOn));
  return std::make_unique<BinCodec>(spec, kernels, feedback, lengths, kernels.bins.select_soft,
                                    scale_factor - 1);
}

}  // namespace slimps
