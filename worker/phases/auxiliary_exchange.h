// SPDX-License-Identifier: Apache-2.0
// AuxiliaryExchange: one phase of an exchange. It pushes what this worker contributes to a round of
// an auxiliary key, and brings back what the workers' pushes of that round combine to. Push and
// pull travel in one message, and small ones of several keys share it.
//
//   phases.Combine({.key = plan, .round = 7, .rows = 4, .values = p},
//                  [](Combined combined) { ... });
//   if (nothing_more_to_add) phases.Flush();
//
// The request goes with the push, and no worker pushes a key's next round before it has the answer.
// So the answer is always exactly the round's. A phase that needs just the first rows of its key
// sends and brings no more.
//
// Thread-safe.
#ifndef SLIMPS_WORKER_PHASES_AUXILIARY_EXCHANGE_H_
#define SLIMPS_WORKER_PHASES_AUXILIARY_EXCHANGE_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "proto/base/buffer.h"
#include "proto/base/mutex.h"
#include "worker/courier/called_once.h"
#include "worker/courier/coalescer.h"
#include "worker/courier/courier.h"
#include "worker/tensor/key_table.h"

namespace slimps {

// What a worker contributes.
struct Contributed {
  const TensorPlan* key = nullptr;  // one partition; lives as long as the store
  uint64_t round = 0;               // from 1; each round once, in their order
  uint64_t job_round = 0;           // of the push that this is a phase of
  int64_t priority = 0;             // what is higher leaves first
  size_t rows = 0;  // this phase needs the key's first rows only, fewer than it has; 0: all rows
  Payload values;   // fp32, all elements of these rows; empty: this worker contributes nothing
};

// What the workers' contributions combine to.
struct Combined {
  absl::Status status;
  std::vector<float> values;           // all elements of those rows
  std::vector<uint32_t> contributors;  // the workers that contributed values, in rank order
};

struct AuxiliaryExchangeOptions {
  absl::Duration timeout = absl::Seconds(60);
  bool checksums = true;  // hash payloads
  // Called with each answered push, as LinkFigures::Answered. On any thread.
  std::function<void(uint64_t job_round, size_t bytes, absl::Duration round_trip)> on_passed;
};

class AuxiliaryExchange final {
 public:
  struct Totals {
    uint64_t bytes_pushed = 0, bytes_pulled = 0;
  };

  // REQUIRES: `courier` outlives this object, and is stopped before it ends.
  AuxiliaryExchange(Courier* courier, const AuxiliaryExchangeOptions& options)
      : courier_(courier), options_(options) {}

  // Sends the contribution, at the latest with Flush, and calls `done` once, on the thread that
  // brings the answer. Errors:
  // DeadlineExceeded: some worker did not contribute within the timeout (the message names it).
  // DataLoss: the answer is not this round of this key.
  // Otherwise the server's refusal, or the courier's failure.
  void Combine(Contributed mine, CalledOnce<Combined> done);

  // Sends what waits for company.
  void Flush();

  // Returns what acknowledged pushes and answers carried.
  Totals totals() const;

 private:
  struct Waiting;

  void Add(uint32_t server, OutgoingItem item, int64_t priority)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(sending_);
  void OnPushed(Waiting& waiting, size_t bytes, const Answer& answer);
  void OnPulled(Waiting& waiting, const Answer& answer);

  Courier* const courier_;
  const AuxiliaryExchangeOptions options_;
  Mutex sending_;  // held while a batch is taken out and dispatched: rounds keep their order
  Coalescer coalescer_ ABSL_GUARDED_BY(sending_);
  // Counters: they publish nothing but themselves.
  std::atomic<uint64_t> bytes_pushed_{0}, bytes_pulled_{0};
};

}  // namespace slimps

#endif  // SLIMPS_WORKER_PHASES_AUXILIARY_EXCHANGE_H_
