// SPDX-License-Identifier: Apache-2.0
// A SchedulerState of a job of two workers and one server. The test sends it each message by hand.
#ifndef SLIMPS_TESTS_SCHEDULER_SCHEDULER_STATE_FIXTURE_H_
#define SLIMPS_TESTS_SCHEDULER_SCHEDULER_STATE_FIXTURE_H_

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <optional>
#include <vector>

#include "gtest/gtest.h"
#include "proto/base/clock.h"
#include "scheduler/scheduler_state.h"

namespace slimps {

// Node n is peer n and has incarnation n. Node 1 is the server, nodes 2 and 3 are workers 0 and 1.
inline constexpr uint64_t kServer = 1;
inline constexpr uint64_t kWorker0 = 2;
inline constexpr uint64_t kWorker1 = 3;
inline constexpr uint64_t kNewServer = 9;
inline constexpr uint64_t kNewWorker = 10;  // a later process of worker 1

class SchedulerStateTest : public testing::Test {
 protected:
  explicit SchedulerStateTest(absl::Duration restart_timeout = absl::ZeroDuration(),
                              absl::Duration worker_timeout = absl::ZeroDuration())
      : options_({.job_id = "job",
                  .num_workers = 2,
                  .num_servers = 1,
                  .heartbeat_interval = absl::Seconds(1),
                  .heartbeat_timeout = absl::Seconds(10),
                  .roster_timeout = absl::Seconds(60),
                  .restart_timeout = restart_timeout,
                  .worker_timeout = worker_timeout,
                  .has_journal = restart_timeout > absl::ZeroDuration(),
                  .shutdown_grace = absl::Seconds(5)}) {
    MakeState();
  }

  void MakeState() { state_.emplace(options_, clock_.Now()); }

  static wire::Header HeaderOf(uint64_t node) {
    wire::Header header;
    header.set_job_id("job");
    header.set_incarnation(node);
    header.set_request_id(next_request_++);
    header.mutable_sender()->set_role(node == kServer ? wire::SERVER : wire::WORKER);
    return header;
  }

  // Hands `header` to the scheduler. Returns the messages that `node` gets in answer.
  std::vector<wire::Header> Tell(uint64_t node, const wire::Header& header) {
    return Sort(state_->Handle(PeerId{node}, header, clock_.Now()), node);
  }
  std::vector<wire::Header> Tick(uint64_t node) { return Sort(state_->Tick(clock_.Now()), node); }
  static wire::Header RegistrationOf(uint64_t node, wire::Role role) {
    wire::Header header = HeaderOf(node);
    header.mutable_register_()->set_role(role);
    header.mutable_register_()->set_wanted_rank(-1);
    header.mutable_register_()->set_num_workers(2);
    header.mutable_register_()->set_num_servers(1);
    header.mutable_register_()->set_host("alpha");
    header.mutable_register_()->set_pid(node);
    header.mutable_register_()->add_endpoints("tcp://127.0.0.1:1");
    return header;
  }
  std::vector<wire::Header> Register(uint64_t node) {
    return Tell(node, RegistrationOf(node, node == kServer ? wire::SERVER : wire::WORKER));
  }
  std::vector<wire::Header> RegisterServerAgain(bool restored = true, uint64_t node = kNewServer) {
    clock_.Advance(absl::Milliseconds(1));
    wire::Header header = RegistrationOf(node, wire::SERVER);
    header.mutable_register_()->set_wanted_rank(0);
    header.mutable_register_()->set_restored(restored);
    return Tell(node, header);
  }
  // A server that is asked if it lives answers `yes`.
  std::vector<wire::Header> RegisterWorker1Again(bool yes = true) {
    clock_.Advance(absl::Milliseconds(1));
    wire::Header header = RegistrationOf(kNewWorker, wire::WORKER);
    header.mutable_register_()->set_wanted_rank(1);
    std::vector<wire::Header> got = Tell(kNewWorker, header);
    for (const uint64_t server : {kServer, kNewServer}) {
      if (!yes || Others(server).empty()) continue;
      AnswerProbe(server);
      std::ranges::move(Others(kNewWorker), std::back_inserter(got));
      break;
    }
    return got;
  }
  std::vector<wire::Header> Heartbeat(uint64_t node, bool has_pushed = false) {
    wire::Header header = HeaderOf(node);
    header.mutable_heartbeat()->set_sequence(5);
    header.mutable_heartbeat()->set_has_pushed(has_pushed);
    return Tell(node, header);
  }
  void SaySaved(uint64_t epoch, uint64_t node = kServer) {
    wire::Header header = HeaderOf(node);
    header.mutable_heartbeat()->set_saved_epoch(epoch);
    Tell(node, header);
  }
  std::vector<wire::Header> AnswerProbe(uint64_t node) {
    wire::Header header = HeaderOf(node);
    header.mutable_heartbeat();
    return Tell(node, header);
  }
  std::vector<wire::Header> Goodbye(uint64_t node) {
    wire::Header header = HeaderOf(node);
    header.mutable_goodbye();
    return Tell(node, header);
  }
  void RegisterAll() {
    for (const uint64_t node : {kServer, kWorker0, kWorker1}) Register(node);
    ASSERT_EQ(state_->phase(), SchedulerState::Phase::kRunning);
    others_.clear();
  }

  // Advances the clock past the quiet time that must follow the last goodbye.
  void LetItBeQuiet() {
    clock_.Advance(absl::Milliseconds(300));
    state_->Tick(clock_.Now());
  }

  // Returns the messages that `node` got in the last step, when another node was addressed.
  std::vector<wire::Header> Others(uint64_t node) { return Of(others_, node); }

  FakeClock clock_;
  const SchedulerOptions options_;
  std::optional<SchedulerState> state_;

 private:
  static std::vector<wire::Header> Of(const Outbox& outbox, uint64_t node) {
    std::vector<wire::Header> headers;
    for (const auto& outgoing : outbox) {
      if (outgoing.to == PeerId{node}) headers.push_back(outgoing.header);
    }
    return headers;
  }
  std::vector<wire::Header> Sort(Outbox outbox, uint64_t node) {
    others_ = outbox;
    return Of(outbox, node);
  }
  static inline uint64_t next_request_ = 100;
  Outbox others_;
};

}  // namespace slimps

#endif  // SLIMPS_TESTS_SCHEDULER_SCHEDULER_STATE_FIXTURE_H_
