// ThresholdTable (CTTab): from which tensor size on compressing a push is worth its cost. Source:
// SlimGC section 3.3, algorithms 1 and 2.
//
//   ThresholdTable table("1bit:scaling=l1");
//   switch (ProfilingStep(round, pre_steps)) {             // rounds count from 1
//     case StepKind::kRaw:        ... if (ProfilingCounts(round)) table.AddRaw(bytes, t_c);
//     case StepKind::kCompressed: ... table.AddCompressed(bytes, t_cq, t_pq);
//     case StepKind::kDecided:    ... the codec map holds (codec_map.h)
//   }
//   ThresholdTable::Average(tables_of_all_workers).BestCompressionThreshold();
//
// Sizes are a whole tensor's fp32 bytes. Pure: no clock, no I/O (threshold_table_file.h saves and
// loads).
#ifndef SLIMPS_COMPRESS_POLICY_THRESHOLD_TABLE_H_
#define SLIMPS_COMPRESS_POLICY_THRESHOLD_TABLE_H_

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace slimps {

enum class StepKind { kRaw, kCompressed, kDecided };

// How round `round` (from 1) is pushed: even rounds compressed, odd raw, rounds after `pre_steps`
// as decided.
StepKind ProfilingStep(uint64_t round, uint64_t pre_steps);
// The first two rounds are pushed like the others but measure cold caches and new connections: not
// counted.
bool ProfilingCounts(uint64_t round);

// Means over the samples, in whole nanoseconds.
struct ThresholdRow {
  uint64_t bytes = 0;
  // Raw: first byte handed to the transport to the server's acknowledgement.
  absl::Duration t_c = {};
  absl::Duration t_cq = {};  // the same of the compressed push
  absl::Duration t_pq = {};  // the worker's encode plus the server's decode
  uint64_t raw_samples = 0;
  uint64_t compressed_samples = 0;

  absl::Duration t_q() const { return t_cq + t_pq; }
  // t_c / t_q; infinity when t_q is 0 and t_c is not. Meaningless unless complete().
  double gain() const;
  // Decides alike for the table and for people: exactly t_c > t_q.
  bool gains() const { return complete() && t_c > t_q(); }
  bool complete() const { return raw_samples > 0 && compressed_samples > 0; }

  friend bool operator==(const ThresholdRow&, const ThresholdRow&) = default;
};

// Thread-compatible.
class ThresholdTable final {
 public:
  // Limits of what FromRows and Parse accept, so that sums cannot overflow.
  static constexpr uint64_t kMaxRows = 1 << 16;
  static constexpr uint64_t kMaxSamples = 1'000'000;
  static constexpr absl::Duration kMaxTime = absl::Hours(1);

  ThresholdTable() = default;
  // `codec`: what the compressed pushes used, a codec spec; a table speaks for that codec alone.
  explicit ThresholdTable(std::string codec) : codec_(std::move(codec)) {}

  // Times outside 0 .. kMaxTime are clamped.
  void AddRaw(uint64_t bytes, absl::Duration t_c);
  void AddCompressed(uint64_t bytes, absl::Duration t_cq, absl::Duration t_pq);

  const std::string& codec() const { return codec_; }
  bool empty() const { return sums_.empty(); }
  // Going up the sizes.
  std::vector<ThresholdRow> Rows() const;
  // The table that has these rows. InvalidArgument: a size twice, a time or count outside the
  // limits.
  [[nodiscard]] static absl::StatusOr<ThresholdTable> FromRows(std::string codec,
                                                               std::span<const ThresholdRow> rows);

  // Mean of the workers' means per size, samples added up. A worker is left out of a size that it
  // has not measured both ways. The codec is the first table's.
  static ThresholdTable Average(std::span<const ThresholdTable> workers);

  // BestCT: going up the sizes, the first whose gain is over 1. nullopt: no size gains.
  std::optional<uint64_t> BestCompressionThreshold() const;

  // For people: one line per size with times in ms, the gain, and in words what is done with it and
  // why.
  std::string Explain() const;

  // Line oriented text that Parse reads back to an equal table.
  std::string ToText() const;
  // InvalidArgument names the line and what was expected there.
  [[nodiscard]] static absl::StatusOr<ThresholdTable> Parse(std::string_view text);

 private:
  struct Sums {
    absl::Duration t_c = {}, t_cq = {}, t_pq = {};
    uint64_t raw_samples = 0;
    uint64_t compressed_samples = 0;
  };

  std::string codec_;
  std::map<uint64_t, Sums> sums_;  // by bytes
};

}  // namespace slimps

#endif  // SLIMPS_COMPRESS_POLICY_THRESHOLD_TABLE_H_
