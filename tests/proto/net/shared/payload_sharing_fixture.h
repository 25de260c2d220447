// SPDX-License-Identifier: Apache-2.0
// Two ends of PayloadSharing in one process, without sockets. The test carries the parts between
// them.
#ifndef SLIMPS_TESTS_PROTO_NET_SHARED_PAYLOAD_SHARING_FIXTURE_H_
#define SLIMPS_TESTS_PROTO_NET_SHARED_PAYLOAD_SHARING_FIXTURE_H_

#include <gtest/gtest.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "proto/net/shared/payload_sharing.h"
#include "proto/net/shared/sharing_wire.h"
#include "tests/proto/net/net_messages.h"
#include "tests/proto/net/shared/sharing_test_util.h"

namespace slimps {

inline constexpr PeerId kPeer{1}, kNext{2};
inline constexpr size_t kLarge = size_t{64} << 10;

inline Frame PushFrame(SharedMemory* memory, uint64_t number, size_t bytes = kLarge) {
  return *BuildFrame(SharedPush(memory, number, bytes), kDefaultLimits);
}

class PayloadSharingTest : public testing::Test {
 protected:
  PayloadSharing& Make(std::unique_ptr<PayloadSharing>* sharing, SharedMemory* memory,
                       size_t max_leased_bytes = size_t{1} << 30) {
    *sharing = std::make_unique<PayloadSharing>(
        PayloadSharingOptions{.memory = memory, .max_leased_bytes = max_leased_bytes},
        std::make_shared<Wakeup>());
    return **sharing;
  }

  // Carries the parts of both ends across until both fall silent. Returns the kinds of `from`'s
  // parts.
  std::vector<SharingKind> Talk(PayloadSharing& from, PayloadSharing& to) {
    std::vector<SharingKind> said;
    for (bool silent = false; !silent;) {
      silent = true;
      for (const auto& control : from.TakeControls()) {
        said.push_back(ParseSharingPart(control.part.bytes(), kDefaultLimits)->kind);
        EXPECT_TRUE(to.HandleControl(control.peer, control.part.bytes()).ok());
        silent = false;
      }
      for (const auto& control : to.TakeControls()) {
        EXPECT_TRUE(from.HandleControl(control.peer, control.part.bytes()).ok());
        silent = false;
      }
    }
    return said;
  }

  // Makes two ends that have agreed to share.
  void Agree() {
    Make(&lender_, &memory_).AddPeer(kPeer);
    Make(&borrower_, &other_memory_).AddPeer(kPeer);
    Talk(*lender_, *borrower_);
  }

  static Payload BorrowOne(PayloadSharing& borrower, const PayloadSharing::Loan& loan) {
    auto borrowed = borrower.Borrow(kPeer, loan.parts[0].bytes());
    EXPECT_TRUE(borrowed.ok()) << borrowed.status();
    if (!borrowed.ok() || borrowed->size() != 1) return Payload();
    return std::move(borrowed->front().bytes);
  }

  SharedMemory memory_, other_memory_;
  std::unique_ptr<PayloadSharing> lender_, borrower_;
};

// Returns the parts of one kind among `controls`.
inline std::vector<SharingPart> OfKind(const std::vector<PayloadSharing::Control>& controls,
                                       SharingKind kind) {
  std::vector<SharingPart> parts;
  for (const auto& control : controls) {
    SharingPart part = *ParseSharingPart(control.part.bytes(), kDefaultLimits);
    if (part.kind == kind) parts.push_back(std::move(part));
  }
  return parts;
}

// Returns references to `count` payloads that nobody can read, each with a lease of its own.
inline Payload Unreadable(uint64_t pid, size_t count) {
  SharingPart part{.kind = SharingKind::kReferences, .pid = pid};
  for (uint32_t i = 0; i < count; ++i) {
    part.references.push_back({.payload = i,
                               .segment = {.pid = pid, .fd = 1u << 30, .id = i},
                               .offset = kSegmentHeaderBytes,
                               .bytes = kLarge,
                               .lease = i});
  }
  return BuildSharingPart(part);
}

// A process number that no process has.
inline constexpr uint64_t kNobody = uint64_t{1} << 29;

}  // namespace slimps

#endif  // SLIMPS_TESTS_PROTO_NET_SHARED_PAYLOAD_SHARING_FIXTURE_H_
