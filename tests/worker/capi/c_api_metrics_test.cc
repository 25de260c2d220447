// SPDX-License-Identifier: Apache-2.0
// A worker's own metrics for Prometheus, by SLIMPS_METRICS_PORT and SLIMPS_WATCH_BIND.
#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tests/cluster/in_process_cluster.h"
#include "tests/watch/http/asking.h"
#include "tests/worker/capi/c_api_fixture.h"
#include "worker/capi/c_api_handle.h"

namespace {

constexpr char kLogged[] = "metrics at http://";

// A job of one worker, whose options say where its metrics are.
slimps::ClusterOptions JobWithMetrics(int32_t port) {
  slimps::ClusterOptions options{.workers = 1, .servers = 1};
  options.store.metrics_port = port;
  return options;
}

// Joins `cluster`. Writes where the store's metrics are into `address`: "127.0.0.1:PORT".
Store Join(slimps::InProcessCluster* cluster, std::string* address) {
  testing::internal::CaptureStderr();
  auto joined = cluster->JoinWorker(0);
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_TRUE(joined.ok()) << joined.status();
  const size_t begin = log.find(kLogged) + sizeof(kLogged) - 1;
  *address = log.substr(begin, log.find("/metrics", begin) - begin);
  return Store(new slimps_store{
      std::make_shared<slimps::SharedStore>("dist_sync", *std::move(joined)), nullptr});
}

bool Listens(const std::string& address) {
  const int socket_fd = socket(AF_INET, SOCK_STREAM, 0);
  const bool listens = slimps::Connect(socket_fd, address);
  close(socket_fd);
  return listens;
}

TEST(CApiMetrics, AreServedUntilTheStoreIsClosed) {
  slimps::InProcessCluster cluster(JobWithMetrics(/*port=*/0));
  std::string address;
  const Store store = Join(&cluster, &address);
  ASSERT_THAT(address, StartsWith("127.0.0.1:"));
  ASSERT_C_OK(InitKey(store, kW, {1, 2}));
  const Values gradient = {10, 20};
  for (int round = 0; round < 3; ++round) {
    EXPECT_C_OK(slimps_push(store.get(), kW, gradient.data(), 2, 0));
    EXPECT_EQ(PullOf(store, kW, 2), gradient);
  }
  EXPECT_C_OK(slimps_wait(store.get()));
  EXPECT_THAT(slimps::Get(address, "/metrics"),
              HasSubstr("slimps_pushes_total{role=\"worker\",rank=\"0\"} 3\n"));
  EXPECT_C_OK(slimps_close(store.get()));
  EXPECT_FALSE(Listens(address));
}

TEST(CApiMetrics, AStoreThatCannotListenIsNotMade) {
  const int taken = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in at = {};
  at.sin_family = AF_INET;
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(at);
  ASSERT_EQ(0, bind(taken, reinterpret_cast<sockaddr*>(&at), size));
  ASSERT_EQ(0, listen(taken, 1));
  ASSERT_EQ(0, getsockname(taken, reinterpret_cast<sockaddr*>(&at), &size));
  const int port = ntohs(at.sin_port);
  slimps::ClusterOptions options = JobWithMetrics(port);
  options.job_fails = true;
  slimps::InProcessCluster cluster(options);
  EXPECT_EQ(
      cluster.JoinWorker(0).status(),
      absl::UnavailableError(absl::StrCat(
          "metrics_port=", port,
          " (SLIMPS_METRICS_PORT), watch_bind=127.0.0.1 "
          "(SLIMPS_WATCH_BIND): cannot listen at 127.0.0.1:",
          port,
          ": Address already in use; expected an address of this machine, and a free port of it "
          "or 0")));
  close(taken);
}

TEST(CApiMetrics, TheEnvironmentSaysWhere) {
  for (const char* variable : {"DMLC_PS_ROOT_PORT", "DMLC_NUM_WORKER", "DMLC_NUM_SERVER"}) {
    setenv(variable, "1", 1);
  }
  setenv("DMLC_PS_ROOT_URI", "127.0.0.1", 1);
  setenv("SLIMPS_METRICS_PORT", "9101", 1);
  setenv("SLIMPS_WATCH_BIND", "10.0.0.2", 1);
  const Options options = MakeOptions();
  EXPECT_C_OK(slimps_options_from_environment(options.get()));
  const char* value = nullptr;
  EXPECT_C_OK(slimps_options_get(options.get(), "metrics_port", &value));
  EXPECT_STREQ("9101", value);
  EXPECT_C_OK(slimps_options_get(options.get(), "watch_bind", &value));
  EXPECT_STREQ("10.0.0.2", value);
  setenv("SLIMPS_METRICS_PORT", "70000", 1);
  EXPECT_C_REFUSES(slimps_options_from_environment(options.get()),
                   "SLIMPS_METRICS_PORT: option metrics_port: expected a whole number from -1 to "
                   "65535, got \"70000\"");
}

}  // namespace
