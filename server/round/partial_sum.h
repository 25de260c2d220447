// SPDX-License-Identifier: Apache-2.0
// Holds the sum of a round's first contributions, in rank order, while others of the round are
// still to come: one tensor in place of many payloads. A round summed from it has the same bits as
// one summed from the payloads.
//
//   PartialSum partial(elements);
//   partial.Add(prefix);                                       // of ranks 0, 1, 2; then of 3 and 4
//   partial.AppendViews(&views); views.push_back(rank 5's); ...  // to be summed in this order
//
// If all contributions are rows (rows.h), the sum has just the rows that any of them named, so an
// optimizer steps no others. Otherwise it is fp32 over all elements, but the last contributions
// stay integers as long as they are a run that later ones may extend (LanesRun in sum.h).
#ifndef SLIMPS_SERVER_ROUND_PARTIAL_SUM_H_
#define SLIMPS_SERVER_ROUND_PARTIAL_SUM_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "compress/format/format.h"
#include "compress/format/sum.h"
#include "proto/base/buffer.h"
#include "server/round/round_ledger.h"
#include "server/saved/image.h"

namespace slimps {

// Thread-compatible. Pure.
class PartialSum final {
 public:
  explicit PartialSum(size_t elements) : elements_(elements) {}

  // Adds the contributions one after the other.
  // REQUIRES: ValidatePayload was OK for each; all rows have the partition's grid; the sum then has
  // two contributions at least. (A single payload may be stepped by as it came. A sum adds it to
  // +0, which could change its bits.)
  // Throws std::bad_alloc, having added nothing.
  void Add(std::span<const Contribution> contributions);
  void Clear();

  uint32_t contributors() const { return contributors_; }

  // bytes(): the memory that the sum takes now. dense_bytes(): what it takes as fp32 over all
  // elements.
  size_t bytes() const { return bytes_ + lanes_.size(); }
  size_t dense_bytes() const { return elements_ * sizeof(float); }

  // Appends the sum, in at most kMaxViews parts, valid until the next Add or Clear.
  void AppendViews(std::vector<PayloadView>* views) const;
  static constexpr size_t kMaxViews = 2;

  // Saves a copy of the sum.
  void Save(saved::PartialSum* fields, PartitionImage* image) const;

  // Takes over what Save saved.
  // REQUIRES: nothing was added.
  // DataLoss: the image has no such sum.
  [[nodiscard]] absl::Status Restore(const saved::PartialSum& fields, const PartitionImage& image);

 private:
  void AddDense(std::span<const PayloadView> views);
  void AddRows(std::span<const PayloadView> views);

  const size_t elements_;
  uint32_t contributors_ = 0;
  PayloadFormat format_ = PayloadFormat::kAbsent;  // kAbsent, kRows or kRawF32
  size_t bytes_ = 0;                               // used of buffer_
  AlignedBuffer buffer_;
  AlignedBuffer lanes_;  // the run at the end, as one payload of lanes; follows buffer_
};

}  // namespace slimps

#endif  // SLIMPS_SERVER_ROUND_PARTIAL_SUM_H_
