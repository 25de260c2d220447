// SPDX-License-Identifier: Apache-2.0
// Decode and DecodeAdd of format.h with chosen kernels. Tests, fuzzers and benches use them to
// compare kernel sets.
#ifndef SLIMPS_COMPRESS_FORMAT_DECODE_H_
#define SLIMPS_COMPRESS_FORMAT_DECODE_H_

#include <cstddef>
#include <span>

#include "compress/format/format.h"
#include "compress/kernels/kernels.h"

namespace slimps {

void DecodeAddWith(const Kernels& kernels, PayloadFormat format, std::span<const std::byte> payload,
                   size_t elements, size_t first, std::span<float> dst);
void DecodeWith(const Kernels& kernels, PayloadFormat format, std::span<const std::byte> payload,
                size_t elements, size_t first, std::span<float> dst);

}  // namespace slimps

#endif  // SLIMPS_COMPRESS_FORMAT_DECODE_H_
