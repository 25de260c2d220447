#include "compress/format/bins.h"

namespace slimps {

absl::Status ValidateBins(std::span<const std::byte>, size_t) {
  return absl::UnimplementedError("sparse payload: not decoded yet");
}
void DecodeBins(const Kernels&, std::span<const std::byte>, size_t, size_t, std::span<float>) {}
void DecodeAddBins(const Kernels&, std::span<const std::byte>, size_t, size_t, std::span<float>) {}

}  // namespace slimps
