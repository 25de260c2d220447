// SPDX-License-Identifier: Apache-2.0
// A job of real daemons with keys: strangers without a key can do nothing to it, and a worker can
// be no other node. Each test ends with the job's own end, in order.
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "proto/net/address.h"
#include "proto/net/identity/node_keys.h"
#include "proto/net/zmq/curve/zmq_curve.h"
#include "proto/status_proto.h"
#include "tests/proto/base/wait_until.h"
#include "tests/strangers/job_fixture.h"
#include "tests/strangers/zmtp_client.h"

namespace slimps {
namespace {

constexpr size_t kMiB = size_t{1} << 20;

std::string SecretOf(const std::string& name) {
  return (name + std::string(kNodeKeyBytes, '.')).substr(0, kNodeKeyBytes);
}
std::string PublicHexOf(const std::string& name) {
  return absl::BytesToHexString(PublicKeyOf(SecretOf(name)).value());
}

// A worker of the job, or one that would be. It keeps the errors that it is sent.
class Worker final : private MessageSink {
 public:
  // `key` names the node whose key it has: "worker0"; or anything, for a key that is not listed.
  Worker(const std::string& key, const std::string& scheduler_address, int32_t wanted_rank)
      : transport_(WithSecretOf(key)),
        membership_(&transport_, Options(scheduler_address, wanted_rank)) {
    EXPECT_TRUE(transport_.Start(this).ok());
  }
  ~Worker() override {
    membership_.Stop();
    transport_.Stop();
  }

  Membership* membership() { return &membership_; }
  wire::Header Header() const { return membership_.MakeHeader(); }
  absl::StatusOr<PeerId> Connect(const std::string& address, const std::string& key) {
    return transport_.Connect(WithKey(address, PublicHexOf(key)).value());
  }
  void Say(PeerId to, const wire::Header& header) {
    EXPECT_TRUE(transport_.Send(to, Message{.header = header, .payloads = {}}).ok());
  }
  // Waits until it has been sent so many errors. Returns the last one.
  absl::Status AwaitErrors(size_t count) {
    EXPECT_TRUE(WaitUntil([&] {
      const std::lock_guard lock(mutex_);
      return errors_.size() >= count;
    }));
    const std::lock_guard lock(mutex_);
    return errors_.empty() ? absl::OkStatus() : errors_.back();
  }

 private:
  static ZmqTransportOptions WithSecretOf(const std::string& key) {
    ZmqTransportOptions options;
    options.secret_key = SecretOf(key);
    return options;
  }
  static MembershipOptions Options(const std::string& scheduler_address, int32_t wanted_rank) {
    MembershipOptions options;
    options.role = wire::WORKER;
    options.wanted_rank = wanted_rank;
    options.scheduler_address = scheduler_address;
    options.scheduler_key = PublicHexOf("scheduler");
    options.job_id = "job4711";
    options.num_workers = 2;
    options.num_servers = 1;
    options.join_timeout = kLong;
    return options;
  }

  void OnMessage(PeerId from, Message message) override {
    if (membership_.HandleMessage(from, message) || !message.header.has_error()) return;
    const std::lock_guard lock(mutex_);
    errors_.push_back(FromStatusProto(message.header.error().status()));
  }
  void OnBadFrame(PeerId, const absl::Status&) override {}
  void OnUndeliverable(PeerId to, const absl::Status& why) override {
    membership_.HandleUndeliverable(to, why);
  }

  std::mutex mutex_;
  std::vector<absl::Status> errors_;
  ZmqTransport transport_;
  Membership membership_;
};

class KeyedJobTest : public testing::Test {
 protected:
  void SetUp() override {
    char pattern[] = "/tmp/slimps-keyed-XXXXXX";
    directory_ = mkdtemp(pattern);
    const std::string port_file = directory_ + "/port";
    const std::vector<std::string> job = {"--num_workers=2", "--num_servers=1", "--job_id=job4711"};
    std::vector<std::string> flags = job;
    for (const std::string& flag :
         {"--port_file=" + port_file, "--key_file=" + KeyFileOf("scheduler"),
          "--allow_file=" + AllowFile(), std::string("--heartbeat_timeout_ms=60000")}) {
      flags.push_back(flag);
    }
    scheduler_ = std::make_unique<Daemon>("scheduler/slimps_scheduler", flags, directory_ + "/s");
    ASSERT_TRUE(WaitUntil([&] { return std::filesystem::exists(port_file); })) << scheduler_->Log();
    std::string port;
    std::ifstream(port_file) >> port;
    scheduler_address_ = "tcp://127.0.0.1:" + port;
    flags = job;
    for (const std::string& flag :
         {"--root_port=" + port, "--key_file=" + KeyFileOf("server0"),
          "--scheduler_key=" + PublicHexOf("scheduler"), std::string("--same_host=tcp")}) {
      flags.push_back(flag);
    }
    server_ = std::make_unique<Daemon>("server/slimps_server", flags, directory_ + "/d");
    for (int32_t rank = 0; rank < 2; ++rank) {
      workers_.push_back(
          std::make_unique<Worker>(absl::StrCat("worker", rank), scheduler_address_, rank));
    }
  }

  void JoinAll() {
    std::vector<std::thread> joining;
    for (auto& worker : workers_) {
      joining.emplace_back([&] { EXPECT_EQ(worker->membership()->Join(), absl::OkStatus()); });
    }
    for (std::thread& one : joining) one.join();
    const wire::Roster roster = workers_[0]->membership()->roster();
    for (const wire::RosterEntry& entry : roster.nodes()) {
      if (entry.node().role() != wire::SERVER) continue;
      server_address_ = entry.endpoints(0);
      EXPECT_EQ(absl::BytesToHexString(entry.public_key()), PublicHexOf("server0"));
    }
    ASSERT_FALSE(server_address_.empty());
  }

  void ExpectTheJobLives() {
    std::vector<std::thread> passing;
    for (auto& worker : workers_) {
      passing.emplace_back([&] {
        EXPECT_EQ(worker->membership()->Barrier("alive", wire::WORKER, kLong), absl::OkStatus());
      });
    }
    for (std::thread& one : passing) one.join();
  }

  void TearDown() override {
    for (auto& worker : workers_) {
      EXPECT_EQ(worker->membership()->Leave(), absl::OkStatus());
    }
    workers_.clear();
    for (const auto& daemon : {server_.get(), scheduler_.get()}) {
      if (daemon == nullptr) continue;
      EXPECT_EQ(daemon->Wait(), 0) << daemon->Log();
    }
    std::filesystem::remove_all(directory_);
  }

  std::string KeyFileOf(const std::string& name) {
    const std::string path = absl::StrCat(directory_, "/", name, ".key");
    std::ofstream(path) << "secret " << absl::BytesToHexString(SecretOf(name)) << "\n";
    chmod(path.c_str(), 0600);
    return path;
  }
  std::string AllowFile() {
    const std::string path = directory_ + "/allow";
    std::ofstream(path) << "server 0 " << PublicHexOf("server0") << "\nworker 0 "
                        << PublicHexOf("worker0") << "\nworker 1 " << PublicHexOf("worker1")
                        << "\n";
    return path;
  }

  std::string directory_, scheduler_address_, server_address_;
  std::unique_ptr<Daemon> scheduler_, server_;
  std::vector<std::unique_ptr<Worker>> workers_;
};

TEST_F(KeyedJobTest, WithoutAListedKeyNobodyEvenFormsAJob) {
  Worker stranger("mallory", scheduler_address_, 0);
  const absl::Status refused = stranger.membership()->Join();
  EXPECT_EQ(refused.code(), absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(refused.message(),
            absl::StrCat("scheduler ", scheduler_address_, ": the other side refuses our key"));
  ZmtpClient plain;
  EXPECT_FALSE(plain.Connect(scheduler_address_));
  JoinAll();
  EXPECT_FALSE(plain.Connect(server_address_));
  ExpectTheJobLives();
}

TEST_F(KeyedJobTest, AKeyOfWorker1GetsNoOtherRank) {
  Worker impostor("worker1", scheduler_address_, 0);
  const absl::Status refused = impostor.membership()->Join();
  EXPECT_EQ(refused.code(), absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(refused.message(), "this is the key of worker 1, and its holder wants to be worker 0");
  JoinAll();
  EXPECT_EQ(workers_[0]->membership()->rank(), 0u);
  EXPECT_EQ(workers_[1]->membership()->rank(), 1u);
  ExpectTheJobLives();
}

// Assumes that worker 0's incarnation has leaked.
TEST_F(KeyedJobTest, Worker1WithAllThatWorker0SaysIsNotWorker0) {
  JoinAll();
  const wire::Header own = workers_[0]->Header();
  Worker& impostor = *workers_[1];
  size_t errors = 0;
  for (const auto& [address, key] :
       {std::pair{scheduler_address_, "scheduler"}, std::pair{server_address_, "server0"}}) {
    const PeerId peer = impostor.Connect(address, key).value();
    wire::Header goodbye = own;
    goodbye.mutable_goodbye();
    wire::Header error = own;
    error.mutable_error()->mutable_status()->set_code(13);
    wire::Header leave = own;
    leave.mutable_leave()->set_from_round(1);
    wire::Header pull = own;
    pull.mutable_pull()->add_items();
    for (wire::Header* said : {&goodbye, &error, &leave, &pull}) {
      said->set_request_id(++errors);
      impostor.Say(peer, *said);
      EXPECT_EQ(impostor.AwaitErrors(errors),
                absl::PermissionDeniedError("this is another node's key"))
          << address;
    }
  }
  ExpectTheJobLives();
}

// Connects to a port without ZeroMQ.
int RawConnection(const std::string& address) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(ParseAddress(address)->port);
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(connect(fd, reinterpret_cast<const sockaddr*>(&to), sizeof(to)), 0);
  return fd;
}

// CURVE's greeting, and a HELLO with a box that nobody can open.
std::string Hello() {
  std::string greeting(64, '\0');
  greeting[0] = '\xff';
  greeting[9] = '\x7f';
  greeting[10] = 3;
  greeting.replace(12, 5, "CURVE");
  return greeting + std::string("\4\xc8\5HELLO\1\0", 10) + std::string(192, 'h');
}

TEST_F(KeyedJobTest, AStrangerGetsAtMostTenBytesBackForEachOfItsOwn) {
  JoinAll();
  for (const std::string& address : {scheduler_address_, server_address_}) {
    for (const size_t bytes : {size_t{1}, size_t{12}, size_t{64}, Hello().size(), size_t{20'000}}) {
      std::string said = Hello();
      said.resize(bytes, 'x');
      const int fd = RawConnection(address);
      ASSERT_EQ(send(fd, said.data(), said.size(), MSG_NOSIGNAL),
                static_cast<ssize_t>(said.size()));
      shutdown(fd, SHUT_WR);
      size_t heard = 0;
      char buffer[4096];
      for (ssize_t got = 1; got > 0;) {
        got = recv(fd, buffer, sizeof(buffer), 0);
        if (got > 0) heard += static_cast<size_t>(got);
      }
      close(fd);
      // One byte of ZeroMQ's greeting brings the first ten of the server's, before CURVE begins.
      EXPECT_LE(heard, 10 * bytes) << bytes;
    }
  }
  ExpectTheJobLives();
}

TEST_F(KeyedJobTest, AHandshakeWithoutEndIsCutOff) {
  JoinAll();
  const size_t before = server_->resident_bytes();
  for (const std::string& address : {scheduler_address_, server_address_}) {
    const int fd = RawConnection(address);
    // A command that says it has a gigabyte.
    const std::string head =
        Hello().substr(0, 64) + std::string("\6\0\0\0\0\x40\0\0\0", 9) + "\5HELLO";
    bool open = send(fd, head.data(), head.size(), MSG_NOSIGNAL) > 0;
    const std::string chunk(8192, 'x');
    size_t sent = 0;
    while (open && sent < 512 * kMiB) {
      const ssize_t took = send(fd, chunk.data(), chunk.size(), MSG_NOSIGNAL);
      open = took > 0;
      if (open) sent += static_cast<size_t>(took);
    }
    close(fd);
    EXPECT_FALSE(open) << address;
  }
  EXPECT_LT(server_->resident_bytes(), before + 64 * kMiB);
  ExpectTheJobLives();
}

}  // namespace
}  // namespace slimps
