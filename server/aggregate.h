// What a server computes for one complete round of one partition, in one pass over memory:
//
//   payloads of N workers --SumPayloads--> sum (a block, in cache) --majority?--> --Optimizer--> weights of the next
//                                                                     version --ChangeEncoder, if any--> bytes for pulls
//
//   AggregateRound({.payloads = views, .optimizer = optimizer.get(), .step = optimizer->PlanStep({...}),
//                   .before = weights, .after = next, .state0 = momentum}, 0, weights.size());
//
// Where all payloads are rows (or absent), an optimizer steps their union alone (touched_only).
//
// Blocks are computed on their own: ranges may run on several threads, and the bits do not depend on them.
#ifndef SLIMPS_SERVER_AGGREGATE_H_
#define SLIMPS_SERVER_AGGREGATE_H_

#include <cstddef>
#include <span>

#include "compress/codec/codec.h"
#include "compress/format/sum.h"
#include "compress/kernels/kernels.h"
#include "server/change_encoder.h"
#include "server/optimizer.h"

namespace slimps {

// Spans of weights and state have one length; state that the optimizer does not need may be empty.
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
  // Elements of rows that no payload names stay as they are, their state too. REQUIRES: all payloads are kRows or kAbsent.
  bool touched_only = false;
};

// Elements [first, last). REQUIRES: first is a multiple of kBlockElements, last too or the end. Allocates nothing.
void AggregateRound(const AggregateInput& input, size_t first, size_t last);

// With chosen kernels, for tests and benches. A change encoder has its own.
void AggregateRoundWith(const Kernels& kernels, const AggregateInput& input, size_t first,
                        size_t last);

}  // namespace slimps

#endif  // SLIMPS_SERVER_AGGREGATE_H_
