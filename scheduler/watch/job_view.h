// SPDX-License-Identifier: Apache-2.0
// What the scheduler knows of its job at one moment, as plain values: the scheduler's side of what
// JobWatch shows.
#ifndef SLIMPS_SCHEDULER_WATCH_JOB_VIEW_H_
#define SLIMPS_SCHEDULER_WATCH_JOB_VIEW_H_

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "proto/slimps.pb.h"

namespace slimps {

using NodePlace = std::pair<wire::Role, uint32_t>;  // role and rank

// A member of the job.
struct NodeView {
  // kGone: its place waits for a new process. kAway: the job goes on without it.
  enum class State { kThere, kGone, kAway, kLeft };
  NodePlace place;
  std::string host;
  uint64_t pid = 0;
  uint32_t restarts = 0;
  State state = State::kThere;
  absl::Duration unheard;  // since it was heard

  friend bool operator==(const NodeView&, const NodeView&) = default;
};

// A barrier that some have come to.
struct OpenBarrier {
  std::string name;
  uint64_t ticket = 0;
  std::string purpose;
  bool sums = false;  // it sums numbers
  std::vector<NodePlace> missing;

  friend bool operator==(const OpenBarrier&, const OpenBarrier&) = default;
};

// Keys that some workers have declared.
struct Undeclared {
  std::vector<std::string> keys;   // typed names, at most eight
  std::vector<NodePlace> missing;  // workers that have not declared all of these

  friend bool operator==(const Undeclared&, const Undeclared&) = default;
};

struct JobView {
  enum class Phase { kForming, kRunning, kEnding, kFailed, kDone };
  std::string id;
  Phase phase = Phase::kForming;
  std::string why;  // of a failure
  uint32_t num_workers = 0;
  uint32_t num_servers = 0;
  std::vector<NodeView> nodes;  // servers before workers, each by rank
  std::vector<OpenBarrier> barriers;
  Undeclared undeclared;
  std::vector<NodePlace> unreported;       // workers whose report the next decision lacks
  std::optional<wire::CodecMap> decision;  // if it is newer than what the caller knows
  std::vector<std::string> refusals;       // newest last
};

}  // namespace slimps

#endif  // SLIMPS_SCHEDULER_WATCH_JOB_VIEW_H_
