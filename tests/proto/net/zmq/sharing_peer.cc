// SPDX-License-Identifier: Apache-2.0
// One end of a shared transport as a process of its own, which sharing_process_test kills.
//
//   sharing_peer ADDRESS hold          keeps every payload; answers each message with the number
//                                      of bytes borrowed so far
//   sharing_peer ADDRESS lend NUMBER   sends NumberedPush(i), i from 1 to NUMBER, from shared
//                                      memory; repeats that until a whole round was lent, then
//                                      sends the number of rounds
#include <unistd.h>

#include <cstdlib>
#include <string>

#include "proto/net/shared/shared_memory.h"
#include "proto/net/zmq/zmq_transport.h"
#include "tests/proto/base/wait_until.h"
#include "tests/proto/net/net_messages.h"
#include "tests/proto/net/recording_sink.h"
#include "tests/proto/net/shared/sharing_test_util.h"

namespace slimps {
namespace {

constexpr size_t kPayloadBytes = size_t{1} << 20;

void Lend(ZmqTransport* transport, PeerId peer, SharedMemory* memory, uint64_t count) {
  uint64_t rounds = 0;
  for (bool lent = false; !lent; ++rounds) {
    const uint64_t before = transport->stats().bytes_lent;
    const uint64_t sent = transport->stats().messages_sent;
    for (uint64_t i = 1; i <= count; ++i) {
      (void)transport->Send(peer, SharedPush(memory, i, kPayloadBytes));
    }
    (void)WaitUntil([&] { return transport->stats().messages_sent >= sent + count; });
    lent = transport->stats().bytes_lent - before == count * kPayloadBytes;
  }
  (void)transport->Send(peer, Numbered(rounds));
}

int Main(const std::string& address, const std::string& part, uint64_t count) {
  SharedMemory memory;
  ZmqTransportOptions options;
  options.shared_memory = &memory;
  ZmqTransport transport(options);
  RecordingSink sink;  // keeps everything
  PeerId peer{};
  sink.on_message = [&](PeerId from, const Message&) {
    (void)transport.Send(from, Numbered(transport.stats().bytes_borrowed));
  };
  if (!transport.Start(&sink).ok()) return 1;
  peer = *transport.Connect(address);
  if (part == "hold") {
    (void)transport.Send(peer, Numbered(0));
  } else {
    Lend(&transport, peer, &memory, count);
  }
  for (;;) pause();
}

}  // namespace
}  // namespace slimps

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  return slimps::Main(argv[1], argv[2], argc > 3 ? std::strtoull(argv[3], nullptr, 10) : 0);
}
