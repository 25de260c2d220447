// SPDX-License-Identifier: Apache-2.0
// A job of real daemons on loopback. Worker 0 runs in this process, the test plays worker 1, and
// strangers that know the protocol try to disturb the job.
#ifndef SLIMPS_TESTS_STRANGERS_JOB_FIXTURE_H_
#define SLIMPS_TESTS_STRANGERS_JOB_FIXTURE_H_

#include <gtest/gtest.h>
#include <sys/types.h>

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "proto/frame.h"
#include "proto/net/membership/membership.h"
#include "proto/net/zmq/zmq_transport.h"
#include "tests/strangers/zmtp_client.h"

namespace slimps {

// Generous: only a failing test waits this long.
inline constexpr absl::Duration kLong = absl::Seconds(60);

// One of our daemons as a process. Its standard error goes to a file. Thread-compatible.
class Daemon final {
 public:
  Daemon(const std::string& program, const std::vector<std::string>& flags, std::string log);
  ~Daemon();  // kills it
  Daemon(const Daemon&) = delete;
  Daemon& operator=(const Daemon&) = delete;

  // Returns the process's exit status, or -1 if a signal killed it or it still runs after kLong.
  int Wait();
  size_t resident_bytes() const;
  std::string Log() const;

 private:
  const std::string log_;
  pid_t pid_;
};

// A client that sends headers and collects the answers. Thread-compatible.
class Stranger final {
 public:
  bool Connect(const std::string& address, const std::string& routing_id = "") {
    return client_.Connect(address, routing_id);
  }
  bool Tell(const wire::Header& header) { return client_.Send({FrameOf(header)}); }
  std::optional<wire::Header> Hear(absl::Duration patience);

  // Returns all answers until none has come for `patience`.
  std::vector<wire::Header> HearAll(absl::Duration patience);
  ZmtpClient& client() { return client_; }

  static std::string FrameOf(const wire::Header& header);

 private:
  ZmtpClient client_;
};

// A job of two workers and a server. The test sends worker 1's messages by hand. TearDown() checks
// that the job ends in order, whatever the strangers did.
class JobFixture : public testing::Test, private MessageSink {
 protected:
  void SetUp() override;
  void TearDown() override;

  // Returns the header that worker 0 puts on all its messages, incarnation included.
  wire::Header OwnHeader() const { return membership_->MakeHeader(); }

  // Returns the header of worker 1's messages.
  wire::Header SecondHeader(uint64_t request_id) const;

  // Sends heartbeats as worker 1 over its present connection. Returns true once the scheduler
  // echoes one, and false if none is echoed within kLong.
  bool SecondIsEchoed();

  // Fails the test unless the job goes on: worker 0 has not been told of an end, and the scheduler
  // answers both workers.
  void ExpectTheJobLives();

  std::string scheduler_address_, server_address_;
  std::unique_ptr<Daemon> scheduler_, server_;
  std::unique_ptr<Membership> membership_;  // worker 0
  Stranger second_;                         // worker 1

 private:
  void OnMessage(PeerId from, Message message) override {
    membership_->HandleMessage(from, message);
  }
  void OnBadFrame(PeerId, const absl::Status&) override {}
  void OnUndeliverable(PeerId, const absl::Status&) override {}

  std::string directory_;
  std::unique_ptr<ZmqTransport> transport_;
  uint64_t heartbeats_ = 0, barriers_ = 0;
};

}  // namespace slimps

#endif  // SLIMPS_TESTS_STRANGERS_JOB_FIXTURE_H_
