// SPDX-License-Identifier: Apache-2.0
// Bounds how often a line is logged that others can cause.
//
//   if (const auto left_out = rate.Take(clock.Now())) {
//     LOG(WARNING) << "bad frame: " << why << LeftOut(*left_out);
//   }
#ifndef SLIMPS_PROTO_BASE_LOG_RATE_H_
#define SLIMPS_PROTO_BASE_LOG_RATE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

namespace slimps {

// Allows ten lines an interval. `Time` is a point in time as clocks return it. Thread-compatible.
template <typename Time>
class LogRate final {
 public:
  using Duration = decltype(Time() - Time());
  explicit LogRate(Duration interval) : interval_(interval) {}

  // Returns how many lines were left out since the last one, if a line may be logged now; else
  // nullopt.
  std::optional<uint64_t> Take(Time now) {
    if (!began_.has_value() || now - *began_ >= interval_) {
      began_ = now;
      lines_ = 0;
    }
    if (lines_ < kLines) {
      ++lines_;
      return std::exchange(left_out_, 0);
    }
    ++left_out_;
    return std::nullopt;
  }

 private:
  static constexpr int kLines = 10;

  const Duration interval_;
  std::optional<Time> began_;
  int lines_ = 0;
  uint64_t left_out_ = 0;
};

// Returns "" or, for example, " (and 17 lines like it before)".
inline std::string LeftOut(uint64_t lines) {
  return lines == 0 ? "" : " (and " + std::to_string(lines) + " lines like it before)";
}

}  // namespace slimps

#endif  // SLIMPS_PROTO_BASE_LOG_RATE_H_
