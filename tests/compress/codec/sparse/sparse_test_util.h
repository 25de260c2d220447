// SPDX-License-Identifier: Apache-2.0
// Helpers that the tests of sparse codecs share: encoding by spec, and the definition of the
// largest elements.
#ifndef SLIMPS_TESTS_COMPRESS_CODEC_SPARSE_SPARSE_TEST_UTIL_H_
#define SLIMPS_TESTS_COMPRESS_CODEC_SPARSE_SPARSE_TEST_UTIL_H_

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <string>
#include <string_view>
#include <vector>

#include "compress/codec/codec.h"
#include "compress/codec/encode_run.h"
#include "compress/format/format.h"
#include "compress/format/sparse.h"
#include "compress/kernels/kernels.h"
#include "gtest/gtest.h"
#include "tests/compress/codec/make_codec.h"
#include "tests/compress/test_data.h"

namespace slimps {

struct Encoded {
  std::vector<std::byte> payload;
  EncodeStats stats;
};

// Encodes `input`, and checks that the payload is valid.
inline Encoded EncodeChecked(const Codec& codec, const EncodeInput& input) {
  Encoded encoded;
  encoded.payload.resize(codec.MaxPayloadBytes(input.gradient.size()));
  const auto stats = codec.Encode(input, encoded.payload);
  EXPECT_TRUE(stats.ok()) << stats.status();
  if (!stats.ok()) return {};
  encoded.stats = *stats;
  EXPECT_LE(stats->payload_bytes, encoded.payload.size());
  encoded.payload.resize(stats->payload_bytes);
  EXPECT_TRUE(ValidatePayload(codec.format(), encoded.payload, input.gradient.size()).ok())
      << ValidatePayload(codec.format(), encoded.payload, input.gradient.size());
  return encoded;
}

inline Encoded EncodeSparse(const std::string& spec, const std::vector<float>& gradient,
                            std::span<float> residual = {}, uint64_t round = 1) {
  return EncodeChecked(*MakeCodecOrDie(spec),
                       {.gradient = gradient, .residual = residual, .context = {.round = round}});
}

inline std::vector<float> DecodeAllSparse(std::span<const std::byte> payload, size_t n) {
  std::vector<float> out(n, -1.0f);
  Decode(PayloadFormat::kSparse, payload, n, 0, out);
  return out;
}

// Returns the indices of the k largest elements by `key(x)`, in rising order. Of equal elements the
// first count.
template <typename Key>
std::vector<size_t> LargestBy(std::span<const float> x, size_t k, const Key& key) {
  std::vector<size_t> order(x.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return key(x[a]) > key(x[b]); });
  order.resize(std::min(k, order.size()));
  std::sort(order.begin(), order.end());
  return order;
}

// Returns x at the chosen indices and 0 elsewhere.
inline std::vector<float> KeepOnly(std::span<const float> x, std::span<const size_t> chosen) {
  std::vector<float> kept(x.size(), 0.0f);
  for (const size_t i : chosen) kept[i] = x[i];
  return kept;
}

inline size_t PackedBytes(size_t elements, size_t count, size_t value_bits) {
  return 20 + 4 * ((elements + 4095) / 4096) + (count * value_bits + 7) / 8 + (3 * count + 1) / 2;
}

}  // namespace slimps

#endif  // SLIMPS_TESTS_COMPRESS_CODEC_SPARSE_SPARSE_TEST_UTIL_H_
