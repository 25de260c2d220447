// SPDX-License-Identifier: Apache-2.0
#include "proto/net/address.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <future>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "proto/net/zmq/peer_table.h"

namespace slimps {
namespace {

using ::testing::HasSubstr;

TEST(Address, TcpAndIpcRoundTrip) {
  for (const char* text : {"tcp://127.0.0.1:4711", "tcp://node-7.example.org:1", "tcp://*:0",
                           "tcp://eth0:65535", "ipc:///tmp/slimps-0"}) {
    const absl::StatusOr<Address> address = ParseAddress(text);
    ASSERT_TRUE(address.ok()) << address.status();
    EXPECT_EQ(address->ToString(), text);
  }
  EXPECT_EQ(ParseAddress("tcp://127.0.0.1:*")->port, 0);
}

TEST(Address, AnythingElseIsRefusedAndQuoted) {
  for (const std::string& text :
       {std::string(""), std::string("127.0.0.1:1"), std::string("tcp://"),
        std::string("tcp://host"), std::string("tcp://:1"), std::string("tcp://h:65536"),
        std::string("tcp://h:-1"), std::string("tcp://h:1x"), std::string("tcp://h:"),
        std::string("tcp://a b:1"), std::string("tcp://a;b:1"), std::string("udp://h:1"),
        std::string("ipc://"), "ipc://" + std::string(108, 'x'), std::string("tcp://h\0:1", 10)}) {
    const absl::Status status = ParseAddress(text).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_NE(status.message().find("is no address"), absl::string_view::npos);
  }
}

TEST(Address, NamesResolveForListening) {
  EXPECT_EQ(ResolveForBind("127.0.0.1"), "127.0.0.1");
  EXPECT_EQ(ResolveForBind("*"), "*");
  EXPECT_EQ(ResolveForBind("localhost"), "127.0.0.1");
}

TEST(ResolveAddress, NamesBecomeNumbersAndNumbersStay) {
  EXPECT_EQ(ResolveAddress("tcp://localhost:4711").value(), "tcp://127.0.0.1:4711");
  EXPECT_EQ(ResolveAddress("tcp://127.0.0.1:1").value(), "tcp://127.0.0.1:1");
}

TEST(ResolveAddress, OtherSchemesPassUnchanged) {
  EXPECT_EQ(ResolveAddress("ipc:///tmp/x").value(), "ipc:///tmp/x");
  EXPECT_EQ(ResolveAddress("inproc://scheduler").value(), "inproc://scheduler");
}

TEST(ResolveAddress, WhatIsNoAddressIsRefusedQuotingIt) {
  for (const char* bad : {"tcp://", "tcp://host", "tcp://:1", "tcp://host:", "tcp://host:0",
                          "tcp://host:65536", "tcp://host:x", "tcp://[::1]:1"}) {
    const absl::Status status = ResolveAddress(bad).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << bad;
    EXPECT_THAT(std::string(status.message()), HasSubstr(bad));
  }
}

TEST(ResolveAddress, AnUnknownHostIsNamed) {
  const absl::Status status = ResolveAddress("tcp://no-such-host.invalid:1").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(status.message()), HasSubstr("no-such-host.invalid"));
}

TEST(ResolveAddress, AHostWithoutAnIPv4AddressIsNamedSo) {
  EXPECT_THAT(std::string(ResolveIPv4("::1").status().message()),
              HasSubstr("host \"::1\": it has IPv6 addresses alone, expected an IPv4 address"));
}

TEST(CheckName, ANameOfTheLoopbackIsNotWhereOtherMachinesLook) {
  EXPECT_THAT(std::string(CheckName("0x7f000101").message()),  // which no name server has to know
              HasSubstr("0x7f000101 is 127.0.1.1 here, as /etc/hosts says: other machines"));
  for (const char* fine : {"localhost", "127.0.1.1", "10.0.0.1", "*", "no-such-host.invalid"}) {
    EXPECT_TRUE(CheckName(fine).ok()) << fine;
  }
}

TEST(Address, LoopbackIsWhatOnlyThisMachineReaches) {
  for (const char* host : {"127.0.0.1", "127.1.2.3", "localhost", "::1", "[::1]"}) {
    EXPECT_TRUE(IsLoopback(host)) << host;
  }
  for (const char* host : {"", "*", "0.0.0.0", "10.0.0.1", "127.evil.example", "eth0", "::"}) {
    EXPECT_FALSE(IsLoopback(host)) << host;
  }
}

TEST(Address, AKeyStandsBeforeTheHost) {
  const std::string key(64, 'a');
  const std::string text = absl::StrCat("tcp://", key, "@host:1");
  const absl::StatusOr<Address> address = ParseAddress(text);
  ASSERT_TRUE(address.ok()) << address.status();
  EXPECT_EQ(address->key, key);
  EXPECT_EQ(address->host, "host");
  EXPECT_EQ(address->ToString(), text);
  EXPECT_EQ(WithKey("tcp://host:1", key).value(), text);
  EXPECT_EQ(WithKey("tcp://host:1", "").value(), "tcp://host:1");
  EXPECT_EQ(WithKey("ipc://path", key).value(), "ipc://path");
  for (const std::string& bad : {std::string(63, 'a'), std::string(64, 'g')}) {
    EXPECT_EQ(ParseAddress(absl::StrCat("tcp://", bad, "@host:1")).status().code(),
              absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(WithKey("tcp://host:1", bad).status().code(), absl::StatusCode::kInvalidArgument);
  }
}

TEST(Address, WhoIsBehindInAcceptingServesAPathAllTheSame) {
  const std::string path = absl::StrCat("@slimps-busy-", getpid());
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path + 1, path.data() + 1, path.size() - 1);
  const auto* const to = reinterpret_cast<const sockaddr*>(&address);
  const auto bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + path.size());
  const int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  ASSERT_EQ(bind(listener, to, bytes), 0);
  EXPECT_FALSE(IpcPathIsServed(path));
  ASSERT_EQ(listen(listener, 0), 0);
  std::vector<int> waiting;
  do {
    waiting.push_back(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  } while (connect(waiting.back(), to, bytes) == 0);
  ASSERT_EQ(errno, EAGAIN);
  std::future<bool> served = std::async(std::launch::async, IpcPathIsServed, path);
  EXPECT_EQ(served.wait_for(std::chrono::seconds(30)), std::future_status::ready);
  close(listener);  // ends the wait of a connect that still waits
  EXPECT_TRUE(served.get());
  for (const int fd : waiting) close(fd);
}

TEST(PeerTable, AStrangerMakesRoomBeforeOneThatWasAdmitted) {
  PeerTable table(2);
  table.Add("member", PeerId{1});
  table.Admit("member");
  table.Add("a", PeerId{2});
  EXPECT_EQ(table.Add("b", PeerId{3}), PeerId{2});
  EXPECT_EQ(table.Find("member"), PeerId{1});
  EXPECT_EQ(table.Find("b"), PeerId{3});
  table.Admit("b");
  EXPECT_EQ(table.Add("c", PeerId{4}), PeerId{1}) << "where there are no others";
  EXPECT_EQ(table.size(), 2u);
}

TEST(PeerTable, TheLongestSilentPeerMakesRoom) {
  PeerTable table(2);
  EXPECT_FALSE(table.Find("a").has_value());
  EXPECT_FALSE(table.Add("a", PeerId{1}).has_value());
  EXPECT_FALSE(table.Add("b", PeerId{2}).has_value());
  EXPECT_EQ(table.Find("a"), PeerId{1});  // now b is the longest silent
  EXPECT_EQ(table.Add("c", PeerId{3}), PeerId{2});
  EXPECT_FALSE(table.Find("b").has_value());
  EXPECT_EQ(table.Find("a"), PeerId{1});
  table.Remove("a");
  EXPECT_FALSE(table.Find("a").has_value());
  EXPECT_EQ(table.size(), 1u);
}

}  // namespace
}  // namespace slimps
