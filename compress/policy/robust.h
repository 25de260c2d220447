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

// The mean of what is left without the lowest and the highest quarter (at least one of each from three values on), in
// whole numbers: of one or two values the mean, of three the median. 0 of none.
int64_t TrimmedMean(std::vector<int64_t> values);

// The newest samples of one quantity. Thread-compatible.
class SampleWindow final {
 public:
  static constexpr size_t kKept = 128;

  explicit SampleWindow(size_t kept = kKept) : kept_(kept) {}

  void Add(int64_t value);
  int64_t average() const { return TrimmedMean(samples_); }
  bool empty() const { return samples_.empty(); }
  // How many are kept.
  size_t size() const { return samples_.size(); }

 private:
  size_t kept_;
  std::vector<int64_t> samples_;
  size_t oldest_ = 0;  // once there are kept_ of them
};

}  // namespace slimps

#endif  // SLIMPS_COMPRESS_POLICY_ROBUST_H_
