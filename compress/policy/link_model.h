// SPDX-License-Identifier: Apache-2.0
// Estimates what a link and a codec take for a tensor of any size, from the sizes that were
// measured.
//
//   t_c(x)  = startup + x * raw_per_byte           sending x bytes of fp32 raw
//   t_cq(x) = startup + x * compressed_per_byte    sending them compressed
//   t_pq(x) = coding_startup + x * coding_per_byte
//
// Raw and compressed pushes share one start-up time, since it is the link's, whatever the link
// carries. Where the small sizes agree that compressed pushes start later or earlier, each kind has
// its own.
//
// The lines are weighted least-squares fits of relative errors, in which sizes that lie far off
// count less (Huber's weights). For a measured size the measured time counts beside the line's. It
// counts more, the more of it depends on the size: small sizes scatter about their start-up time,
// and that scatter is the machines' scheduling. Between measured sizes the distance to the line is
// interpolated over the size's logarithm.
//
//   LinkModel model(table.Rows());
//   if (model.known()) model.At(1 << 20).saving();  // ns that compressing 1 MiB saves
#ifndef SLIMPS_COMPRESS_POLICY_LINK_MODEL_H_
#define SLIMPS_COMPRESS_POLICY_LINK_MODEL_H_

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "compress/policy/threshold_row.h"

namespace slimps {

// The times of one tensor, in nanoseconds.
struct PushTimes {
  double t_c = 0, t_cq = 0, t_pq = 0;
  double t_q() const { return t_cq + t_pq; }
  double saving() const { return t_c - t_q(); }
};

// Thread-safe: immutable.
class LinkModel final {
 public:
  explicit LinkModel(std::span<const ThresholdRow> rows);

  // True if two sizes or more were measured raw, and two or more compressed.
  bool known() const { return known_; }

  // Returns the times of a tensor of `bytes` bytes of fp32. REQUIRES: known().
  PushTimes At(uint64_t bytes) const;

  // Start-up times are in nanoseconds, rates in nanoseconds per byte of fp32.
  double startup() const { return raw_.startup; }
  double compressed_startup() const { return compressed_.startup; }
  double raw_per_byte() const { return raw_.per_byte; }
  double compressed_per_byte() const { return compressed_.per_byte; }
  double coding_startup() const { return coding_.startup; }
  double coding_per_byte() const { return coding_.per_byte; }

 private:
  struct Line {
    double startup = 0, per_byte = 0;
    // Pairs (log2 of the size, ln of expected time / the line's time), by rising size.
    std::vector<std::pair<double, double>> distances = {};

    double OnLine(double bytes) const { return startup + per_byte * bytes; }
    double At(double bytes) const;
  };
  struct Sample {
    double bytes = 0, ns = 0;
    double weight = 0;
  };
  using Samples = std::vector<Sample>;

  // Fits raw_ and compressed_ together, with one start-up time, and coding_ by itself.
  void FitLines(const Samples& raw, const Samples& compressed, const Samples& coding);
  static Line FitLine(const Samples& samples);

  // True if small sizes take longer or shorter compressed than the lines say, by clearly more than
  // they scatter.
  bool StartUpsDiffer(std::span<const ThresholdRow> rows) const;

  // Sets the line's distances. `noise`: the scatter of start-up times, in ns.
  static void TakeDistances(const Samples& samples, double noise, Line* line);

  // Returns the scatter of small sizes about their lines, in ns. 0: too few small sizes.
  static double Noise(std::span<const std::pair<const Samples*, const Line*>> measured);

  bool known_ = false;
  Line raw_, compressed_, coding_;
};

}  // namespace slimps

#endif  // SLIMPS_COMPRESS_POLICY_LINK_MODEL_H_
