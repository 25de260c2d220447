// SPDX-License-Identifier: Apache-2.0
#include "compress/codec/sparse/local_selection.h"

#include "compress/codec/sparse/adacomp_run.h"
#include "proto/base/status_macros.h"

namespace slimps {

absl::StatusOr<std::unique_ptr<Codec>> MakeLocalSelectionCodec(const CodecSpec& spec,
                                                               const Kernels& kernels) {
  SLIMPS_ASSIGN_OR_RETURN(const BinLengths lengths, BinLengthOptions(spec));
  SLIMPS_ASSIGN_OR_RETURN(const ErrorFeedback feedback,
                          ErrorFeedbackOption(spec, ErrorFeedback::kOn));
  return std::make_unique<BinCodec>(spec, kernels, feedback, lengths, kernels.bins.select_first,
                                    0.0f);
}

}  // namespace slimps
