// Kernels of AdaComp and its baselines. Conventions: kernels.h; the payload's layout, and what pieces and entries are:
// compress/format/bins.h.
#ifndef SLIMPS_COMPRESS_KERNELS_BINS_H_
#define SLIMPS_COMPRESS_KERNELS_BINS_H_

#include <cstddef>
#include <cstdint>

namespace slimps {

// The bins that begin in one block: the last of them may reach into later blocks, and is cut where those begin.
struct BinGroup {
  const float* gradient = nullptr;  // of the group's first element
  float* residual = nullptr;        // nullptr: no error feedback
  float grad_scale = 1;
  float extra = 1;          // H = G + extra * dW, with dW = gradient * grad_scale
  uint32_t bin_length = 1;  // 1 .. 16384; the tensor's last bin may be shorter
  size_t elements = 0;
  size_t until_cut =
      0;  // elements of the block where the group begins; further cuts every kBlockElements
};

// What a group sends. Entries have no place yet: they lie where the worst case would put them.
struct BinGroupOut {
  std::byte* entries = nullptr;  // of 1 or 2 bytes, for all elements of the group
  uint8_t* bitmap = nullptr;     // of the block where the group begins, all 0
  size_t first_bit = 0;          // that of the group's first bin
  uint32_t* carried = nullptr;   // entries in each later block that the last bin reaches into
};

struct BinSums {
  double maxima = 0;         // sum of the bins' maxima, one after the other
  float input2 = 0;          // sum of G * G
  float unsent2 = 0;         // of those not sent
  float sent_magnitude = 0;  // sum of |G| of those sent; 0 with a residual
  uint32_t own = 0;          // entries in the block where the group begins
  uint32_t entries = 0;      // all
};

// One block of a valid payload.
struct BinBlock {
  const std::byte* entries = nullptr;  // of 1 byte for bins of up to 64, else of 2
  size_t count = 0;
  const uint8_t* bitmap = nullptr;
  size_t pieces = 0;  // bits in it
  int32_t first_bin =
      0;  // where the first piece's bin begins, counted from the block's first element: 0 or less
  uint32_t bin_length = 1;
  float scale = 0;
};

struct BinKernels {
  // The residual becomes G = dW + residual.
  // soft: sends where |H| >= the bin's max |G| and G is not 0. first: each bin's first element of the largest |G|, if
  // that is not 0.
  BinSums (*select_soft)(const BinGroup& group, const BinGroupOut& out);
  BinSums (*select_first)(const BinGroup& group, const BinGroupOut& out);

  // Asks for the cache lines that the others will touch.
  void (*prefetch)(const BinBlock& block, const float* dst);
  void (*store)(const BinBlock& block,
                float* dst);                       // dst[i] = what was sent; elements not sent stay
  void (*add)(const BinBlock& block, float* dst);  // dst[i] += what was sent
  // dst[i] -= what was sent. Returns the sum of the squares of what that leaves.
  float (*subtract)(const BinBlock& block, float* dst);
};

}  // namespace slimps

#endif  // SLIMPS_COMPRESS_KERNELS_BINS_H_
