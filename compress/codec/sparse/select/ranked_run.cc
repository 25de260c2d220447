// SPDX-License-Identifier: Apache-2.0
#include "compress/codec/sparse/select/ranked_run.h"

#include <bit>
#include <cstdint>

#include "compress/codec/sparse/select/selection_floor.h"

namespace slimps {

Selection RankedRun::Choose(const Listed& listed) {
  const bool listed_all = listed.below_floor == 0;  // all keys over 0
  if (listed.keys.size() < k_ && (!listed_all || by_ == SelectBy::kMagnitude)) {
    // The k-th key is below_floor. Elements with that key fill up.
    return {.sure = listed.floor, .filler = listed.below_floor, .total = k_};
  }
  if (listed.keys.size() <= k_) return SelectionRun::Choose(listed);
  // More than k are listed. Those over the k-th key are sure, those equal to it fill up.
  const float key = RankedKey(listed.keys, k_);
  const float next = std::bit_cast<float>(std::bit_cast<uint32_t>(key) + 1);
  return {.sure = next, .filler = key, .total = k_};
}

}  // namespace slimps
