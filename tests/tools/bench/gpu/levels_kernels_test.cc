// SPDX-License-Identifier: Apache-2.0
// The GPU's kernels, computed by the host, leave the CPU codecs' payload and residual, bit for bit.
#include <bit>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/compress/codec/make_codec.h"
#include "tests/compress/test_data.h"
#include "tests/tools/bench/gpu/host_kernels.h"

namespace slimps {
namespace {

constexpr int kSteps = 4;
constexpr float kGradScale = 0.75f;
constexpr float kThreshold = 0.5f;

struct Encoded {
  std::vector<std::byte> payload;
  std::vector<float> residual;
};

// Encodes as the codec of that name would, in place of a GPU.
void EncodeByKernel(const std::string& codec, std::span<const float> gradient, Encoded& out) {
  const auto elements = static_cast<uint32_t>(gradient.size());
  const auto blocks = static_cast<uint32_t>(Codec::Blocks(gradient.size()));
  auto* const payload = reinterpret_cast<uint8_t*>(out.payload.data());
  if (codec == "1bit") {
    Encode1BitOnHost(blocks, gradient.data(), out.residual.data(), kGradScale, elements, payload);
  } else {
    Encode2BitOnHost(blocks, gradient.data(), out.residual.data(), kGradScale, kThreshold, elements,
                     payload);
  }
}

std::vector<uint32_t> BitsOf(std::span<const float> values) {
  std::vector<uint32_t> bits;
  for (float value : values) bits.push_back(std::bit_cast<uint32_t>(value));
  return bits;
}

class LevelsKernels : public testing::TestWithParam<std::string> {
 protected:
  // Compares several steps of a tensor, whose residuals each begin at zero.
  void CompareSteps(size_t elements, std::vector<float> (*gradient_of)(size_t, uint64_t)) {
    const auto codec = MakeCodecOrDie(GetParam());
    const size_t bytes = codec->MaxPayloadBytes(elements);
    Encoded cpu = {std::vector<std::byte>(bytes), std::vector<float>(elements)};
    // What a kernel leaves out shows.
    Encoded gpu = {std::vector<std::byte>(bytes, std::byte{0xEE}), cpu.residual};
    for (int step = 0; step < kSteps; ++step) {
      const std::vector<float> gradient = gradient_of(elements, 100 * elements + step);
      const auto stats = codec->Encode(
          {.gradient = gradient, .residual = cpu.residual, .grad_scale = kGradScale}, cpu.payload);
      ASSERT_TRUE(stats.ok()) << stats.status();
      ASSERT_EQ(stats->payload_bytes, bytes);
      EncodeByKernel(GetParam(), gradient, gpu);
      ASSERT_EQ(cpu.payload, gpu.payload) << elements << " elements, step " << step;
      ASSERT_EQ(BitsOf(cpu.residual), BitsOf(gpu.residual)) << elements << ", step " << step;
    }
  }
};

TEST_P(LevelsKernels, LeaveTheCpusBitsAtEveryLength) {
  for (size_t elements : InterestingLengths()) {
    if (elements > 0) CompareSteps(elements, RandomFloats);
  }
}

TEST_P(LevelsKernels, LeaveTheCpusBitsOfAwkwardValues) {
  for (size_t elements : {31, 4095, 4097, 3 * 4096 + 17}) CompareSteps(elements, AwkwardFloats);
}

INSTANTIATE_TEST_SUITE_P(Codecs, LevelsKernels, testing::Values("1bit", "2bit"),
                         [](const auto& codec) { return "Codec" + codec.param; });

}  // namespace
}  // namespace slimps
