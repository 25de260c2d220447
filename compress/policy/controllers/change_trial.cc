// SPDX-License-Identifier: Apache-2.0
#include "compress/policy/controllers/change_trial.h"

#include <algorithm>

namespace slimps {

void ChangeTrial::Begin(std::map<KeyId, std::string> before, double before_ns) {
  before_ = std::move(before);
  before_ns_ = before_ns;
  failed_ = false;
}

bool ChangeTrial::Fails(double iteration_ns) {
  if (iteration_ns <= before_ns_ * (1 + kSlower)) {
    Forget();
    return false;
  }
  failed_ = true;
  doubt_ = std::clamp(2 * doubt_, kWindowsOfDoubt, kMostWindowsOfDoubt);
  windows_ = 0;
  return true;
}

bool ChangeTrial::Doubts(double iteration_ns) {
  if (!failed_) return false;
  const double change = iteration_ns / before_ns_;
  if (change > 1 + kChanged || change < 1 / (1 + kChanged)) {
    Forget();
  } else if (++windows_ > doubt_) {
    failed_ = false;
    before_ns_ = 0;
  }
  return failed_;
}

void ChangeTrial::SaveTo(StateWriter& state) const {
  state.Add(before_).Add(before_ns_).Add(uint64_t{failed_}).Add(doubt_).Add(windows_);
}

void ChangeTrial::RestoreFrom(StateReader& state) {
  before_ = state.Codecs();
  before_ns_ = state.Real();
  failed_ = state.Uint() != 0;
  doubt_ = state.Uint();
  windows_ = state.Uint();
}

}  // namespace slimps
