// SPDX-License-Identifier: Apache-2.0
#include "tests/strangers/job_fixture.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include "absl/strings/str_cat.h"
#include "proto/base/clock.h"
#include "proto/limits.h"
#include "tests/proto/base/wait_until.h"

namespace slimps {
namespace {

std::string Contents(const std::string& path) {
  std::ifstream in(path);
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

}  // namespace

Daemon::Daemon(const std::string& program, const std::vector<std::string>& flags, std::string log)
    : log_(std::move(log)) {
  std::vector<char*> words = {const_cast<char*>(program.c_str())};
  for (const std::string& flag : flags) words.push_back(const_cast<char*>(flag.c_str()));
  words.push_back(nullptr);
  pid_ = fork();
  if (pid_ != 0) return;
  const int file = open(log_.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
  dup2(file, STDOUT_FILENO);
  dup2(file, STDERR_FILENO);
  execv(words[0], words.data());
  _exit(127);
}

Daemon::~Daemon() {
  if (pid_ <= 0) return;
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
}

int Daemon::Wait() {
  int status = 0;
  if (!WaitUntil([&] { return waitpid(pid_, &status, WNOHANG) == pid_; })) return -1;
  pid_ = -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

size_t Daemon::resident_bytes() const {
  std::ifstream in(absl::StrCat("/proc/", pid_, "/statm"));
  size_t total = 0, resident = 0;
  in >> total >> resident;
  return resident * static_cast<size_t>(sysconf(_SC_PAGESIZE));
}

std::string Daemon::Log() const { return Contents(log_); }

std::string Stranger::FrameOf(const wire::Header& header) {
  const absl::StatusOr<Frame> frame = BuildFrame({.header = header, .payloads = {}}, Limits{});
  EXPECT_TRUE(frame.ok()) << frame.status();
  const std::span<const std::byte> bytes = (*frame)[0].bytes();
  return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

std::optional<wire::Header> Stranger::Hear(absl::Duration patience) {
  const std::optional<ZmtpClient::Parts> parts = client_.Receive(patience);
  if (!parts.has_value()) return std::nullopt;
  std::vector<std::span<const std::byte>> spans;
  for (const std::string& part : *parts) spans.push_back(std::as_bytes(std::span(part)));
  absl::StatusOr<wire::Header> header = ParseFrame(spans, Limits{});
  EXPECT_TRUE(header.ok()) << header.status();
  return header.ok() ? std::optional(*std::move(header)) : std::nullopt;
}

std::vector<wire::Header> Stranger::HearAll(absl::Duration patience) {
  std::vector<wire::Header> all;
  while (std::optional<wire::Header> header = Hear(patience)) all.push_back(*std::move(header));
  return all;
}

void JobFixture::SetUp() {
  char pattern[] = "/tmp/slimps-strangers-XXXXXX";
  directory_ = mkdtemp(pattern);
  const std::string port_file = directory_ + "/port";
  const std::vector<std::string> job = {"--num_workers=2", "--num_servers=1", "--job_id=job4711"};
  std::vector<std::string> flags = job;
  flags.push_back("--port_file=" + port_file);
  // Worker 1 sends only what the test tells it to, so it may be silent for long.
  flags.push_back("--heartbeat_timeout_ms=60000");
  scheduler_ = std::make_unique<Daemon>("scheduler/slimps_scheduler", flags, directory_ + "/s");
  ASSERT_TRUE(WaitUntil([&] { return std::filesystem::exists(port_file); })) << scheduler_->Log();
  const int port = std::stoi(Contents(port_file));
  scheduler_address_ = absl::StrCat("tcp://127.0.0.1:", port);
  flags = job;
  flags.push_back(absl::StrCat("--root_port=", port));
  server_ = std::make_unique<Daemon>("server/slimps_server", flags, directory_ + "/d");

  MembershipOptions options;
  options.role = wire::WORKER;
  options.wanted_rank = 0;
  options.scheduler_address = scheduler_address_;
  options.job_id = "job4711";
  options.num_workers = 2;
  options.num_servers = 1;
  options.join_timeout = kLong;
  transport_ = std::make_unique<ZmqTransport>(ZmqTransportOptions{});
  membership_ = std::make_unique<Membership>(transport_.get(), options);
  ASSERT_TRUE(transport_->Start(this).ok());
  absl::Status joined;
  std::thread join([&] { joined = membership_->Join(); });
  ASSERT_TRUE(second_.Connect(scheduler_address_));
  wire::Header header = SecondHeader(1);
  header.mutable_register_()->set_role(wire::WORKER);
  header.mutable_register_()->set_wanted_rank(1);
  header.mutable_register_()->set_num_workers(2);
  header.mutable_register_()->set_num_servers(1);
  EXPECT_TRUE(second_.Tell(header));
  join.join();
  ASSERT_TRUE(joined.ok()) << joined << scheduler_->Log() << server_->Log();
  const wire::Roster roster = membership_->roster();
  for (const wire::RosterEntry& entry : roster.nodes()) {
    if (entry.node().role() == wire::SERVER) server_address_ = entry.endpoints(0);
  }
}

void JobFixture::TearDown() {
  if (membership_ != nullptr && transport_ != nullptr) {
    wire::Header goodbye = SecondHeader(9);
    goodbye.mutable_goodbye();
    EXPECT_TRUE(second_.Tell(goodbye));
    EXPECT_EQ(membership_->Leave(), absl::OkStatus());
    membership_->Stop();
    transport_->Stop();
  }
  for (const auto& daemon : {server_.get(), scheduler_.get()}) {
    if (daemon == nullptr) continue;
    EXPECT_EQ(daemon->Wait(), 0) << daemon->Log();
  }
  std::filesystem::remove_all(directory_);
}

wire::Header JobFixture::SecondHeader(uint64_t request_id) const {
  wire::Header header;
  header.set_job_id("job4711");
  header.mutable_sender()->set_role(wire::WORKER);
  header.mutable_sender()->set_rank(1);
  header.set_incarnation(0x5ec0d);
  header.set_incarnation_high(0xfeed);
  header.set_request_id(request_id);
  return header;
}

bool JobFixture::SecondIsEchoed() {
  const uint64_t sequence = ++heartbeats_;
  const SteadyTime deadline = MachineClock()->Now() + kLong;
  while (MachineClock()->Now() < deadline) {
    wire::Header heartbeat = SecondHeader(7);
    heartbeat.mutable_heartbeat()->set_sequence(sequence);
    if (!second_.Tell(heartbeat)) return false;
    for (const wire::Header& heard : second_.HearAll(absl::Milliseconds(100))) {
      if (heard.heartbeat().sequence() == sequence) return true;
    }
  }
  return false;
}

void JobFixture::ExpectTheJobLives() {
  EXPECT_TRUE(SecondIsEchoed());
  EXPECT_FALSE(membership_->down().has_value()) << *membership_->down();
  // The workers pass a barrier: the scheduler reaches worker 0 at its own connection.
  absl::Status passed;
  std::thread barrier([&] { passed = membership_->Barrier("alive", wire::WORKER, kLong); });
  wire::Header visit = SecondHeader(8);
  visit.mutable_barrier()->set_name("alive");
  visit.mutable_barrier()->set_group(wire::WORKER);
  visit.mutable_barrier()->set_ticket(++barriers_);
  EXPECT_TRUE(second_.Tell(visit));
  barrier.join();
  EXPECT_EQ(passed, absl::OkStatus());
}

}  // namespace slimps
