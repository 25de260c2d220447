// SPDX-License-Identifier: Apache-2.0
// Averages that a few bad samples do not move. Pure.
//
//   SampleWindow window;
//   window.Add(1200); window.Add(1180); window.Add(40'000);
//   window.average();   // 1200
#ifndef SLIMPS_COMPRESS_POLICY_ROBUST_H_
#define SLIMPS_COMPRESS_POLICY_ROBUST_H_

#include <cstddef>
#include <cstdint>
#include <vector>

namespace slimps {

// Returns the mean of the values without the lowest and the highest quarter, in whole numbers. From
// three values on at least one is dropped at each end. So the result is the mean of one or two
// values, and the median of three. No values: 0.
int64_t TrimmedMean(std::vector<int64_t> values);

// Returns the same of real values.
double TrimmedMeanOfReals(std::vector<double> values);

// The newest samples of one quantity. Thread-compatible.
class SampleWindow final {
 public:
  static constexpr size_t kKept = 128;

  explicit SampleWindow(size_t kept = kKept) : kept_(kept) {}

  void Add(int64_t value);
  int64_t average() const { return TrimmedMean(samples_); }
  bool empty() const { return samples_.empty(); }

  // Returns how many samples are kept.
  size_t size() const { return samples_.size(); }

 private:
  size_t kept_;
  std::vector<int64_t> samples_;
  size_t oldest_ = 0;  // index of the oldest sample, once there are kept_ of them
};

}  // namespace slimps

#endif  // SLIMPS_COMPRESS_POLICY_ROBUST_H_
