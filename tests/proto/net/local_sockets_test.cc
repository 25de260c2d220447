// SPDX-License-Identifier: Apache-2.0
#include "proto/net/local_sockets.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>

#include "absl/strings/str_cat.h"
#include "proto/net/zmq/zmq_transport.h"
#include "tests/proto/net/recording_sink.h"

namespace slimps {
namespace {

constexpr uid_t kNobody = 65534;
constexpr int kCannotChange = 77;
constexpr size_t kGreetingBytes = 10;  // what ZeroMQ says before it has heard anything

class LocalSocketsTest : public testing::Test {
 protected:
  LocalSocketsTest() {
    char pattern[] = "/tmp/slimps-test-XXXXXX";
    parent_ = mkdtemp(pattern);
    directory_ = parent_ + "/own";
  }
  ~LocalSocketsTest() override { std::filesystem::remove_all(parent_); }

  std::string Path() { return UnusedLocalAddress(directory_).value().substr(strlen("ipc://")); }

  // Connects to a local socket. Returns how many bytes it says, or -1 if it cannot be reached.
  static int BytesHeard(const std::string& path) {
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_un to{};
    to.sun_family = AF_UNIX;
    std::memcpy(to.sun_path, path.data(), path.size());
    int heard = -1;
    if (connect(fd, reinterpret_cast<const sockaddr*>(&to), sizeof(to)) == 0) {
      char greeting[kGreetingBytes];
      const ssize_t got = recv(fd, greeting, sizeof(greeting), MSG_WAITALL);
      heard = got > 0 ? static_cast<int>(got) : 0;
    }
    close(fd);
    return heard;
  }

  // Runs `body` in a process of another user and returns what it returned; kCannotChange if this
  // process may not become another user.
  static int AsNobody(const std::function<int()>& body) {
    const pid_t child = fork();
    if (child == 0) _exit(setuid(kNobody) == 0 ? body() : kCannotChange);
    int status = 0;
    waitpid(child, &status, 0);
    return WEXITSTATUS(status);
  }

  std::string parent_, directory_;
};

TEST_F(LocalSocketsTest, TheDirectoryIsForItsOwnerAlone) {
  EXPECT_NE(Path(), Path());
  struct stat about {};
  ASSERT_EQ(stat(directory_.c_str(), &about), 0);
  EXPECT_EQ(about.st_mode & 07777, 0700u);
  EXPECT_EQ(LocalSocketDirectory(), absl::StrCat("/tmp/slimps-", geteuid()));
}

TEST_F(LocalSocketsTest, ADirectoryThatOthersCanEnterIsRefused) {
  ASSERT_EQ(mkdir(directory_.c_str(), 0700), 0);
  ASSERT_EQ(chmod(directory_.c_str(), 0711), 0);
  const absl::Status open = UnusedLocalAddress(directory_).status();
  EXPECT_EQ(open.code(), absl::StatusCode::kPermissionDenied);
  EXPECT_NE(open.message().find("mode 0711"), absl::string_view::npos) << open;
  std::filesystem::remove(directory_);
  std::filesystem::create_symlink("/tmp", directory_);
  EXPECT_EQ(UnusedLocalAddress(directory_).status().code(), absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(UnusedLocalAddress(parent_ + "/no/such").status().code(),
            absl::StatusCode::kUnavailable);
}

TEST_F(LocalSocketsTest, WhatEndedProcessesLeftIsRemovedAndNothingElse) {
  const pid_t child = fork();
  if (child == 0) _exit(0);
  waitpid(child, nullptr, 0);
  const std::string own = Path();
  const std::string name = own.substr(own.rfind('/') + 1);
  const std::string prefix = name.substr(0, name.find('-') + 1);
  const std::string left = absl::StrCat(directory_, "/", prefix, child, "-00");
  const std::string other_namespace = absl::StrCat(directory_, "/1-", child, "-00");
  for (const std::string& path : {own, left, other_namespace}) std::ofstream(path) << "x";
  (void)Path();
  EXPECT_TRUE(std::filesystem::exists(own));
  EXPECT_FALSE(std::filesystem::exists(left));
  EXPECT_TRUE(std::filesystem::exists(other_namespace));
}

TEST_F(LocalSocketsTest, OursIsServedByThisUserInThisNamespaceAndDirectory) {
  RecordingSink sink;
  ZmqTransport server{ZmqTransportOptions{}};
  const std::string served = Path();
  ASSERT_TRUE(server.Bind(absl::StrCat("ipc://", served)).ok());
  EXPECT_TRUE(LocalSocketIsOurs(served, directory_));
  EXPECT_FALSE(LocalSocketIsOurs(Path(), directory_)) << "nobody listens";
  EXPECT_FALSE(LocalSocketIsOurs(served)) << "another directory";
  const std::string foreign = directory_ + "/1-1-00";  // as of another network namespace
  ASSERT_TRUE(server.Bind(absl::StrCat("ipc://", foreign)).ok());
  EXPECT_FALSE(LocalSocketIsOurs(foreign, directory_));
  ASSERT_EQ(chmod(directory_.c_str(), 0755), 0);
  EXPECT_FALSE(LocalSocketIsOurs(served, directory_)) << "others may have put it there";
}

TEST_F(LocalSocketsTest, AnotherUserDoesNotReachTheSocketInTheDirectory) {
  ASSERT_EQ(chmod(parent_.c_str(), 0755), 0);
  RecordingSink sink;
  ZmqTransport server{ZmqTransportOptions{}};
  const std::string path = Path();
  ASSERT_TRUE(server.Bind(absl::StrCat("ipc://", path)).ok());
  ASSERT_TRUE(server.Start(&sink).ok());
  const int heard = AsNobody([&] { return BytesHeard(path) < 0 ? 1 : 2; });
  if (heard == kCannotChange) GTEST_SKIP() << "this process may not become another user";
  EXPECT_EQ(heard, 1);
  EXPECT_EQ(BytesHeard(path), static_cast<int>(kGreetingBytes));
}

TEST_F(LocalSocketsTest, AnotherUserWhoReachesTheSocketIsNotServed) {
  ASSERT_EQ(chmod(parent_.c_str(), 0755), 0);
  RecordingSink sink;
  ZmqTransport server{ZmqTransportOptions{}};
  const std::string path = parent_ + "/open";
  ASSERT_TRUE(server.Bind(absl::StrCat("ipc://", path)).ok());
  ASSERT_TRUE(server.Start(&sink).ok());
  ASSERT_EQ(chmod(path.c_str(), 0777), 0);
  const int heard = AsNobody([&] { return BytesHeard(path) + 10; });
  if (heard == kCannotChange) GTEST_SKIP() << "this process may not become another user";
  EXPECT_EQ(heard, 10) << "connected, and closed without a word";
  EXPECT_EQ(BytesHeard(path), static_cast<int>(kGreetingBytes));
}

}  // namespace
}  // namespace slimps
