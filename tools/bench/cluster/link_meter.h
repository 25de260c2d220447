// SPDX-License-Identifier: Apache-2.0
// Records when a network interface carries something, from the kernel's counters.
//
//   LinkMeter meter("eth0");                  // reads them every 2 ms on a thread of its own
//   ...
//   const IntervalSet busy = meter.Stop();
#ifndef SLIMPS_TOOLS_BENCH_CLUSTER_LINK_METER_H_
#define SLIMPS_TOOLS_BENCH_CLUSTER_LINK_METER_H_

#include <atomic>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "proto/base/clock.h"
#include "proto/base/thread.h"
#include "tools/bench/cluster/intervals.h"

namespace slimps {

// Bytes since the interface came up.
struct LinkCounters {
  uint64_t in = 0;
  uint64_t out = 0;
};

// Reads an interface's counters from a text in the form of /proc/net/dev.
// NotFound: the text has no such interface.
// DataLoss: the text has another form.
[[nodiscard]] absl::StatusOr<LinkCounters> ParseLinkCounters(std::string_view text,
                                                             std::string_view interface);

// Reads the counters of an interface of this process's network namespace.
[[nodiscard]] absl::StatusOr<LinkCounters> ReadLinkCounters(const std::string& interface);

struct LinkSample {
  SteadyTime at;
  LinkCounters counters;
};

// Returns the times between two samples in which either direction carried at least
// `bytes_per_second`. The bound keeps heartbeats and acknowledgements from making a link busy.
IntervalSet BusyIntervals(std::span<const LinkSample> samples, double bytes_per_second);

// Owned by one thread.
class LinkMeter final {
 public:
  explicit LinkMeter(std::string interface);
  ~LinkMeter();
  LinkMeter(const LinkMeter&) = delete;
  LinkMeter& operator=(const LinkMeter&) = delete;

  // Stops the thread and returns when the interface carried something.
  IntervalSet Stop();

 private:
  void Run();

  const std::string interface_;
  std::atomic<bool> stopping_{false};
  std::vector<LinkSample> samples_;  // owned by thread_ until it is joined
  Thread thread_;                    // the last member, since it uses the others
};

}  // namespace slimps

#endif  // SLIMPS_TOOLS_BENCH_CLUSTER_LINK_METER_H_
