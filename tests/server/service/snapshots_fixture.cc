// SPDX-License-Identifier: Apache-2.0
#include "tests/server/service/snapshots_fixture.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "proto/base/hash.h"
#include "proto/status_proto.h"
#include "server/service/beginning.h"

namespace slimps {

SnapshotsTest::SnapshotsTest() {
  options_.job_id = "job";
  options_.num_workers = kWorkers;
  options_.shard_threads = 2;
  options_.snapshots = {.root = root_.path(), .rank = 1, .every = absl::Hours(1), .disk = &disk_};
  EXPECT_TRUE(workers_.Start(&mailbox_).ok());
}

SnapshotsTest::~SnapshotsTest() {
  server_.reset();
  workers_.Stop();
}

absl::Status SnapshotsTest::StartServer() {
  server_.reset();
  absl::StatusOr<Beginning> beginning = BeginFromSnapshot(options_, &clock_);
  if (!beginning.ok()) return beginning.status();
  restored_ = beginning->restored;
  server_ = std::make_unique<Process>(network_);
  const auto make_header = [] {
    wire::Header header;
    header.set_protocol_version(kProtocolVersion);
    header.set_job_id("job");
    header.mutable_sender()->set_role(wire::SERVER);
    return header;
  };
  server_->service = std::make_unique<ServerService>(&server_->transport, make_header, options_,
                                                     &clock_, *std::move(beginning));
  server_->service->SetRoster(Workers());
  const std::string address = server_->transport.Bind("inproc://*").value();
  EXPECT_TRUE(server_->transport.Start(server_->service.get()).ok());
  peer_ = workers_.Connect(address).value();
  return server_->service->StartSnapshots(absl::StrCat("process", ++processes_),
                                          [this](const absl::Status& why) { replaced_ = why; });
}

wire::Roster SnapshotsTest::Workers() {
  wire::Roster roster;
  for (uint32_t rank = 0; rank < kWorkers; ++rank) {
    wire::RosterEntry* entry = roster.add_nodes();
    entry->mutable_node()->set_role(wire::WORKER);
    entry->mutable_node()->set_rank(rank);
    entry->set_incarnation(kIncarnation + rank);
  }
  return roster;
}

Message SnapshotsTest::From(uint32_t worker) {
  Message message;
  message.header.set_job_id("job");
  message.header.mutable_sender()->set_role(wire::WORKER);
  message.header.mutable_sender()->set_rank(worker);
  message.header.set_incarnation(kIncarnation + worker);
  return message;
}

Message SnapshotsTest::Ask(Message message) {
  const uint64_t id = ++requests_;
  message.header.set_request_id(id);
  EXPECT_TRUE(workers_.Send(peer_, std::move(message)).ok());
  return mailbox_.Await(id);
}

absl::Status SnapshotsTest::AckOf(Message message) {
  const Message ack = Ask(std::move(message));
  if (!ack.header.has_ack()) return absl::UnknownError("no ack");
  return FromStatusProto(ack.header.ack().status());
}

absl::Status SnapshotsTest::Persist() {
  Message message = From(0);
  message.header.mutable_persist();
  return AckOf(std::move(message));
}

absl::Status SnapshotsTest::SetOptimizer(const wire::OptimizerSpec& spec, wire::StoreMode mode) {
  Message message = From(0);
  *message.header.mutable_set_optimizer()->mutable_spec() = spec;
  message.header.mutable_set_optimizer()->set_mode(mode);
  return AckOf(std::move(message));
}

Message SnapshotsTest::InitOf(const std::string& key, size_t elements, wire::StoreMode mode) {
  Message message = From(0);
  message.header.mutable_init()->set_mode(mode);
  AddInit(&message, {.name = key, .values = RandomValues(elements, elements)});
  return message;
}

Message SnapshotsTest::PushOf(uint32_t worker, const std::string& key, uint64_t round,
                              size_t elements, const std::string& codec) {
  Message message = From(worker);
  AddPush(&message, {.name = key,
                     .round = round,
                     .values = RandomValues(elements, 1000 * round + 10 * worker + elements),
                     .ticket = round});
  message.header.mutable_push()->mutable_items(0)->set_change_codec(codec);
  return message;
}

wire::ItemStatus SnapshotsTest::StatusOf(Message message) {
  const wire::Header header = Ask(std::move(message)).header;
  const auto& items =
      header.has_init_reply() ? header.init_reply().items() : header.push_reply().items();
  EXPECT_EQ(items.size(), 1);
  return items.empty() ? wire::ItemStatus() : items[0];
}

std::string SnapshotsTest::Pulled(uint32_t worker, const std::string& key, uint64_t version,
                                  size_t elements) {
  Message message = From(worker);
  AddPull(&message,
          {.name = key, .min_version = version, .elements = elements, .timeout_ms = 20000});
  wire::PullItem* item = message.header.mutable_pull()->mutable_items(0);
  item->set_takes_change(worker == 1 && version > 0);
  item->set_held_version(version - 1);
  const Message answer = Ask(std::move(message));
  if (answer.header.pull_reply().items_size() != 1) return "none";
  wire::PullReplyItem said = answer.header.pull_reply().items(0);
  said.clear_encode_ns();
  const uint64_t bytes = answer.payloads.empty() ? 0 : HashBytes(answer.payloads[0].bytes());
  return absl::StrCat(said.ShortDebugString(), " ", bytes);
}

bool SnapshotsTest::DamageNewest() {
  auto folder = SnapshotFolder::Open(root_.path(), "job", 1, &disk_).value();
  const std::vector<std::string> newest = folder->Newest();
  if (newest.size() < 2) return false;
  std::string content = ReadAll(newest[0]);
  content[content.size() / 2] = static_cast<char>(content[content.size() / 2] ^ 4);
  WriteAll(newest[0], content);
  return true;
}

}  // namespace slimps
