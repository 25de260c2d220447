// SPDX-License-Identifier: Apache-2.0
// What a server computes for one complete round of one partition, in one pass over memory:
//
//   payloads of N workers --SumPayloads--> sum (a block, in cache) --majority?--> --Optimizer-->
//       weights of the next version --ChangeEncoder, if any--> bytes for pulls
//
//   AggregateRound({.payloads = views, .optimizer = optimizer.get(),
//                   .step = optimizer->PlanStep({...}), .before = weights, .after = next,
//                   .state0 = momentum}, 0, weights.size());
//
// If all payloads are rows (or absent), an optimizer may step just the rows that any of them names
// (touched_only).
//
// Each block is computed on its own. Ranges may run on several threads, and the bits do not depend
// on them.
#ifndef SLIMPS_SERVER_ROUND_AGGREGATE_H_
#define SLIMPS_SERVER_ROUND_AGGREGATE_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "compress/codec/codec.h"
#include "compress/format/sum.h"
#include "compress/kernels/kernels.h"
#include "server/round/change_encoder.h"
#include "server/round/optimizer.h"

namespace slimps {

// All spans of weights and state have one length. State that the optimizer does not need may be
// empty.
struct AggregateInput {
  std::span<const PayloadView> payloads;  // in rank order; ValidatePayload was OK for each
  Combine combine = Combine::kSum;
  const Optimizer* optimizer = nullptr;
  Optimizer::Step step;
  std::span<const float> before;
  std::span<float> after;  // may be `before`
  std::span<float> state0 = {};
  std::span<float> state1 = {};
  ChangeEncoder* change = nullptr;  // nullptr: none
  // Elements of rows that no payload names keep their value and state.
  // REQUIRES: all payloads are kRows or kAbsent.
  bool touched_only = false;
};

// Computes elements [first, last). Allocates nothing.
// REQUIRES: `first` is a multiple of kBlockElements, and `last` too or the end.
void AggregateRound(const AggregateInput& input, size_t first, size_t last);

// The same with chosen kernels, for tests and benches. A change encoder brings its own.
void AggregateRoundWith(const Kernels& kernels, const AggregateInput& input, size_t first,
                        size_t last);

// Returns the sum of squares of the payloads' sum over all `elements`, in double. Its bits depend
// on nothing but the sum.
// REQUIRES: ValidatePayload was OK for each payload.
double SquaresOfSum(std::span<const PayloadView> payloads, size_t elements);

// One complete round of an auxiliary key (InitItem.auxiliary in proto/slimps.proto). No optimizer
// takes part, and the version before plays no role:
//
//   kSum            v = the sum over workers
//   kMaximum        v = the largest of 0 and what workers sent; NaN if any of it is NaN
//   kOrthogonalise  v = the sum, whose rows are then made orthonormal (orthonormal.h). Where all
//                   payloads are rows (rows.h), up to the last of these; later ones are 0
struct CombinedRound {
  std::span<const PayloadView> payloads;  // in rank order; ValidatePayload was OK for each
  Combine combine = Combine::kSum;
  uint64_t round = 1;
  size_t row_elements = 1;  // kOrthogonalise: at least as many as there are rows
};

// Writes the round's value to `out`, all of the key's elements. Throws std::bad_alloc.
// REQUIRES: the combination is one of the three.
void CombineRound(const CombinedRound& round, std::span<float> out);

}  // namespace slimps

#endif  // SLIMPS_SERVER_ROUND_AGGREGATE_H_
