// The sum of a round's first contributions, in rank order, while others of the round are still to
// come: one tensor in place of many payloads. With it in their place, the round's sum has the same
// bits.
//
//   PartialSum partial(elements);
//   partial.Add(prefix);                                       // of ranks 0, 1, 2; then of 3 and 4
//   views = {partial.view(), view of rank 5's, ...};           // to be summed in this order
//
// Of rows (rows.h) alone it is the rows that any of them named, so that an optimizer steps no
// others; else fp32.
#ifndef SLIMPS_SERVER_PARTIAL_SUM_H_
#define SLIMPS_SERVER_PARTIAL_SUM_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "compress/format/format.h"
#include "compress/format/sum.h"
#include "proto/base/buffer.h"
#include "server/round_ledger.h"

namespace slimps {

// Thread-compatible. Pure.
class PartialSum final {
 public:
  explicit PartialSum(size_t elements) : elements_(elements) {}

  // Adds them one after the other. REQUIRES: ValidatePayload was OK for each, and all rows have the
  // partition's grid; two at least are in it then, since one alone, which a sum would add to +0,
  // may be stepped by as it came. Throws std::bad_alloc: nothing was added.
  void Add(std::span<const Contribution> contributions);
  void Clear();

  uint32_t contributors() const { return contributors_; }
  // Memory that it takes, and that it takes once a payload of all elements is in it.
  size_t bytes() const { return bytes_; }
  size_t dense_bytes() const { return elements_ * sizeof(float); }
  // Valid until the next Add or Clear. REQUIRES: contributors() > 0.
  PayloadView view() const { return {.format = format_, .bytes = buffer_.bytes().first(bytes_)}; }

 private:
  void AddDense(std::span<const PayloadView> views);
  void AddRows(std::span<const PayloadView> views);

  const size_t elements_;
  uint32_t contributors_ = 0;
  PayloadFormat format_ = PayloadFormat::kAbsent;  // or kRows, or kRawF32
  size_t bytes_ = 0;                               // of buffer_
  AlignedBuffer buffer_;
};

}  // namespace slimps

#endif  // SLIMPS_SERVER_PARTIAL_SUM_H_
