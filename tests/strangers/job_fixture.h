// A job of real daemons on loopback, its one worker in this process, and strangers who know the protocol.
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
#include "proto/net/zmq_transport.h"
#include "tests/strangers/zmtp_client.h"

namespace slimps {

// Generous: only a failing test waits so long.
inline constexpr absl::Duration kLong = absl::Seconds(60);

// One of ours as a process, its standard error in a file.
class Daemon final {
 public:
  Daemon(const std::string& program, const std::vector<std::string>& flags, std::string log);
  ~Daemon();  // kills it
  Daemon(const Daemon&) = delete;
  Daemon& operator=(const Daemon&) = delete;

  // Its exit status; -1: it was killed, or lives still after kLong.
  int Wait();
  size_t resident_bytes() const;
  std::string Log() const;

 private:
  const std::string log_;
  pid_t pid_;
};

// Sends headers, and collects what is said to it.
class Stranger final {
 public:
  bool Connect(const std::string& address, const std::string& routing_id = "") {
    return client_.Connect(address, routing_id);
  }
  bool Tell(const wire::Header& header) { return client_.Send({FrameOf(header)}); }
  std::optional<wire::Header> Hear(absl::Duration patience);
  // What it is answered until nothing has come for `patience`.
  std::vector<wire::Header> HearAll(absl::Duration patience);
  ZmtpClient& client() { return client_; }

  static std::string FrameOf(const wire::Header& header);

 private:
  ZmtpClient client_;
};

// Two workers, of which the second is told what to say by hand, and a server. Ends in order, whatever strangers did.
class JobFixture : public testing::Test, private MessageSink {
 protected:
  void SetUp() override;
  void TearDown() override;

  // What worker 0 has in all its messages, to be shown by those who know it.
  wire::Header OwnHeader() const { return membership_->MakeHeader(); }
  // Worker 1's.
  wire::Header SecondHeader(uint64_t request_id) const;
  // Whether worker 1, where it is connected now, is echoed a heartbeat, which it says until then.
  bool SecondIsEchoed();
  // Whether the job goes on: worker 0 is answered by the scheduler, and heard of no end.
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
