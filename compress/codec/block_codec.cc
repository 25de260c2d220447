#include "compress/codec/block_codec.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "compress/format/levels.h"
#include "proto/base/status_macros.h"

namespace slimps {

absl::StatusOr<EncodeStats> BlockCodec::Encode(const EncodeInput& input,
                                               std::span<std::byte> payload) const {
  SLIMPS_RETURN_IF_ERROR(CheckArguments(input, payload.size()));
  const size_t elements = input.gradient.size();
  const size_t blocks = Blocks(elements);
  if (const size_t bad = FindUnencodable(input, 0, blocks); bad != kEncodable) {
    return DescribeUnencodable(input, bad);
  }
  BuildHeader(elements, payload);
  EncodeBlocks(input, 0, blocks, payload);
  return EncodeStats{.payload_bytes = MaxPayloadBytes(elements)};
}

absl::Status BlockCodec::CheckArguments(const EncodeInput& input, size_t payload_bytes) const {
  const size_t elements = input.gradient.size();
  if (elements > kMaxLevelsElements) {
    return absl::InvalidArgumentError(absl::StrCat("encode ", spec_.name, ": expected at most ",
                                                   kMaxLevelsElements, " elements, got ",
                                                   elements));
  }
  if (!input.residual.empty() && input.residual.size() != elements) {
    return absl::InvalidArgumentError(absl::StrCat("encode ", spec_.name,
                                                   ": expected a residual of ", elements,
                                                   " elements, got ", input.residual.size()));
  }
  if (!std::isfinite(input.grad_scale)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "encode ", spec_.name, ": expected a finite grad_scale, got ", input.grad_scale));
  }
  if (payload_bytes < MaxPayloadBytes(elements)) {
    return absl::InvalidArgumentError(absl::StrCat("encode ", spec_.name, ": expected ",
                                                   MaxPayloadBytes(elements),
                                                   " bytes for the payload, got ", payload_bytes));
  }
  return absl::OkStatus();
}

size_t BlockCodec::FindUnencodable(const EncodeInput& input, size_t first_block,
                                   size_t last_block) const {
  const size_t first = first_block * kBlockElements;
  const size_t last = std::min(last_block * kBlockElements, input.gradient.size());
  if (first >= last) return kEncodable;
  const float* const residual = input.residual.empty() ? nullptr : input.residual.data() + first;
  const size_t bad = kernels_.find_unencodable(input.gradient.data() + first, residual,
                                               input.grad_scale, limit_, last - first);
  return bad == last - first ? kEncodable : first + bad;
}

absl::Status BlockCodec::DescribeUnencodable(const EncodeInput& input, size_t element) const {
  const float gradient = input.gradient[element];
  const std::string where =
      absl::StrCat("gradient element ", element, " of ", input.gradient.size());
  if (!std::isfinite(gradient)) {
    return absl::InvalidArgumentError(
        absl::StrCat(where, ": expected a finite number, got ", gradient));
  }
  const std::string residual =
      input.residual.empty() ? "" : absl::StrCat(" and a residual of ", input.residual[element]);
  return absl::InvalidArgumentError(
      absl::StrCat(where, " is ", gradient, "; times grad_scale ", input.grad_scale, residual,
                   " it exceeds what codec ", spec_.name, " carries, ", limit_));
}

}  // namespace slimps
