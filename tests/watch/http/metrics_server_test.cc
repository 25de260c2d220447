// SPDX-License-Identifier: Apache-2.0
#include "watch/http/metrics_server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/base/clock.h"
#include "tests/watch/http/asking.h"
#include "watch/http/connection.h"
#include "watch/http/http_server.h"
#include "watch/metrics.h"
#include "watch/metrics_text.h"

namespace slimps {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

std::string Text() {
  NodeSamples samples{.role = "server", .rank = 2, .report = {}};
  AddSample(Metric::kRoundsOver, {}, 7, &samples.report);
  AddSample(Metric::kSentBytes, {"raw"}, 1024, &samples.report);
  return MetricsText({samples});
}

// Returns the token in what was logged.
std::string TokenIn(const std::string& log) {
  const size_t begin = log.find("?token=");
  return begin == std::string::npos ? "" : log.substr(begin + 7, 32);
}

TEST(MetricsServerTest, ANodesReportIsServed) {
  const auto server = ServeMetrics("127.0.0.1", 0, Text);
  ASSERT_TRUE(server.ok()) << server.status();
  const std::string answer = Get((*server)->address(), "/metrics");
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 200 OK\r\n"));
  EXPECT_THAT(answer, HasSubstr("Content-Type: text/plain; version=0.0.4; charset=utf-8\r\n"));
  EXPECT_THAT(answer, HasSubstr("slimps_partition_rounds_total{role=\"server\",rank=\"2\"} 7\n"));
  EXPECT_THAT(answer, HasSubstr("slimps_sent_bytes_total{role=\"server\",rank=\"2\","
                                "format=\"raw\"} 1024\n"));
  EXPECT_THAT(Get((*server)->address(), "/"), StartsWith("HTTP/1.1 404 "));
}

TEST(MetricsServerTest, APortThatIsTakenIsAnError) {
  const auto server = ServeMetrics("127.0.0.1", 0, Text);
  ASSERT_TRUE(server.ok()) << server.status();
  const std::string& address = (*server)->address();
  const auto port = static_cast<uint16_t>(std::stoi(address.substr(address.rfind(':') + 1)));
  const auto second = ServeMetrics("127.0.0.1", port, Text);
  EXPECT_EQ(absl::UnavailableError(
                absl::StrCat("cannot listen at ", address, ": Address already in use")),
            second.status());
}

TEST(MetricsServerTest, AnAddressThatOthersReachWantsAToken) {
  testing::internal::CaptureStderr();
  const auto server = ServeMetrics("0.0.0.0", 0, Text);
  const std::string log = testing::internal::GetCapturedStderr();
  const std::string token = TokenIn(log);
  ASSERT_TRUE(server.ok()) << server.status();
  EXPECT_THAT(log, HasSubstr(kPlainHttpWarning));
  EXPECT_THAT(Get((*server)->address(), "/metrics"), StartsWith("HTTP/1.1 403 "));
  EXPECT_THAT(Get((*server)->address(), "/metrics?token=x"), StartsWith("HTTP/1.1 403 "));
  EXPECT_THAT(Get((*server)->address(), "/metrics?token=" + token), StartsWith("HTTP/1.1 200 "));
}

TEST(HttpServerTest, GarbageIsAnsweredOrCut) {
  const auto server = ServeMetrics("127.0.0.1", 0, Text);
  ASSERT_TRUE(server.ok()) << server.status();
  for (const std::string garbage : {"\xff\xfe\r\n\r\n", "GET\r\n\r\n", "GET / HTTP/9.9\r\n\r\n"}) {
    EXPECT_THAT(Ask((*server)->address(), garbage), testing::Not(HasSubstr("200 OK")));
  }
  EXPECT_THAT(Get((*server)->address(), "/metrics"), StartsWith("HTTP/1.1 200 OK\r\n"));
}

// A client that has connected and sends nothing more.
TEST(HttpServerTest, ASilentClientDoesNotKeepAServerFromEnding) {
  const int silent = socket(AF_INET, SOCK_STREAM, 0);
  {
    const auto server = ServeMetrics("127.0.0.1", 0, Text);
    ASSERT_TRUE(server.ok()) << server.status();
    ASSERT_TRUE(Connect(silent, (*server)->address()));
    ASSERT_EQ(3, send(silent, "GET", 3, MSG_NOSIGNAL));
    EXPECT_THAT(Get((*server)->address(), "/metrics"), StartsWith("HTTP/1.1 200 OK\r\n"));
  }
  char bytes[4096];
  errno = 0;
  while (recv(silent, bytes, sizeof(bytes), MSG_DONTWAIT) > 0) continue;
  EXPECT_NE(EAGAIN, errno) << "the connection is still open";
  close(silent);
}

TEST(HttpServerTest, WhatTheProgramDoesOnABrokenPipeStays) {
  signal(SIGPIPE, SIG_DFL);
  const auto server = ServeMetrics("127.0.0.1", 0, Text);
  ASSERT_TRUE(server.ok()) << server.status();
  EXPECT_EQ(SIG_DFL, signal(SIGPIPE, SIG_DFL));
}

TEST(HttpServerTest, AByteNowAndThenIsNoRequest) {
  FakeClock clock;
  int ends[2];
  ASSERT_EQ(0, socketpair(AF_UNIX, SOCK_STREAM, 0, ends));
  Connection connection(ends[0], &clock);
  char byte = 0;
  ASSERT_EQ(2, send(ends[1], "GE", 2, 0));
  EXPECT_EQ(1, connection.Read(&byte, 1));
  clock.Advance(Connection::kTimeout);
  EXPECT_EQ(-1, connection.Read(&byte, 1));
  EXPECT_EQ(2, connection.Write("no", 2)) << "the answer has its own time";
  close(ends[0]);
  close(ends[1]);
}

TEST(HttpServerTest, WhoHasTheTokenMayUseAnyNameOfTheMachine) {
  const auto server = HttpServer::Start({.token = "secret"}, {{.path = "/", .content = Text}});
  ASSERT_TRUE(server.ok()) << server.status();
  for (const auto& [token, answer] : {std::pair("secret", "HTTP/1.1 200"), {"x", "HTTP/1.1 403"}}) {
    const std::string request =
        absl::StrCat("GET /?token=", token, " HTTP/1.1\r\nHost: node-7.example\r\n\r\n");
    EXPECT_THAT(Ask((*server)->address(), request), StartsWith(answer));
  }
}

TEST(HttpServerTest, AnyAddressIsToldAsTheNameOfTheMachine) {
  EXPECT_EQ("127.0.0.1:80", AddressForOthers("127.0.0.1:80"));
  EXPECT_EQ("[::1]:80", AddressForOthers("[::1]:80"));
  for (const char* any : {"0.0.0.0:80", "[::]:80"}) {
    EXPECT_NE(any, AddressForOthers(any));
    EXPECT_THAT(AddressForOthers(any), testing::EndsWith(":80"));
  }
}

TEST(HttpServerTest, AHostIsOwnIfItIsAnAddressOrLocalhost) {
  for (const char* host : {"localhost", "localhost:80", "127.0.0.1", "10.0.0.7:9", "[::1]:80"}) {
    EXPECT_TRUE(IsOwnHost(host)) << host;
  }
  for (const char* host : {"", "evil.example", "127.0.0.1.evil.example", "[::1]x", "[", "::1"}) {
    EXPECT_FALSE(IsOwnHost(host)) << host;
  }
}

}  // namespace
}  // namespace slimps
