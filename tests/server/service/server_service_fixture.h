// SPDX-License-Identifier: Apache-2.0
// A ServerService under a test's control: the test hands it whole messages and reads whole
// messages.
#ifndef SLIMPS_TESTS_SERVER_SERVICE_SERVER_SERVICE_FIXTURE_H_
#define SLIMPS_TESTS_SERVER_SERVICE_SERVER_SERVICE_FIXTURE_H_

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "proto/status_proto.h"
#include "server/service/server_service.h"
#include "tests/server/round/server_test_util.h"

namespace slimps {

inline constexpr uint64_t kIncarnation = 1000;  // of worker 0; worker w has kIncarnation + w

// A server with real shard threads behind a transport that records.
class ServerServiceFixture : public ::testing::Test {
 protected:
  using Sent = RecordingTransport::Sent;

  void Start(uint32_t num_workers, size_t shard_threads) {
    ServerOptions options;
    options.job_id = "job";
    options.num_workers = num_workers;
    options.shard_threads = shard_threads;
    Start(options);
  }
  void Start(const ServerOptions& options) {
    service_ = std::make_unique<ServerService>(
        &transport_,
        [] {
          wire::Header header;
          header.set_job_id("job");
          header.mutable_sender()->set_role(wire::SERVER);
          header.set_incarnation(4711);
          header.set_membership_epoch(1);
          return header;
        },
        options, &clock_);
    service_->SetRoster(MakeRoster(1, options.num_workers));
  }

  static wire::Roster MakeRoster(uint64_t epoch, uint32_t num_workers) {
    wire::Roster roster;
    roster.set_epoch(epoch);
    for (uint32_t rank = 0; rank < num_workers; ++rank) {
      wire::RosterEntry* entry = roster.add_nodes();
      entry->mutable_node()->set_role(wire::WORKER);
      entry->mutable_node()->set_rank(rank);
      entry->set_incarnation(kIncarnation + rank);
    }
    return roster;
  }

  static Message From(uint32_t worker, uint64_t request_id = 1) {
    Message message;
    message.header.set_job_id("job");
    message.header.mutable_sender()->set_role(wire::WORKER);
    message.header.mutable_sender()->set_rank(worker);
    message.header.set_incarnation(kIncarnation + worker);
    message.header.set_membership_epoch(1);
    message.header.set_request_id(request_id);
    return message;
  }

  Sent Ask(Message message) {
    const uint32_t worker = message.header.sender().rank();
    service_->OnMessage(PeerId{worker + 10}, std::move(message));
    return transport_.Next();
  }

  void InitKey(const std::string& name, const std::vector<float>& values) {
    Message init = From(0);
    AddInit(&init, {.name = name, .values = values});
    const Sent sent = Ask(std::move(init));
    ASSERT_EQ(sent.message.header.init_reply().items_size(), 1);
    ASSERT_EQ(sent.message.header.init_reply().items(0).status().code(), 0)
        << sent.message.header.init_reply().items(0).status().message();
  }

  static absl::Status PushStatus(const Sent& sent, int item = 0) {
    if (item >= sent.message.header.push_reply().items_size()) return absl::UnknownError("none");
    return FromStatusProto(sent.message.header.push_reply().items(item).status());
  }
  static absl::Status PullStatus(const Sent& sent) {
    if (sent.message.header.pull_reply().items_size() != 1) return absl::UnknownError("not one");
    return FromStatusProto(sent.message.header.pull_reply().items(0).status());
  }
  static absl::Status AckStatus(const Sent& sent) {
    if (!sent.message.header.has_ack()) return absl::UnknownError("no ack");
    return FromStatusProto(sent.message.header.ack().status());
  }

  Message Optimizer(const wire::OptimizerSpec& spec, uint32_t worker = 0) {
    Message message = From(worker);
    *message.header.mutable_set_optimizer()->mutable_spec() = spec;
    return message;
  }

  RealClock clock_;
  RecordingTransport transport_;
  std::unique_ptr<ServerService> service_;  // destroyed first: it uses the members above
};

}  // namespace slimps

#endif  // SLIMPS_TESTS_SERVER_SERVICE_SERVER_SERVICE_FIXTURE_H_
