// SPDX-License-Identifier: Apache-2.0
// Every kernel set's products of thin matrices against scalar, bit for bit.
#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "compress/kernels/kernels.h"
#include "gtest/gtest.h"
#include "tests/compress/test_data.h"

namespace slimps {
namespace {

constexpr float kCanary = -12345.5f;
constexpr size_t kSlack = 16;

// Returns dst after the kernel, canaries included. `shift` bytes misalign u and v.
std::vector<float> Expand(ExpandFactors expand, const std::vector<float>& u,
                          const std::vector<float>& v, size_t stride, size_t n, size_t shift) {
  const auto shifted = [shift](const std::vector<float>& values) {
    std::vector<std::byte> bytes(shift + values.size() * sizeof(float));
    std::copy_n(reinterpret_cast<const std::byte*>(values.data()), bytes.size() - shift,
                bytes.begin() + static_cast<long>(shift));
    return bytes;
  };
  const std::vector<std::byte> u_bytes = shifted(u), v_bytes = shifted(v);
  std::vector<float> dst = RandomFloats(n, 3);
  dst.resize(n + kSlack, kCanary);
  expand(u_bytes.data() + shift, v_bytes.data() + shift, u.size(), stride, n, dst.data());
  return dst;
}

TEST(FactorKernels, EverySetGivesTheBitsOfScalarAndWritesNothingPastTheEnd) {
  const Kernels& scalar = *FindKernels("scalar");
  for (const Kernels* kernels : AllKernels()) {
    if (!kernels->runs_here()) continue;
    for (const size_t n : BlockLengths()) {
      for (const size_t rank : {0, 1, 4, 7}) {
        const size_t stride = n + n % 5, shift = n % 4;
        const std::vector<float> u = NonFiniteFloats(rank, n);
        const std::vector<float> v = NonFiniteFloats(rank * stride, n + 1);
        const std::string what =
            absl::StrCat(std::string(kernels->name), ", ", n, " of rank ", rank);
        for (const auto member : {&FactorKernels::decode, &FactorKernels::add}) {
          const auto got = Expand(kernels->factors.*member, u, v, stride, n, shift);
          const auto wanted = Expand(scalar.factors.*member, u, v, stride, n, 0);
          ASSERT_EQ(Difference(got, wanted), "") << what;
          for (size_t i = n; i < got.size(); ++i) ASSERT_EQ(got[i], kCanary) << what;
        }
      }
    }
  }
}

}  // namespace
}  // namespace slimps
