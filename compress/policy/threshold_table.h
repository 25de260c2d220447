// SPDX-License-Identifier: Apache-2.0
// ThresholdTable (CTTab) says from which tensor size on compressing is worth its cost. Pushes and
// pulls have a table each. Source: SlimGC section 3.3, algorithms 1 and 2. Beyond the paper:
// averages that outliers do not move (robust.h), sizes without samples filled in (link_model.h),
// and a decision over all sizes together, with hysteresis (threshold_choice.h).
//
//   ThresholdTable table("1bit:scaling=l1");
//   switch (ProfilingStep(round, pre_steps)) {             // rounds count from 1
//     case StepKind::kRaw:        ... if (ProfilingCounts(round)) table.AddRaw(bytes, t_c);
//     case StepKind::kCompressed: ... table.AddCompressed(bytes, t_cq, t_pq);
//     case StepKind::kDecided:    ... the codec map holds (codec_map.h)
//   }
//   ThresholdTable::Average(tables_of_all_workers).BestCompressionThreshold();
//
// A size is a whole tensor's fp32 bytes. Pure: no clock, no I/O. threshold_explanation.h puts a
// table into words; threshold_table_file.h saves and loads it.
#ifndef SLIMPS_COMPRESS_POLICY_THRESHOLD_TABLE_H_
#define SLIMPS_COMPRESS_POLICY_THRESHOLD_TABLE_H_

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "compress/policy/robust.h"
#include "compress/policy/threshold_row.h"

namespace slimps {

enum class StepKind { kRaw, kCompressed, kDecided };

// Returns how `round` (from 1) is pushed: odd rounds raw, even rounds compressed, rounds after
// `pre_steps` as decided.
StepKind ProfilingStep(uint64_t round, uint64_t pre_steps);

// True if the times of `round` count. The first two rounds are pushed like the others, but they
// measure cold caches and new connections.
bool ProfilingCounts(uint64_t round);

// Thread-compatible.
class ThresholdTable final {
 public:
  // What FromRows accepts at most, so that sums cannot overflow.
  static constexpr uint64_t kMaxRows = 1 << 16;
  static constexpr uint64_t kMaxSamples = 1'000'000;
  static constexpr absl::Duration kMaxTime = absl::Hours(1);

  ThresholdTable() = default;
  // `codec`: the codec spec that the compressed pushes used. A table holds for that codec alone.
  // The newest `kept_samples` of each size count.
  explicit ThresholdTable(std::string codec, size_t kept_samples = SampleWindow::kKept)
      : codec_(std::move(codec)), kept_samples_(kept_samples) {}

  // Adds a row without samples, to be filled in later. A size that exists keeps its samples.
  // `tensors`: how many tensors of this size a step has. 0: not known.
  void AddSize(uint64_t bytes, uint64_t tensors = 0);

  // Add a sample. Times are clamped to 0 .. kMaxTime.
  void AddRaw(uint64_t bytes, absl::Duration t_c);
  void AddCompressed(uint64_t bytes, absl::Duration t_cq, absl::Duration t_pq);

  const std::string& codec() const { return codec_; }
  bool empty() const { return entries_.empty(); }
  // Returns the rows by rising size.
  std::vector<ThresholdRow> Rows() const;

  // Returns the table that has these rows.
  // InvalidArgument: a size appears twice, or a time, a count or the number of rows is over its
  // limit.
  [[nodiscard]] static absl::StatusOr<ThresholdTable> FromRows(std::string codec,
                                                               std::span<const ThresholdRow> rows);

  // Averages the workers' tables, size by size:
  // - a time is the trimmed mean of the workers' averages (the mean of two, the median of three)
  // - samples are added up
  // - the number of tensors is the largest that any worker gave
  // If some workers have measured a size both ways, only those count for it. The codec is the first
  // table's.
  static ThresholdTable Average(std::span<const ThresholdTable> workers);

  // Returns BestCT (threshold_choice.h). nullopt: compressing gains nothing.
  std::optional<uint64_t> BestCompressionThreshold() const;

 private:
  struct Entry {
    SampleWindow t_c, t_cq, t_pq;  // ns
    uint64_t raw_samples = 0;      // all there ever were, not only those kept
    uint64_t compressed_samples = 0;
    uint64_t tensors = 0;
  };

  Entry& EntryOf(uint64_t bytes);
  static Entry EntryWith(const ThresholdRow& row, size_t kept_samples);

  std::string codec_;
  size_t kept_samples_ = SampleWindow::kKept;
  std::map<uint64_t, Entry> entries_;  // by the size in bytes
};

}  // namespace slimps

#endif  // SLIMPS_COMPRESS_POLICY_THRESHOLD_TABLE_H_
