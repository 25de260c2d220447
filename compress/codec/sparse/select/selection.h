// SPDX-License-Identifier: Apache-2.0
// The structs by which SelectionRun (selection_run.h) and its codecs talk to each other:
//
//   SelectionGoal   codec to run: which elements to list
//   Listed          run to codec: what it listed
//   Selection       codec to run: which of them to send
#ifndef SLIMPS_COMPRESS_CODEC_SPARSE_SELECT_SELECTION_H_
#define SLIMPS_COMPRESS_CODEC_SPARSE_SELECT_SELECTION_H_

#include <cstddef>
#include <span>

#include "compress/kernels/select.h"

namespace slimps {

// What a codec asks of its selection.
struct SelectionGoal {
  SelectBy by = SelectBy::kMagnitude;

  // Lists for Choose() at least the `rank` largest keys; keys of 0 and below may be missing.
  // REQUIRES: rank is at most the number of elements.
  size_t rank = 0;

  // If over 0: lists all keys >= fixed_floor and sends those, without Choose(). `rank` is then 0.
  float fixed_floor = 0;

  // The list has room for at least so many.
  size_t room = 0;
};

// What Choose() may look at.
struct Listed {
  std::span<float> keys;  // all keys >= floor; Choose() may reorder and overwrite them
  float floor = 0;        // 0: all elements that may be sent are listed

  // The largest fp32 number below the floor, or 0. At least `rank` keys are >= below_floor, except
  // by sign if it is 0.
  float below_floor = 0;

  // Sum and maximum of |x| over all elements. The sum is in fp32 within blocks (lanes.h) and in
  // fp64 over blocks, in their order.
  double magnitude_sum = 0;
  float magnitude_max = 0;

  size_t elements = 0;
};

// What to send: all keys >= sure, then the first elements with filler <= key < sure until `total`
// are sent.
// REQUIRES: sure >= the floor; filler >= 0.
struct Selection {
  float sure = 0;
  float filler = 0;
  size_t total = 0;
};

}  // namespace slimps

#endif  // SLIMPS_COMPRESS_CODEC_SPARSE_SELECT_SELECTION_H_
