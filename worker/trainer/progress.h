// SPDX-License-Identifier: Apache-2.0
// Progress: tells people how far training is. A terminal gets one line that is overwritten. Other
// outputs get a line every `log_every` steps and one at the end.
//
//   Progress progress(options, &clock, &std::cout);
//   progress.Report(step, store->totals());   // after each step
//
// It prints one line, such as
//
//   epoch 1/3 step 40/938 loss 0.4312 1532 samples/s pushed 1.2 MB (ratio 30.8)
//   waited 0.41 s [link emulated]
#ifndef SLIMPS_WORKER_TRAINER_PROGRESS_H_
#define SLIMPS_WORKER_TRAINER_PROGRESS_H_

#include <cstddef>
#include <cstdint>
#include <ostream>
#include <string>

#include "absl/time/time.h"
#include "proto/base/clock.h"
#include "worker/kvstore.h"
#include "worker/trainer/train_loop.h"

namespace slimps {

struct ProgressOptions {
  enum class Style { kTerminal, kPlain };
  Style style = Style::kPlain;
  size_t log_every = 50;
  absl::Duration redraw_interval = absl::Milliseconds(100);  // on a terminal
  bool link_emulated = false;
};

// Returns text in decimal units: "1.2 MB", "812 B".
std::string HumanBytes(uint64_t bytes);

// Owned by the training thread.
class Progress final {
 public:
  // The rate in samples per second counts from here. `clock` and `out` must outlive the object.
  Progress(const ProgressOptions& options, const Clock* clock, std::ostream* out);

  // Prints the line for this step if one is due.
  void Report(const StepProgress& step, const StoreTotals& totals);

 private:
  std::string Line(const StepProgress& step, const StoreTotals& totals, SteadyTime now) const;

  const ProgressOptions options_;
  const Clock* const clock_;
  std::ostream* const out_;
  const SteadyTime start_;
  SteadyTime last_drawn_ = SteadyTime::InfinitePast();
  size_t samples_ = 0;
};

}  // namespace slimps

#endif  // SLIMPS_WORKER_TRAINER_PROGRESS_H_
