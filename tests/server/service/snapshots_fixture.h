// SPDX-License-Identifier: Apache-2.0
// A server that takes snapshots, and two workers that talk to it in frames.
#ifndef SLIMPS_TESTS_SERVER_SERVICE_SNAPSHOTS_FIXTURE_H_
#define SLIMPS_TESTS_SERVER_SERVICE_SNAPSHOTS_FIXTURE_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "gtest/gtest.h"
#include "proto/base/clock.h"
#include "proto/base/mutex.h"
#include "proto/net/testing/in_process_transport.h"
#include "server/service/server_service.h"
#include "tests/server/round/server_test_util.h"
#include "tests/server/saved/snapshot_test_util.h"

namespace slimps {

inline constexpr uint32_t kWorkers = 2;
inline constexpr uint64_t kIncarnation = 1000;  // of worker 0

// Keeps the messages that the workers receive. Thread-safe.
class Mailbox final : public MessageSink {
 public:
  void OnMessage(PeerId, Message message) override {
    MutexLock lock(&mutex_);
    const uint64_t id = message.header.request_id();
    messages_.emplace(id, std::move(message));
    changed_.NotifyAll();
  }
  void OnBadFrame(PeerId, const absl::Status& why) override { ADD_FAILURE() << why; }
  void OnUndeliverable(PeerId, const absl::Status&) override {}

  // Waits for the first answer to a request.
  Message Await(uint64_t request_id) {
    MutexLock lock(&mutex_);
    const auto here = [&] { return messages_.contains(request_id); };
    EXPECT_TRUE(changed_.Await(&mutex_, absl::Seconds(30), here));
    return here() ? messages_.at(request_id) : Message();
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  std::map<uint64_t, Message> messages_;
};

// A server process: its transport and what is behind it.
struct Process {
  explicit Process(const std::shared_ptr<InProcessNetwork>& network)
      : transport(network, TransportOptions{}) {}
  // Without a goodbye, and without a last snapshot.
  ~Process() {
    transport.Stop();
    service.reset();
  }
  InProcessTransport transport;
  std::unique_ptr<ServerService> service;
};

class SnapshotsTest : public ::testing::Test {
 protected:
  SnapshotsTest();
  ~SnapshotsTest() override;

  // Starts a server in place of the one that runs, if any, which is gone then.
  absl::Status StartServer();

  static wire::Roster Workers();
  static Message From(uint32_t worker);
  // Waits for the answer.
  Message Ask(Message message);
  absl::Status AckOf(Message message);
  absl::Status Persist();
  absl::Status SetOptimizer(const wire::OptimizerSpec& spec,
                            wire::StoreMode mode = wire::DIST_SYNC);
  static Message InitOf(const std::string& key, size_t elements,
                        wire::StoreMode mode = wire::DIST_SYNC);
  static Message PushOf(uint32_t worker, const std::string& key, uint64_t round, size_t elements,
                        const std::string& codec = "");
  wire::ItemStatus StatusOf(Message message);
  // Returns what a pull says, in one text.
  std::string Pulled(uint32_t worker, const std::string& key, uint64_t version, size_t elements);

  // Flips a bit in the newest snapshot, if there are two. Returns true if it did.
  bool DamageNewest();

  const TestFolder root_;
  FailingDisk disk_;
  RealClock clock_;
  ServerOptions options_;
  std::shared_ptr<InProcessNetwork> network_ = std::make_shared<InProcessNetwork>();
  Mailbox mailbox_;
  InProcessTransport workers_{network_, TransportOptions{}};
  PeerId peer_{};
  std::unique_ptr<Process> server_;
  bool restored_ = false;
  int processes_ = 0;
  uint64_t requests_ = 0;
  absl::Status replaced_;  // written by the thread of snapshots before it answers Persist
};

}  // namespace slimps

#endif  // SLIMPS_TESTS_SERVER_SERVICE_SNAPSHOTS_FIXTURE_H_
