// What SelectionRun (selection_run.h) and its codecs tell each other.
#ifndef SLIMPS_COMPRESS_CODEC_SELECTION_H_
#define SLIMPS_COMPRESS_CODEC_SELECTION_H_

#include <cstddef>
#include <span>

#include "compress/kernels/select.h"

namespace slimps {

// What a codec asks of its selection.
struct SelectionGoal {
  SelectBy by = SelectBy::kMagnitude;
  // The largest `rank` keys are listed for Choose(), those over 0 at least; at most the number of elements.
  size_t rank = 0;
  // If over 0: list all keys from it on instead, and choose those. `rank` is then 0.
  float fixed_floor = 0;
};

// What Choose() may look at.
struct Listed {
  std::span<float> keys;  // all keys >= floor; may be reordered and overwritten
  float floor = 0;        // over 0
  // The fp32 number before the floor. At least `rank` keys reach it (by sign: unless it is 0).
  float below_floor = 0;
  // Of |x| over all elements: in fp32 within blocks (lanes.h), in fp64 over blocks in their order.
  double magnitude_sum = 0;
  float magnitude_max = 0;
  size_t elements = 0;
};

// All keys >= sure are sent, and of those with filler <= key < sure the first, until `total` are. REQUIRES: sure >= the
// floor; filler >= 0.
struct Selection {
  float sure = 0;
  float filler = 0;
  size_t total = 0;
};

}  // namespace slimps

#endif  // SLIMPS_COMPRESS_CODEC_SELECTION_H_
