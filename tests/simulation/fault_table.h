// SPDX-License-Identifier: Apache-2.0
// Counts how often each fault has met each state of the job. It learns the states from the messages
// that arrive.
//
//   FaultTable table(workers, servers);
//   table.Deliver(node, header);                 // each message, as the node gets it
//   table.Crash(wire::SERVER, rank);             // and what the scheduler or a server does
//   table.Count("drops", table.States());
//   std::puts(table.ToString().c_str());         // lines "fault drops split_round 3"
//
// States: split_round: some partition has the pushes of some workers for a round, not of all.
// replay: within the last kReplayLasts a server got a push that its former process had got. rejoin:
// a node has crashed, and is not back. pending_decision: a threshold was
// reported, and the decision has not come to all workers. snapshot: a server writes to its disk.
#ifndef SLIMPS_TESTS_SIMULATION_FAULT_TABLE_H_
#define SLIMPS_TESTS_SIMULATION_FAULT_TABLE_H_

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "proto/slimps.pb.h"

namespace slimps {

// Owned by the run: one thread of it goes on at a time.
class FaultTable final {
 public:
  static constexpr absl::Duration kReplayLasts = absl::Milliseconds(20);

  // `is_writing` says if a server writes to its disk.
  FaultTable(uint32_t workers, uint32_t servers, std::function<bool(uint32_t)> is_writing)
      : workers_(workers), is_writing_(std::move(is_writing)), servers_(servers) {}

  void Deliver(wire::Role role, uint32_t rank, const wire::Header& header);

  // Notes that the node has crashed.
  void Crash(wire::Role role, uint32_t rank);

  // Returns the states that a fault meets now: of a server, or of all nodes if it is another's.
  std::set<std::string> StatesAt(wire::Role role, uint32_t rank) const;
  std::set<std::string> States() const;

  // Counts a fault that has met these.
  void Count(const std::string& fault, const std::set<std::string>& states);

  std::string ToString() const;

 private:
  using Place = std::tuple<uint64_t, uint32_t, uint32_t>;  // key, partition, worker
  struct Server {
    // The workers whose pushes have come, by key, partition and round. Without complete rounds.
    std::map<std::tuple<uint64_t, uint32_t, uint64_t>, std::set<uint32_t>> split;
    std::map<std::pair<uint64_t, uint32_t>, uint64_t> complete;  // the newest complete round
    std::map<Place, uint64_t> got, former_got;                   // the newest round
    absl::Duration replayed = -absl::InfiniteDuration();
    bool is_away = false;
  };

  void Push(Server* server, uint32_t worker, const wire::PushItem& item);
  // Adds the states that a fault of this server meets.
  void Meet(const Server& server, uint32_t rank, std::set<std::string>* states) const;

  const uint32_t workers_;
  const std::function<bool(uint32_t)> is_writing_;
  std::vector<Server> servers_;
  bool scheduler_away_ = false;
  std::set<uint32_t> workers_away_;
  bool reported_ = false;
  std::set<uint32_t> decided_;  // the workers that have got a decision
  std::map<std::pair<std::string, std::string>, uint64_t> met_;
};

}  // namespace slimps

#endif  // SLIMPS_TESTS_SIMULATION_FAULT_TABLE_H_
