// ThresholdTable (CTTab): from which tensor size on compressing a push (or a pull: a table of its own) is worth its cost.
// Source: SlimGC section 3.3, algorithms 1 and 2; beyond it: averages that outliers do not move (robust.h), sizes without
// samples filled in (link_model.h), a decision over all sizes together and hysteresis (threshold_choice.h).
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
#include "compress/policy/robust.h"
#include "compress/policy/threshold_row.h"

namespace slimps {

enum class StepKind { kRaw, kCompressed, kDecided };

// How round `round` (from 1) is pushed: even rounds compressed, odd raw, rounds after `pre_steps`
// as decided.
StepKind ProfilingStep(uint64_t round, uint64_t pre_steps);
// The first two rounds are pushed like the others but measure cold caches and new connections: not
// counted.
bool ProfilingCounts(uint64_t round);

// Thread-compatible.
class ThresholdTable final {
 public:
  // Limits of what FromRows and Parse accept, so that sums cannot overflow.
  static constexpr uint64_t kMaxRows = 1 << 16;
  static constexpr uint64_t kMaxSamples = 1'000'000;
  static constexpr absl::Duration kMaxTime = absl::Hours(1);

  ThresholdTable() = default;
  // `codec`: what the compressed pushes used, a codec spec; a table speaks for that codec alone.
  // Of each size the newest `kept_samples` count.
  explicit ThresholdTable(std::string codec, size_t kept_samples = SampleWindow::kKept)
      : codec_(std::move(codec)), kept_samples_(kept_samples) {}

  // A row without samples, to be filled in; a size that is there keeps its samples. `tensors`: how many of the size a step
  // has, 0: not known.
  void AddSize(uint64_t bytes, uint64_t tensors = 0);
  // Times outside 0 .. kMaxTime are clamped.
  void AddRaw(uint64_t bytes, absl::Duration t_c);
  void AddCompressed(uint64_t bytes, absl::Duration t_cq, absl::Duration t_pq);

  const std::string& codec() const { return codec_; }
  bool empty() const { return entries_.empty(); }
  // Going up the sizes.
  std::vector<ThresholdRow> Rows() const;
  // The table that has these rows. InvalidArgument: a size twice, a time or count outside the
  // limits.
  [[nodiscard]] static absl::StatusOr<ThresholdTable> FromRows(std::string codec,
                                                               std::span<const ThresholdRow> rows);

  // Trimmed mean of the workers' averages per size (of two the mean, of three the median), samples added up, the largest number of
  // tensors. Where some
  // worker has measured a size both ways, those count that have. The codec is the first table's.
  static ThresholdTable Average(std::span<const ThresholdTable> workers);

  // BestCT (threshold_choice.h). nullopt: nothing gains.
  std::optional<uint64_t> BestCompressionThreshold() const;

  // For people: one line per size with the times that decide (DecidedRows) in ms, the gain (t_c / t_q, the paper's) and what
  // is done with it; the rule; the threshold; what that is estimated to save of a step. Times that were not measured have a
  // ~ before them.
  std::string Explain() const { return Explain(BestCompressionThreshold()); }
  // The same where `threshold` is in force, which hysteresis may hold off the best one.
  std::string Explain(std::optional<uint64_t> threshold) const;

  // Line oriented text that Parse reads back to an equal table.
  std::string ToText() const;
  // InvalidArgument names the line and what was expected there.
  [[nodiscard]] static absl::StatusOr<ThresholdTable> Parse(std::string_view text);

 private:
  struct Entry {
    SampleWindow t_c, t_cq, t_pq;  // ns
    uint64_t raw_samples = 0;      // ever
    uint64_t compressed_samples = 0;
    uint64_t tensors = 0;
  };

  Entry& EntryOf(uint64_t bytes);
  static Entry EntryWith(const ThresholdRow& row, size_t kept_samples);

  std::string codec_;
  size_t kept_samples_ = SampleWindow::kKept;
  std::map<uint64_t, Entry> entries_;  // by bytes
};

}  // namespace slimps

#endif  // SLIMPS_COMPRESS_POLICY_THRESHOLD_TABLE_H_
