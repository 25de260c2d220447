// SPDX-License-Identifier: Apache-2.0
#include "scheduler/watch/watch_servers.h"

#include <gtest/gtest.h>

#include <fstream>
#include <string>

#include "proto/base/clock.h"
#include "watch/http/http_server.h"

namespace slimps {
namespace {

// Another scheduler of the same job has the port and has written the file.
TEST(WatchServersTest, WhoCannotListenLeavesTheFileOfAnother) {
  const auto other = HttpServer::Start({.token = "secret"}, {});
  ASSERT_TRUE(other.ok()) << other.status();
  const std::string& address = (*other)->address();
  const std::string path = testing::TempDir() + "/job.json";
  std::ofstream(path) << "of another";
  WatchService watch({}, MachineClock());
  WatchServers::Options options;
  options.page_port = static_cast<uint16_t>(std::stoi(address.substr(address.rfind(':') + 1)));
  options.file = path;
  EXPECT_FALSE(WatchServers::Start(options, &watch).ok());
  EXPECT_TRUE(std::ifstream(path).good());
  options.page_port = 0;
  EXPECT_TRUE(WatchServers::Start(options, &watch).ok());
  EXPECT_FALSE(std::ifstream(path).good()) << "its own file is still there";
}

}  // namespace
}  // namespace slimps
