// SPDX-License-Identifier: Apache-2.0
// Accordion's test for critical regimes (Agarwal et al., "Adaptive Gradient Communication via
// Critical Learning Regime Identification", MLSys 2021, algorithm 1, as L-GreCo section 5.3 uses
// it). A tensor is in a critical regime, in which it must be compressed little, in three cases:
//
// - | |D_before| - |D_now| | >= eta * |D_before|, D being the gradient accumulated over a window
// - the learning rate has fallen to half or less since the window before
// - there was no window before
//
// The paper compares epochs that are an interval of 10 epochs apart, and has eta = 0.5. Here
// windows follow each other, and their length is an option, since a server knows no epochs: a
// window of 10 epochs' rounds is the paper's setting. The norm here is the root of the workers' sum
// of squares, where the paper has the norm of the averaged gradient; over long windows the two fall
// and rise together. The paper's learning rates fall in steps of ten, and any fall counts; with a
// rate that falls a little in every round, as a cosine, that would make all windows critical.
// Thread-compatible.
//
//   CriticalRegimes regimes(/*eta=*/0.5);
//   regimes.Observe(report);                 // once a window
//   if (regimes.critical(key)) ...
#ifndef SLIMPS_COMPRESS_POLICY_CONTROLLERS_CRITICAL_REGIMES_H_
#define SLIMPS_COMPRESS_POLICY_CONTROLLERS_CRITICAL_REGIMES_H_

#include <map>
#include <string>

#include "compress/policy/controllers/report.h"
#include "compress/policy/controllers/state_text.h"

namespace slimps {

class CriticalRegimes final {
 public:
  explicit CriticalRegimes(double eta) : eta_(eta) {}

  void Observe(const Report& report);

  // A tensor that was not reported in the newest window is critical.
  bool critical(KeyId key) const;

  // Returns what the newest window said about the tensor, in words.
  std::string Reason(KeyId key) const;

  void SaveTo(StateWriter& state) const;
  void RestoreFrom(StateReader& state);

 private:
  double eta_;
  double learning_rate_ = 0;
  bool learning_rate_fell_ = false;
  std::map<KeyId, double> norms_;    // of the newest window
  std::map<KeyId, double> changes_;  // relative, from the window before
};

}  // namespace slimps

#endif  // SLIMPS_COMPRESS_POLICY_CONTROLLERS_CRITICAL_REGIMES_H_
