// SPDX-License-Identifier: Apache-2.0
#include "tests/simulation/fault_table.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "proto/base/simulation/simulation.h"

namespace slimps {

void FaultTable::Deliver(wire::Role role, uint32_t rank, const wire::Header& header) {
  if (role == wire::SCHEDULER) {
    scheduler_away_ = false;
    if (header.has_threshold_report()) reported_ = true;
  } else if (role == wire::WORKER) {
    workers_away_.erase(rank);
    if (header.has_codec_map()) decided_.insert(rank);
  } else if (header.sender().role() == wire::WORKER) {
    Server& server = servers_[rank];
    server.is_away = false;
    for (const auto* items : {&header.push().items(), &header.push_pull().push()}) {
      for (const wire::PushItem& item : *items) Push(&server, header.sender().rank(), item);
    }
  }
}

void FaultTable::Push(Server* server, uint32_t worker, const wire::PushItem& item) {
  const uint64_t key = item.id().key();
  const uint32_t partition = item.id().partition();
  const auto former = server->former_got.find({key, partition, worker});
  if (former != server->former_got.end() && item.round() <= former->second) {
    server->replayed = simulation::Now();
  }
  uint64_t& got = server->got[{key, partition, worker}];
  got = std::max(got, item.round());
  uint64_t& complete = server->complete[{key, partition}];
  if (item.round() <= complete) return;
  const std::tuple round(key, partition, item.round());
  std::set<uint32_t>& pushed = server->split[round];
  pushed.insert(worker);
  if (pushed.size() < workers_) return;
  complete = item.round();
  server->split.erase(round);
}

void FaultTable::Crash(wire::Role role, uint32_t rank) {
  if (role == wire::SCHEDULER) {
    scheduler_away_ = true;
    return;
  }
  if (role == wire::WORKER) {
    workers_away_.insert(rank);
    return;
  }
  Server& server = servers_[rank];
  server.is_away = true;
  server.former_got = server.got;
}

void FaultTable::Meet(const Server& server, uint32_t rank, std::set<std::string>* states) const {
  if (!server.split.empty()) states->insert("split_round");
  if (simulation::Now() - server.replayed < kReplayLasts) states->insert("replay");
  if (server.is_away || scheduler_away_ || !workers_away_.empty()) states->insert("rejoin");
  if (reported_ && decided_.size() < workers_) states->insert("pending_decision");
  if (is_writing_(rank)) states->insert("snapshot");
}

void FaultTable::Count(const std::string& fault, const std::set<std::string>& states) {
  for (const std::string& state : states) ++met_[{fault, state}];
  ++met_[{fault, "any"}];
}

std::set<std::string> FaultTable::StatesAt(wire::Role role, uint32_t rank) const {
  if (role != wire::SERVER) return States();
  std::set<std::string> states;
  Meet(servers_[rank], rank, &states);
  return states;
}

std::set<std::string> FaultTable::States() const {
  std::set<std::string> states;
  for (uint32_t rank = 0; rank < servers_.size(); ++rank) Meet(servers_[rank], rank, &states);
  return states;
}

std::string FaultTable::ToString() const {
  std::string lines;
  for (const auto& [met, times] : met_) {
    absl::StrAppend(&lines, "fault ", met.first, " ", met.second, " ", times, "\n");
  }
  return lines;
}

}  // namespace slimps
