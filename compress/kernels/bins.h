// SPDX-License-Identifier: Apache-2.0
// Kernels of AdaComp and its baselines. kernels.h has the conventions. compress/format/bins.h has
// the payload's layout and says what pieces and entries are.
#ifndef SLIMPS_COMPRESS_KERNELS_BINS_H_
#define SLIMPS_COMPRESS_KERNELS_BINS_H_

#include <cstddef>
#include <cstdint>

namespace slimps {

// The bins that begin in one block. The last of them may reach into later blocks; it is cut where
// those begin.
struct BinGroup {
  const float* gradient = nullptr;  // the group's first element
  float* residual = nullptr;        // nullptr: no error feedback
  float grad_scale = 1;
  float extra = 1;          // H = G + extra * dW, with dW = gradient * grad_scale
  uint32_t bin_length = 1;  // 1 .. 16384; the tensor's last bin may be shorter
  size_t elements = 0;
  // Elements up to the end of the block where the group begins. Cuts follow every kBlockElements.
  size_t until_cut = 0;
};

// What a group sends.
struct BinGroupOut {
  std::byte* entries = nullptr;  // 1 or 2 bytes for each element of the group
  uint8_t* bitmap = nullptr;     // bits of the block where the group begins, all 0
  size_t first_bit = 0;          // the bit of the group's first bin
  uint32_t* carried = nullptr;   // entries in each later block into which the last bin reaches
};

struct BinSums {
  double maxima = 0;         // sum of the bins' maxima, one after the other
  float input2 = 0;          // sum of G * G
  float unsent2 = 0;         // sum of G * G of the elements not sent
  float sent_magnitude = 0;  // sum of |G| of the elements sent; 0 with a residual
  uint32_t own = 0;          // entries in the block where the group begins
  uint32_t entries = 0;      // entries in all blocks
};

// One block of a valid payload.
struct BinBlock {
  const std::byte* entries = nullptr;  // 1 byte each for bins of up to 64, otherwise 2
  size_t count = 0;
  const uint8_t* bitmap = nullptr;
  size_t pieces = 0;  // bits in the bitmap
  // Where the first piece's bin begins, counted from the block's first element: 0 or less.
  int32_t first_bin = 0;
  uint32_t bin_length = 1;
  float scale = 0;
};

struct BinKernels {
  // Select what a group sends. The residual becomes G = dW + residual.
  // - soft sends where |H| >= the bin's largest |G|, unless G is 0
  // - first sends each bin's first element of the largest |G|, unless that is 0
  BinSums (*select_soft)(const BinGroup& group, const BinGroupOut& out);
  BinSums (*select_first)(const BinGroup& group, const BinGroupOut& out);

  // Prefetches the cache lines that the kernels below will touch.
  void (*prefetch)(const BinBlock& block, const float* dst);

  // Sets dst[i] = what was sent. Elements not sent stay.
  void (*store)(const BinBlock& block, float* dst);

  // Sets dst[i] += what was sent.
  void (*add)(const BinBlock& block, float* dst);

  // Sets dst[i] -= what was sent. Returns the sum of squares of what is left in those places.
  float (*subtract)(const BinBlock& block, float* dst);
};

}  // namespace slimps

#endif  // SLIMPS_COMPRESS_KERNELS_BINS_H_
