// SPDX-License-Identifier: Apache-2.0
// Makes transports of every kind in the same way.
#ifndef SLIMPS_TESTS_PROTO_NET_TRANSPORT_FIXTURE_H_
#define SLIMPS_TESTS_PROTO_NET_TRANSPORT_FIXTURE_H_

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "proto/net/testing/in_process_transport.h"
#include "proto/net/zmq/zmq_transport.h"
#include "tests/proto/net/net_messages.h"
#include "tests/proto/net/recording_sink.h"

namespace slimps {

enum class Net { kTcp, kIpc, kInProcess };

class TransportFixture : public testing::TestWithParam<Net> {
 protected:
  TransportFixture() {
    char pattern[] = "/tmp/slimps-test-XXXXXX";  // short: a unix socket's path has 107 bytes
    directory_ = mkdtemp(pattern);
  }
  ~TransportFixture() override { std::filesystem::remove_all(directory_); }

  std::unique_ptr<Transport> Make(const TransportOptions& options = {}) {
    if (GetParam() == Net::kInProcess) {
      return std::make_unique<InProcessTransport>(network_, options);
    }
    ZmqTransportOptions zmq_options;
    static_cast<TransportOptions&>(zmq_options) = options;
    return std::make_unique<ZmqTransport>(zmq_options);
  }

  // Returns an address that the system, or this fixture, knows to be free.
  std::string FreeAddress() {
    switch (GetParam()) {
      case Net::kTcp:
        return "tcp://127.0.0.1:0";
      case Net::kIpc:
        return absl::StrCat("ipc://", directory_, "/", ++names_);
      case Net::kInProcess:
        return "inproc://*";
    }
    return "";
  }

  // Returns a bound, started transport, and its address in `*address`.
  std::unique_ptr<Transport> Serve(RecordingSink* sink, std::string* address,
                                   const TransportOptions& options = {}) {
    std::unique_ptr<Transport> server = Make(options);
    absl::StatusOr<std::string> bound = server->Bind(FreeAddress());
    EXPECT_TRUE(bound.ok()) << bound.status();
    *address = *bound;
    EXPECT_TRUE(server->Start(sink).ok());
    return server;
  }

  std::shared_ptr<InProcessNetwork> network_ = std::make_shared<InProcessNetwork>();
  std::string directory_;
  int names_ = 0;
};

inline std::string NetName(const testing::TestParamInfo<Net>& info) {
  return info.param == Net::kTcp ? "Tcp" : info.param == Net::kIpc ? "Ipc" : "InProcess";
}

// Returns the request numbers of the received messages, in order of arrival.
inline std::vector<uint64_t> Numbers(const RecordingSink& sink) {
  std::vector<uint64_t> numbers;
  for (const auto& received : sink.received()) {
    numbers.push_back(received.message.header.request_id());
  }
  return numbers;
}

}  // namespace slimps

#endif  // SLIMPS_TESTS_PROTO_NET_TRANSPORT_FIXTURE_H_
