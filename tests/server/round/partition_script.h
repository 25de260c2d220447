// SPDX-License-Identifier: Apache-2.0
// Scripts of what happens to a partition: pushes in some order, repeats, refusals, other
// optimizers, workers that leave.
#ifndef SLIMPS_TESTS_SERVER_ROUND_PARTITION_SCRIPT_H_
#define SLIMPS_TESTS_SERVER_ROUND_PARTITION_SCRIPT_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "compress/codec/codec.h"
#include "server/round/change_codecs.h"
#include "server/round/partition.h"

namespace slimps {

inline constexpr size_t kRowElements = 50;
inline constexpr size_t kElements = 96 * kRowElements;  // one whole block and a part of another
inline constexpr size_t kMuch = size_t{1} << 30;

// What a script is about.
struct Scenario {
  std::string name;
  wire::OptimizerSpec optimizer = {};
  std::vector<std::string> codecs = {""};  // of pulls, by turns
  enum class Push { kRaw, kSigns, kRows, kLanes, kFirstRows } push = Push::kRaw;
  wire::StoreMode mode = wire::DIST_SYNC;
  std::optional<Combine> auxiliary = std::nullopt;
  wire::DType dtype = wire::FLOAT32;
  size_t most_waiting = kMuch;
  Combine combine = Combine::kSum;
  uint32_t workers = 3;
  bool clipped = false;  // by the norm of several keys
};

// Each look at it takes a moment, so that times that are measured are not zero.
class TickingClock final : public Clock {
 public:
  SteadyTime Now() const override { return now_ += absl::Microseconds(1); }
  absl::Time WallNow() const override { return absl::UnixEpoch(); }

 private:
  mutable SteadyTime now_;
};

// A partition, and what it needs around it.
struct Subject {
  std::unique_ptr<TickingClock> clock = std::make_unique<TickingClock>();
  ChangeCodecs codecs{clock.get()};
  std::shared_ptr<WaitingBytes> waiting;
  std::unique_ptr<Partition> partition;
};

wire::OptimizerSpec Rule(wire::OptimizerSpec::Kind kind, uint64_t freeze_after = 0);

Subject MakeSubject(const Scenario& scenario);

// Returns everything that anyone can ask the partition.
std::string Answers(Subject& subject);

// One thing that happens to a partition; returns what it said.
using Event = std::function<std::string(Subject&)>;

// Returns what happens, which is the same in each call.
std::vector<Event> EventsOf(const Scenario& scenario);

}  // namespace slimps

#endif  // SLIMPS_TESTS_SERVER_ROUND_PARTITION_SCRIPT_H_
