// The inner loops of all formats, once per instruction set. Every set gives the same bits as
// "scalar", sums included: sums run in 16 lanes, element i in lane i % 16, and are folded 8 + 8, 4
// + 4, 2 + 2, 1 + 1; products and sums are rounded separately (no fused multiply-add).
//
//   const Kernels& kernels = BestKernels();          // what this CPU can do
//   const Kernels* scalar = FindKernels("scalar");   // forced by name, for tests
//
// In all of them x[i] = gradient[i] * grad_scale + residual[i], or without the sum where `residual`
// is null. They take at most kBlockElements where a sum or bits are involved, allocate nothing, and
// never touch memory past n. Pointers need no alignment beyond their type's. Thread-safe: pure
// functions.
#ifndef SLIMPS_COMPRESS_FORMAT_KERNELS_H_
#define SLIMPS_COMPRESS_FORMAT_KERNELS_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace slimps {

struct SignSums {
  float positive = 0;      // sum of x >= 0
  float negative = 0;      // sum of x < 0
  uint32_t positives = 0;  // how many are >= 0
};

struct Kernels {
  std::string_view name;
  bool (*runs_here)();  // whether this CPU has what they need

  // Index of the first x that is NaN or whose magnitude is over `limit`; n when there is none.
  size_t (*find_unencodable)(const float* gradient, const float* residual, float grad_scale,
                             float limit, size_t n);

  // ---- raw: x as fp32, fp16, bf16 (nearest even). The residual becomes x - decoded.
  void (*encode_f32)(const float* gradient, float* residual, float grad_scale, size_t n,
                     std::byte* out);
  void (*encode_f16)(const float* gradient, float* residual, float grad_scale, size_t n,
                     std::byte* out);
  void (*encode_bf16)(const float* gradient, float* residual, float grad_scale, size_t n,
                      std::byte* out);
  void (*decode_f16)(const std::byte* in, size_t n, float* dst);
  void (*decode_bf16)(const std::byte* in, size_t n, float* dst);
  void (*add_f32)(const std::byte* in, size_t n, float* dst);  // dst[i] += in[i]
  void (*add_f16)(const std::byte* in, size_t n, float* dst);
  void (*add_bf16)(const std::byte* in, size_t n, float* dst);

  // ---- levels: bit i is x >= 0. The residual becomes x: subtracting what was sent needs the
  // scales first. Returns the sum of |x|.
  float (*encode_sign)(const float* gradient, float* residual, float grad_scale, size_t n,
                       uint8_t* bits);
  SignSums (*encode_sign_split)(const float* gradient, float* residual, float grad_scale, size_t n,
                                uint8_t* bits);
  // Bit i is x > threshold and stands for +value, else -value. The residual becomes x - decoded.
  void (*encode_1bit_fixed)(const float* gradient, float* residual, float grad_scale,
                            float threshold, float value, size_t n, uint8_t* bits);
  // plane0: x >= threshold, sends +threshold; plane1: x <= -threshold, sends -threshold. REQUIRES:
  // threshold > 0.
  void (*encode_2bit_fixed)(const float* gradient, float* residual, float grad_scale,
                            float threshold, size_t n, uint8_t* plane0, uint8_t* plane1);

  void (*decode_1bit)(const uint8_t* bits, float positive, float negative, size_t n, float* dst);
  void (*add_1bit)(const uint8_t* bits, float positive, float negative, size_t n, float* dst);
  void (*decode_2bit)(const uint8_t* plane0, const uint8_t* plane1, float positive, float negative,
                      size_t n, float* dst);
  void (*add_2bit)(const uint8_t* plane0, const uint8_t* plane1, float positive, float negative,
                   size_t n, float* dst);
};

// Best last; "scalar" is first and runs everywhere. Some may not run on this CPU.
std::span<const Kernels* const> AllKernels();
const Kernels& BestKernels();
// nullptr: no such name.
const Kernels* FindKernels(std::string_view name);

}  // namespace slimps

#endif  // SLIMPS_COMPRESS_FORMAT_KERNELS_H_
