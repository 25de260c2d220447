#include "compress/format/sparse.h"

namespace slimps {

absl::Status ValidateSparse(std::span<const std::byte>, size_t) {
  return absl::UnimplementedError("sparse payload: not decoded yet");
}
void DecodeSparse(const Kernels&, std::span<const std::byte>, size_t, size_t, std::span<float>) {}
void DecodeAddSparse(const Kernels&, std::span<const std::byte>, size_t, size_t, std::span<float>) {}

}  // namespace slimps
