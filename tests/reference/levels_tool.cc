// For levels_reference.py: encodes fp32 gradients from standard input with error feedback, round after round, and
// writes each round's payload, decoded values and residual to standard output.
//
//   levels_tool SPEC scalar|best ROUNDS GRAD_SCALE < gradients > results
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <iterator>
#include <span>
#include <string>
#include <vector>

#include "compress/codec/codec.h"
#include "compress/format/format.h"
#include "compress/format/kernels.h"

namespace slimps {
namespace {

absl::Status Run(const std::string& spec, const std::string& kernels, size_t rounds,
                 float grad_scale) {
  absl::StatusOr<CodecSpec> parsed = ParseCodecSpec(spec);
  if (!parsed.ok()) return parsed.status();
  const auto codec =
      MakeCodec(*parsed, kernels == "scalar" ? *FindKernels("scalar") : BestKernels());
  if (!codec.ok()) return codec.status();

  const std::string input((std::istreambuf_iterator<char>(std::cin)), {});
  std::vector<float> gradients(input.size() / sizeof(float));
  std::copy_n(input.data(), gradients.size() * sizeof(float),
              reinterpret_cast<char*>(gradients.data()));
  const size_t n = gradients.size() / rounds;
  std::vector<float> residual(n), decoded(n);
  std::vector<std::byte> payload((*codec)->MaxPayloadBytes(n));
  for (size_t round = 0; round < rounds; ++round) {
    const std::span<const float> gradient(gradients.data() + round * n, n);
    const auto stats = (*codec)->Encode(
        {.gradient = gradient, .residual = residual, .grad_scale = grad_scale}, payload);
    if (!stats.ok()) return stats.status();
    const auto used = std::span<const std::byte>(payload).first(stats->payload_bytes);
    const absl::Status valid = ValidatePayload((*codec)->format(), used, n);
    if (!valid.ok()) return valid;
    Decode((*codec)->format(), used, n, 0, decoded);
    std::fwrite(used.data(), 1, used.size(), stdout);
    std::fwrite(decoded.data(), sizeof(float), n, stdout);
    std::fwrite(residual.data(), sizeof(float), n, stdout);
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace slimps

int main(int argc, char** argv) {
  if (argc != 5) {
    std::cerr << "usage: levels_tool SPEC scalar|best ROUNDS GRAD_SCALE\n";
    return 2;
  }
  const absl::Status status = slimps::Run(argv[1], argv[2], std::strtoull(argv[3], nullptr, 10),
                                          std::strtof(argv[4], nullptr));
  if (!status.ok()) std::cerr << status << "\n";
  return status.ok() ? 0 : 1;
}
