// SPDX-License-Identifier: Apache-2.0
#include "proto/net/identity/node_keys.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"

namespace slimps {
namespace {

class NodeKeysTest : public testing::Test {
 protected:
  NodeKeysTest() {
    char pattern[] = "/tmp/slimps-keys-XXXXXX";
    directory_ = mkdtemp(pattern);
  }
  ~NodeKeysTest() override { std::filesystem::remove_all(directory_); }

  std::string Put(const std::string& content, mode_t mode = 0600) {
    const std::string path = directory_ + "/file";
    std::ofstream(path) << content;
    EXPECT_EQ(chmod(path.c_str(), mode), 0);
    return path;
  }
  std::string RefusalOfList(const std::string& content) {
    const absl::Status status = ReadAllowFile(Put(content)).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << content;
    return std::string(status.message());
  }
  static std::string Hex(char digit) { return std::string(64, digit); }

  std::string directory_;
};

TEST_F(NodeKeysTest, AKeyIsHexadecimal) {
  EXPECT_EQ(*ParseNodeKey(Hex('a')), std::string(32, '\xaa'));
  for (const std::string& text : {std::string(), Hex('g'), Hex('a') + "a", Hex('a').substr(1)}) {
    const absl::Status status = ParseNodeKey(text).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_NE(status.message().find("64 hexadecimal digits"), absl::string_view::npos) << status;
  }
}

TEST_F(NodeKeysTest, AKeyFileHoldsOneSecretKey) {
  EXPECT_EQ(*ReadKeyFile(Put(absl::StrCat("# worker 1\n\nsecret ", Hex('B'), "\n"))),
            std::string(32, '\xbb'));
  for (const std::string& content :
       {std::string(), "public " + Hex('b'), Hex('b'), "secret " + Hex('z'),
        absl::StrCat("secret ", Hex('b'), "\nsecret ", Hex('c'))}) {
    const absl::Status status = ReadKeyFile(Put(content)).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << content;
    EXPECT_EQ(status.message().find(Hex('b')), absl::string_view::npos) << "the key is shown";
  }
  EXPECT_EQ(ReadKeyFile(directory_ + "/none").status().code(), absl::StatusCode::kNotFound);
}

TEST_F(NodeKeysTest, AKeyFileThatOthersCanReadIsRefused) {
  for (const mode_t mode : {0640, 0604, 0666}) {
    const absl::Status status = ReadKeyFile(Put("secret " + Hex('b'), mode)).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << mode;
    EXPECT_NE(status.message().find("chmod 600"), absl::string_view::npos) << status;
  }
}

TEST_F(NodeKeysTest, AListNamesEachNodeAndKeyOnce) {
  const auto nodes =
      ReadAllowFile(Put(absl::StrCat("# job 7\nscheduler 0 ", Hex('1'), "\nserver 0 ", Hex('2'),
                                     "\nworker 12\t", Hex('3'), "  \n"),
                        0644));
  ASSERT_TRUE(nodes.ok()) << nodes.status();
  ASSERT_EQ(nodes->size(), 2u);
  EXPECT_EQ((*nodes)[0].role, wire::SERVER);
  EXPECT_EQ((*nodes)[1].role, wire::WORKER);
  EXPECT_EQ((*nodes)[1].rank, 12u);
  EXPECT_EQ((*nodes)[1].public_key, std::string(32, '\x33'));

  const std::string first = absl::StrCat("worker 0 ", Hex('1'), "\n");
  EXPECT_NE(RefusalOfList(first + "worker 0 " + Hex('2')).find("line 2: a second key"),
            std::string::npos);
  EXPECT_NE(RefusalOfList(first + "server 0 " + Hex('1')).find("line 2: the key of another"),
            std::string::npos);
  for (const std::string& line :
       {"driver 0 " + Hex('1'), "worker x " + Hex('1'), "worker -1 " + Hex('1'),
        std::string("worker 0"), "worker 0 " + Hex('1') + " more", std::string("worker 0 abc")}) {
    EXPECT_NE(RefusalOfList(line).find("line 1: expected"), std::string::npos) << line;
  }
}

}  // namespace
}  // namespace slimps
