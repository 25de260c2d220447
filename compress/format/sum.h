// SPDX-License-Identifier: Apache-2.0
// Adds up many workers' payloads of any formats, block by block in cache.
//
//   std::vector<PayloadView> payloads = ...;                        // in rank order
//   for (size_t first = 0; first < n; first += kBlockElements)
//     SumPayloads(payloads, n, first, sum.first(std::min(kBlockElements, n - first)));
//
// The result has the same bits as DecodeAdd of one payload after the other onto zeros, except that
// neighbouring payloads with lanes of one scale (lanes.h) are summed as integers: their sum is
// exact, is decoded once, and counts as one payload. Neighbouring payloads of one or two bits per
// element are added up together in registers: each costs one shift, one blend and one addition per
// vector, and reads no memory but its bits. Thread-safe. Allocates nothing.
#ifndef SLIMPS_COMPRESS_FORMAT_SUM_H_
#define SLIMPS_COMPRESS_FORMAT_SUM_H_

#include <cstddef>
#include <span>

#include "compress/format/format.h"
#include "compress/kernels/kernels.h"

namespace slimps {

// Returns how many payloads from the first on are summed as integers: those with lanes of one
// scale, and absent ones among them. 0: the first has no lanes.
// REQUIRES: ValidatePayload was OK for each.
size_t LanesRun(std::span<const PayloadView> payloads);

// Sets dst[i] = ((+0 + payload 0) + payload 1) + ... for element first + i. REQUIRES: as DecodeAdd,
// for every payload.
void SumPayloads(std::span<const PayloadView> payloads, size_t elements, size_t first,
                 std::span<float> dst);

// Does the same with chosen kernels, for tests and benches.
void SumPayloadsWith(const Kernels& kernels, std::span<const PayloadView> payloads, size_t elements,
                     size_t first, std::span<float> dst);

}  // namespace slimps

#endif  // SLIMPS_COMPRESS_FORMAT_SUM_H_
