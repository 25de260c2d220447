// SPDX-License-Identifier: Apache-2.0
// Local selection, AdaComp's baseline without the soft threshold (Chen et al., AAAI 2018, section
// "Robustness of the AdaComp Technique"), e.g. "local_selection:lt=200". With dW, G, bins, g_max
// and scale as in adacomp.h:
//
//   the first element of each bin with |G| = g_max(bin), if that is not 0:
//         sends sign(G) * scale,   e = G - sign(G) * scale
//   else:                          e = G
//
// Payload: compress/format/bins.h. Options: lt_conv (50), lt_fc (500), lt, error_feedback=on|off
// (on), as adacomp's.
#ifndef SLIMPS_COMPRESS_CODEC_SPARSE_LOCAL_SELECTION_H_
#define SLIMPS_COMPRESS_CODEC_SPARSE_LOCAL_SELECTION_H_

#include <memory>

#include "absl/status/statusor.h"
#include "compress/codec/codec.h"

namespace slimps {

// InvalidArgument: an option is out of its range.
absl::StatusOr<std::unique_ptr<Codec>> MakeLocalSelectionCodec(const CodecSpec& spec,
                                                               const Kernels& kernels);

}  // namespace slimps

#endif  // SLIMPS_COMPRESS_CODEC_SPARSE_LOCAL_SELECTION_H_
