// SPDX-License-Identifier: Apache-2.0
// Payloads in shared memory, for tests.
#ifndef SLIMPS_TESTS_PROTO_NET_SHARED_SHARING_TEST_UTIL_H_
#define SLIMPS_TESTS_PROTO_NET_SHARED_SHARING_TEST_UTIL_H_

#include <sys/resource.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <memory>
#include <utility>

#include "proto/frame.h"
#include "proto/net/shared/shared_memory.h"
#include "tests/proto/net/net_messages.h"

namespace slimps {

// Copies a payload's bytes into `memory`. The copy frees its memory when it is dropped.
inline Payload CopyInto(SharedMemory* memory, const Payload& payload) {
  const size_t bytes = payload.size();
  std::byte* const data = memory->Allocate(bytes);
  std::memcpy(data, payload.bytes().data(), bytes);
  std::shared_ptr<std::byte> owner(data,
                                   [memory, bytes](std::byte* at) { memory->Free(at, bytes); });
  return Payload(std::move(owner), {data, bytes});
}

// Returns NumberedPush(number, payload_bytes) with its payload in `memory`.
inline Message SharedPush(SharedMemory* memory, uint64_t number, size_t payload_bytes) {
  Message message = NumberedPush(number, payload_bytes);
  message.payloads[0] = CopyInto(memory, message.payloads[0]);
  return message;
}

// Returns true if `payload` has the bytes that NumberedPush() gives `number` at this size.
inline bool IsPayloadOf(const Payload& payload, uint64_t number) {
  const Message expected = NumberedPush(number, payload.size());
  return std::memcmp(payload.bytes().data(), expected.payloads[0].bytes().data(), payload.size()) ==
         0;
}

// While it lives, this process cannot open another descriptor.
class NoMoreDescriptors {
 public:
  NoMoreDescriptors() {
    getrlimit(RLIMIT_NOFILE, &before_);
    const int lowest_free = dup(0);
    close(lowest_free);
    const rlimit none{static_cast<rlim_t>(lowest_free), before_.rlim_max};
    setrlimit(RLIMIT_NOFILE, &none);
  }
  ~NoMoreDescriptors() { setrlimit(RLIMIT_NOFILE, &before_); }
  NoMoreDescriptors(const NoMoreDescriptors&) = delete;
  NoMoreDescriptors& operator=(const NoMoreDescriptors&) = delete;

 private:
  rlimit before_{};
};

}  // namespace slimps

#endif  // SLIMPS_TESTS_PROTO_NET_SHARED_SHARING_TEST_UTIL_H_
