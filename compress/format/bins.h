// Payload format "sparse", indices within bins: AdaComp's 8 and 16 bit entries.
#ifndef SLIMPS_COMPRESS_FORMAT_BINS_H_
#define SLIMPS_COMPRESS_FORMAT_BINS_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "compress/kernels/kernels.h"

namespace slimps {

inline constexpr uint8_t kBinsMagic = 0xB9;

// All that ValidatePayload checks for this layout.
[[nodiscard]] absl::Status ValidateBins(std::span<const std::byte> payload, size_t elements);

// As Decode and DecodeAdd of format.h, with chosen kernels.
void DecodeBins(const Kernels& kernels, std::span<const std::byte> payload, size_t elements,
              size_t first, std::span<float> dst);
void DecodeAddBins(const Kernels& kernels, std::span<const std::byte> payload, size_t elements,
                 size_t first, std::span<float> dst);

}  // namespace slimps

#endif  // SLIMPS_COMPRESS_FORMAT_BINS_H_
