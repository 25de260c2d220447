// SPDX-License-Identifier: Apache-2.0
#include "worker/trainer/progress.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "proto/base/clock.h"

namespace slimps {

std::string HumanBytes(uint64_t bytes) {
  if (bytes < 1000) return absl::StrCat(bytes, " B");
  double value = static_cast<double>(bytes);
  const char* unit = "B";
  for (const char* next : {"kB", "MB", "GB", "TB"}) {
    if (value < 1000) break;
    value /= 1000;
    unit = next;
  }
  return absl::StrFormat("%.1f %s", value, unit);
}

Progress::Progress(const ProgressOptions& options, const Clock* clock, std::ostream* out)
    : options_(options), clock_(clock), out_(out), start_(clock->Now()) {}

void Progress::Report(const StepProgress& step, const StoreTotals& totals) {
  samples_ += step.samples;
  const SteadyTime now = clock_->Now();
  const bool last = step.step == step.steps;
  if (options_.style == ProgressOptions::Style::kTerminal) {
    if (!last && now - last_drawn_ < options_.redraw_interval) return;
    last_drawn_ = now;
    // ESC [K clears what remains of a longer line before.
    *out_ << "\r" << Line(step, totals, now) << "\x1b[K" << (last ? "\n" : "") << std::flush;
    return;
  }
  const size_t every = std::max<size_t>(1, options_.log_every);
  if (last || step.step % every == 0) *out_ << Line(step, totals, now) << "\n" << std::flush;
}

std::string Progress::Line(const StepProgress& step, const StoreTotals& totals,
                           SteadyTime now) const {
  const double seconds = absl::ToDoubleSeconds(now - start_);
  const double rate = seconds > 0 ? static_cast<double>(samples_) / seconds : 0;
  const double ratio = totals.bytes_pushed > 0
                           ? static_cast<double>(totals.pushed.elements * sizeof(float)) /
                                 static_cast<double>(totals.bytes_pushed)
                           : 1;
  return absl::StrFormat(
      "epoch %d/%d step %d/%d loss %.4f %.0f samples/s pushed %s (ratio %.1f) waited %.2f s%s",
      step.epoch, step.epochs, step.step, step.steps, step.loss.MeanLoss(), rate,
      HumanBytes(totals.bytes_pushed), ratio, absl::ToDoubleSeconds(step.waited),
      options_.link_emulated ? " [link emulated]" : "");
}

}  // namespace slimps
