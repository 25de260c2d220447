// Payload format "sparse", indices of any elements: bit-packed, delta-coded or drawn from a seed.
#ifndef SLIMPS_COMPRESS_FORMAT_SPARSE_H_
#define SLIMPS_COMPRESS_FORMAT_SPARSE_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "compress/kernels/kernels.h"

namespace slimps {

inline constexpr uint8_t kSparseMagic = 0xB8;

// All that ValidatePayload checks for this layout.
[[nodiscard]] absl::Status ValidateSparse(std::span<const std::byte> payload, size_t elements);

// As Decode and DecodeAdd of format.h, with chosen kernels.
void DecodeSparse(const Kernels& kernels, std::span<const std::byte> payload, size_t elements,
              size_t first, std::span<float> dst);
void DecodeAddSparse(const Kernels& kernels, std::span<const std::byte> payload, size_t elements,
                 size_t first, std::span<float> dst);

}  // namespace slimps

#endif  // SLIMPS_COMPRESS_FORMAT_SPARSE_H_
