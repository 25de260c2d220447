// How often a line may be logged that others can cause.
//
//   if (const auto left_out = rate.Take(clock.Now())) LOG(WARNING) << "bad frame: " << why << LeftOut(*left_out);
#ifndef SLIMPS_PROTO_BASE_LOG_RATE_H_
#define SLIMPS_PROTO_BASE_LOG_RATE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

namespace slimps {

// Ten lines an interval. `Time` is a point of time as clocks give it. Thread-compatible.
template <typename Time>
class LogRate final {
 public:
  using Duration = decltype(Time() - Time());
  explicit LogRate(Duration interval) : interval_(interval) {}

  // nullopt: not now. Else how many lines were left out since the last one.
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

// "" or " (and 17 lines like it before)".
inline std::string LeftOut(uint64_t lines) {
  return lines == 0 ? "" : " (and " + std::to_string(lines) + " lines like it before)";
}

}  // namespace slimps

#endif  // SLIMPS_PROTO_BASE_LOG_RATE_H_
