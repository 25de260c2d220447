// SPDX-License-Identifier: Apache-2.0
// How nodes on one machine find each other.
#include "proto/net/zmq/same_host.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "proto/net/address.h"
#include "proto/net/local_sockets.h"
#include "proto/net/shared/shared_memory.h"
#include "proto/net/zmq/zmq_transport.h"
#include "tests/proto/net/net_messages.h"
#include "tests/proto/net/recording_sink.h"
#include "tests/proto/net/shared/sharing_test_util.h"

namespace slimps {
namespace {

TEST(SameHost, NamesAreReadBackAndOthersRefused) {
  for (const SameHost choice : {SameHost::kTcp, SameHost::kIpc, SameHost::kShm}) {
    EXPECT_EQ(*ParseSameHost(SameHostName(choice)), choice);
  }
  const absl::Status status = ParseSameHost("rdma").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(), "'rdma': expected shm, ipc or tcp");
}

TEST(SameHost, UnusedAddressesDifferAndCanBeListenedOn) {
  std::set<std::string> addresses;
  for (int i = 0; i < 50; ++i) addresses.insert(*UnusedLocalAddress());
  EXPECT_EQ(addresses.size(), 50u);
  const absl::StatusOr<Address> address = ParseAddress(*addresses.begin());
  ASSERT_TRUE(address.ok()) << address.status();
  EXPECT_FALSE(IpcPathIsServed(address->path));
  ZmqTransport server{ZmqTransportOptions{}};
  const absl::StatusOr<std::string> bound = server.Bind(*addresses.begin());
  ASSERT_TRUE(bound.ok()) << bound.status();
  EXPECT_EQ(*bound, *addresses.begin());
  EXPECT_TRUE(IpcPathIsServed(address->path));
  EXPECT_EQ(server.Bind(*bound).status().code(), absl::StatusCode::kUnavailable);
}

TEST(SameHost, TheLocalEndpointIsChosenWhereItIsServedAndWanted) {
  ZmqTransport server{ZmqTransportOptions{}};
  const std::string local = *server.Bind(*UnusedLocalAddress());
  const std::string tcp = "tcp://127.0.0.1:1";
  const std::vector<std::string> here = {tcp, local};
  EXPECT_EQ(*ChooseEndpoint(here, SameHost::kShm), local);
  EXPECT_EQ(*ChooseEndpoint(here, SameHost::kIpc), local);
  EXPECT_EQ(*ChooseEndpoint(here, SameHost::kTcp), tcp);
  // A socket outside of this user's directory may be anybody's.
  const std::vector<std::string> foreign = {
      *server.Bind(absl::StrCat("ipc://@slimps-foreign-", getpid())), tcp};
  EXPECT_EQ(*ChooseEndpoint(foreign, SameHost::kShm), tcp);
  // These endpoints belong to another machine, or to a process that has ended.
  const std::vector<std::string> elsewhere = {*UnusedLocalAddress(), "ipc://", tcp, "tcp://b:2"};
  EXPECT_EQ(*ChooseEndpoint(elsewhere, SameHost::kShm), tcp);
  const std::vector<std::string> in_process = {"inproc://server"};
  EXPECT_EQ(*ChooseEndpoint(in_process, SameHost::kShm), "inproc://server");
}

TEST(SameHost, NoEndpointIsAnErrorThatListsThem) {
  const std::vector<std::string> gone = {"ipc:///tmp/slimps-gone"};
  for (const SameHost choice : {SameHost::kShm, SameHost::kTcp}) {
    const absl::Status status = ChooseEndpoint(gone, choice).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_NE(status.message().find("ipc:///tmp/slimps-gone"), absl::string_view::npos) << status;
  }
}

TEST(SameHost, NothingIsSharedWhereTheEndOfAProcessWouldGoUnnoticed) {
  (void)SharedMemory::OfProcess();  // this process has a descriptor of it
  ZmqTransportOptions options;
  const NoMoreDescriptors none;
  const absl::Status status = ShareMemory(&options);
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_NE(status.message().find("payloads are not shared"), absl::string_view::npos) << status;
  EXPECT_EQ(options.shared_memory, nullptr);
}

TEST(SameHost, MemoryIsSharedByTheWholeProcess) {
  ZmqTransportOptions options;
  ASSERT_TRUE(ShareMemory(&options).ok());
  ASSERT_NE(options.shared_memory, nullptr);
  const AlignedBuffer buffer(size_t{1} << 20, BufferUse::kPayload);
  EXPECT_TRUE(options.shared_memory->Find(buffer.bytes()));
  SetPayloadMemory(nullptr);
  const AlignedBuffer ordinary(size_t{1} << 20, BufferUse::kPayload);
  EXPECT_FALSE(options.shared_memory->Find(ordinary.bytes()));
}

}  // namespace
}  // namespace slimps
