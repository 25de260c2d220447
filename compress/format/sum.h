// The sum of many workers' payloads, of any formats, block by block in cache.
//
//   std::vector<PayloadView> payloads = ...;                        // in rank order
//   for (size_t first = 0; first < n; first += kBlockElements)
//     SumPayloads(payloads, n, first, sum.first(std::min(kBlockElements, n - first)));
//
// Gives the bits of DecodeAdd of one after the other onto zeros. Neighbours of one or two bits per element are added up
// in registers together: each costs one shift, one blend and one addition per vector, and no memory but its bits.
// Thread-safe; allocates nothing.
#ifndef SLIMPS_COMPRESS_FORMAT_SUM_H_
#define SLIMPS_COMPRESS_FORMAT_SUM_H_

#include <cstddef>
#include <span>

#include "compress/format/format.h"
#include "compress/kernels/kernels.h"

namespace slimps {

struct PayloadView {
  PayloadFormat format = PayloadFormat::kAbsent;
  std::span<const std::byte> bytes;
};

// dst[i] = ((+0 + payload 0) + payload 1) + ..., of element first + i. REQUIRES: as DecodeAdd, for every payload.
void SumPayloads(std::span<const PayloadView> payloads, size_t elements, size_t first,
                 std::span<float> dst);

// With chosen kernels, for tests and benches.
void SumPayloadsWith(const Kernels& kernels, std::span<const PayloadView> payloads, size_t elements,
                     size_t first, std::span<float> dst);

}  // namespace slimps

#endif  // SLIMPS_COMPRESS_FORMAT_SUM_H_
