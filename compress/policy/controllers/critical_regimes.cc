// SPDX-License-Identifier: Apache-2.0
#include "compress/policy/controllers/critical_regimes.h"

#include <cmath>
#include <limits>
#include <utility>

#include "absl/strings/str_format.h"

namespace slimps {
namespace {

constexpr double kFall = 0.5;

}  // namespace

void CriticalRegimes::Observe(const Report& report) {
  std::map<KeyId, double> norms;
  changes_.clear();
  for (const TensorReport& tensor : report.tensors) {
    const KeyId key = tensor.tensor.key;
    const double norm = norms[key] = std::sqrt(tensor.input_norm2);
    const auto before = norms_.find(key);
    if (before == norms_.end()) continue;
    const double change = std::abs(before->second - norm);
    // A gradient that was zero and is not is a change beyond every eta.
    changes_[key] = change == 0           ? 0
                    : before->second == 0 ? std::numeric_limits<double>::max()
                                          : change / before->second;
  }
  norms_ = std::move(norms);
  learning_rate_fell_ = report.learning_rate > 0 && report.learning_rate <= kFall * learning_rate_;
  if (report.learning_rate > 0) learning_rate_ = report.learning_rate;
}

bool CriticalRegimes::critical(KeyId key) const {
  const auto change = changes_.find(key);
  return learning_rate_fell_ || change == changes_.end() || change->second >= eta_;
}

std::string CriticalRegimes::Reason(KeyId key) const {
  if (learning_rate_fell_) return "critical: the learning rate fell";
  const auto change = changes_.find(key);
  if (change == changes_.end()) return "critical: no window to compare with";
  return absl::StrFormat("%s: the gradient's norm changed by %.3g, eta is %.3g",
                         critical(key) ? "critical" : "not critical", change->second, eta_);
}

void CriticalRegimes::SaveTo(StateWriter& state) const {
  state.Add(learning_rate_).Add(uint64_t{learning_rate_fell_}).Add(norms_).Add(changes_);
}

void CriticalRegimes::RestoreFrom(StateReader& state) {
  learning_rate_ = state.Real();
  learning_rate_fell_ = state.Uint() != 0;
  norms_ = state.Reals();
  changes_ = state.Reals();
}

}  // namespace slimps
