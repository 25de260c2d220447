// SPDX-License-Identifier: Apache-2.0
// ChangeTrial: whether a decision's newest change was one for the better, by measured iterations.
// For controllers whose model of an iteration knows nothing of cores that several processes share.
//
//   trial.Begin(in_force, report.iteration_ns);   // and the change is decided
//   if (trial.is_open() && trial.Fails(report.iteration_ns)) decide(trial.before());
//   if (trial.Doubts(report.iteration_ns)) return std::nullopt;
//
// What is measured to be slower than what was in force before, by more than kSlower, fails. After
// that the model is doubted for kWindowsOfDoubt windows; if the next trial fails, too, for twice as
// many, and so on. If iterations become slower or faster meanwhile, by more than kChanged, then the
// machine or the link has changed, and all that is forgotten.
#ifndef SLIMPS_COMPRESS_POLICY_CONTROLLERS_CHANGE_TRIAL_H_
#define SLIMPS_COMPRESS_POLICY_CONTROLLERS_CHANGE_TRIAL_H_

#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "compress/policy/controllers/state_text.h"
#include "proto/base/key.h"

namespace slimps {

class ChangeTrial final {
 public:
  static constexpr double kSlower = 0.05, kChanged = 0.1;
  static constexpr uint64_t kWindowsOfDoubt = 4, kMostWindowsOfDoubt = 64;

  // A change is decided. `before`: what was in force, each tensor's codec; `before_ns`: an
  // iteration with that, above 0.
  void Begin(std::map<KeyId, std::string> before, double before_ns);

  // True from Begin on until Fails or Forget.
  bool is_open() const { return before_ns_ > 0 && !failed_; }

  const std::map<KeyId, std::string>& before() const { return before_; }
  double before_ns() const { return before_ns_; }

  // Ends the trial by a window in which the change alone was in force. True if it failed.
  // REQUIRES: is_open().
  bool Fails(double iteration_ns);

  // Ends the trial without a verdict, and doubts no more.
  void Forget() { *this = {}; }

  // Counts a window. True while the model is doubted.
  bool Doubts(double iteration_ns);

  void SaveTo(StateWriter& state) const;
  void RestoreFrom(StateReader& state);

 private:
  std::map<KeyId, std::string> before_;
  double before_ns_ = 0;
  bool failed_ = false;
  uint64_t doubt_ = 0;    // how many windows the newest doubt lasts
  uint64_t windows_ = 0;  // of these that are over
};

}  // namespace slimps

#endif  // SLIMPS_COMPRESS_POLICY_CONTROLLERS_CHANGE_TRIAL_H_
