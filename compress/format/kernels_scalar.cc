#include "compress/format/kernel_sets.h"
#include "compress/format/scalar_loops.h"

namespace slimps {
namespace {

bool RunsHere() { return true; }

size_t FindUnencodable(const float* gradient, const float* residual, float grad_scale, float limit,
                       size_t n) {
  return FindLoop(gradient, residual, grad_scale, limit, 0, n);
}

template <typename Type>
void EncodeRaw(const float* gradient, float* residual, float grad_scale, size_t n, std::byte* out) {
  EncodeRawLoop<Type>(gradient, residual, grad_scale, 0, n, out);
}

template <typename Type, bool kAdd>
void DecodeRaw(const std::byte* in, size_t n, float* dst) {
  DecodeRawLoop<Type, kAdd>(in, 0, n, dst);
}

float EncodeSign(const float* gradient, float* residual, float grad_scale, size_t n,
                 uint8_t* bits) {
  float lanes[kLanes] = {};
  SignLoop(gradient, residual, grad_scale, 0, n, bits, lanes);
  return FoldLanes(lanes);
}

SignSums EncodeSignSplit(const float* gradient, float* residual, float grad_scale, size_t n,
                         uint8_t* bits) {
  float positive[kLanes] = {};
  float negative[kLanes] = {};
  const uint32_t positives =
      SignSplitLoop(gradient, residual, grad_scale, 0, n, bits, positive, negative);
  return {FoldLanes(positive), FoldLanes(negative), positives};
}

void Encode1BitFixed(const float* gradient, float* residual, float grad_scale, float threshold,
                     float value, size_t n, uint8_t* bits) {
  Fixed1Loop(gradient, residual, grad_scale, threshold, value, 0, n, bits);
}

void Encode2BitFixed(const float* gradient, float* residual, float grad_scale, float threshold,
                     size_t n, uint8_t* plane0, uint8_t* plane1) {
  Fixed2Loop(gradient, residual, grad_scale, threshold, 0, n, plane0, plane1);
}

template <bool kAdd>
void Decode1Bit(const uint8_t* bits, float positive, float negative, size_t n, float* dst) {
  Decode1Loop<kAdd>(bits, positive, negative, 0, n, dst);
}

template <bool kAdd>
void Decode2Bit(const uint8_t* plane0, const uint8_t* plane1, float positive, float negative,
                size_t n, float* dst) {
  Decode2Loop<kAdd>(plane0, plane1, positive, negative, 0, n, dst);
}

}  // namespace

constinit const Kernels kScalarKernels = {
    .name = "scalar",
    .runs_here = RunsHere,
    .find_unencodable = FindUnencodable,
    .encode_f32 = EncodeRaw<F32>,
    .encode_f16 = EncodeRaw<F16>,
    .encode_bf16 = EncodeRaw<Bf16>,
    .decode_f16 = DecodeRaw<F16, false>,
    .decode_bf16 = DecodeRaw<Bf16, false>,
    .add_f32 = DecodeRaw<F32, true>,
    .add_f16 = DecodeRaw<F16, true>,
    .add_bf16 = DecodeRaw<Bf16, true>,
    .encode_sign = EncodeSign,
    .encode_sign_split = EncodeSignSplit,
    .encode_1bit_fixed = Encode1BitFixed,
    .encode_2bit_fixed = Encode2BitFixed,
    .decode_1bit = Decode1Bit<false>,
    .add_1bit = Decode1Bit<true>,
    .decode_2bit = Decode2Bit<false>,
    .add_2bit = Decode2Bit<true>,
};

}  // namespace slimps
