// SPDX-License-Identifier: Apache-2.0
#include "watch/http/metrics_server.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "watch/metrics.h"
#include "watch/metrics_text.h"

namespace slimps {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

// Sends `request` to "127.0.0.1:PORT". Returns all that comes back.
std::string Ask(const std::string& address, const std::string& request) {
  sockaddr_in to = {};
  to.sin_family = AF_INET;
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  to.sin_port = htons(static_cast<uint16_t>(std::stoi(address.substr(address.rfind(':') + 1))));
  const int socket_fd = socket(AF_INET, SOCK_STREAM, 0);
  EXPECT_EQ(0, connect(socket_fd, reinterpret_cast<sockaddr*>(&to), sizeof(to)));
  EXPECT_EQ(static_cast<ssize_t>(request.size()),
            send(socket_fd, request.data(), request.size(), MSG_NOSIGNAL));
  std::string answer;
  char buffer[4096];
  for (ssize_t n = 0; (n = recv(socket_fd, buffer, sizeof(buffer), 0)) > 0;) {
    answer.append(buffer, static_cast<size_t>(n));
  }
  close(socket_fd);
  return answer;
}

std::string Get(const std::string& address, const std::string& path) {
  return Ask(address, absl::StrCat("GET ", path, " HTTP/1.1\r\nHost: localhost\r\n\r\n"));
}

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
  EXPECT_EQ(absl::UnavailableError(absl::StrCat("--metrics_port: cannot listen at ", address,
                                                ": Address already in use")),
            second.status());
}

TEST(MetricsServerTest, AnAddressThatOthersReachWantsAToken) {
  testing::internal::CaptureStderr();
  const auto server = ServeMetrics("0.0.0.0", 0, Text);
  const std::string token = TokenIn(testing::internal::GetCapturedStderr());
  ASSERT_TRUE(server.ok()) << server.status();
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
