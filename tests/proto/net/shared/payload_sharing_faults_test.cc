// SPDX-License-Identifier: Apache-2.0
// PayloadSharing when connections break, processes end, and peers send what they should not.
#include <gtest/gtest.h>
#include <unistd.h>

#include <string>
#include <utility>
#include <vector>

#include "proto/net/shared/payload_sharing.h"
#include "tests/proto/net/shared/child_process.h"
#include "tests/proto/net/shared/payload_sharing_fixture.h"

namespace slimps {
namespace {

TEST_F(PayloadSharingTest, BadReferencesAreRefusedAndTheirLeasesReturned) {
  Agree();
  const auto loan = lender_->Lend(kPeer, PushFrame(&memory_, 1));
  SharingPart part = *ParseSharingPart(loan->parts[0].bytes(), kDefaultLimits);
  part.references[0].offset += size_t{1} << 40;
  EXPECT_EQ(borrower_->Borrow(kPeer, BuildSharingPart(part).bytes()).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Talk(*borrower_, *lender_), std::vector<SharingKind>{SharingKind::kReturn});
  EXPECT_FALSE(lender_->lends());
  EXPECT_TRUE(
      lender_->Lend(kPeer, PushFrame(&memory_, 2)));  // the sender's mistake, not the memory's
}

TEST_F(PayloadSharingTest, ASegmentThatCannotBeReadTurnsLendingOff) {
  Agree();
  const auto loan = lender_->Lend(kPeer, PushFrame(&memory_, 1));
  SharingPart part = *ParseSharingPart(loan->parts[0].bytes(), kDefaultLimits);
  part.references[0].segment.fd = 999999;
  part.references[0].segment.id ^= 1;
  EXPECT_EQ(borrower_->Borrow(kPeer, BuildSharingPart(part).bytes()).status().code(),
            absl::StatusCode::kUnavailable);
  Talk(*borrower_, *lender_);
  EXPECT_FALSE(lender_->lends());
  EXPECT_FALSE(lender_->Lend(kPeer, PushFrame(&memory_, 2)));
}

TEST_F(PayloadSharingTest, TheReasonForPayloadsInLineIsHandedOutOnce) {
  Agree();
  EXPECT_EQ(lender_->TakeRefusal(), "");
  const Payload refuse =
      BuildSharingPart({.kind = SharingKind::kRefuse, .pid = 77, .reason = "cannot open it\n\x80"});
  ASSERT_TRUE(lender_->HandleControl(kPeer, refuse.bytes()).ok());
  EXPECT_EQ(lender_->TakeRefusal(), "process 77 says: cannot open it\\n\\x80");
  EXPECT_EQ(lender_->TakeRefusal(), "");
  // Nothing is lent to a process that cannot be watched.
  const Payload accept = BuildSharingPart({.kind = SharingKind::kAccept, .pid = kNobody});
  ASSERT_TRUE(lender_->HandleControl(kPeer, accept.bytes()).ok());
  EXPECT_FALSE(lender_->Lend(kPeer, PushFrame(&memory_, 1)));
  EXPECT_NE(lender_->TakeRefusal().find("cannot be watched"), std::string::npos);
}

TEST_F(PayloadSharingTest, AReturnThatCouldNotBeSentGoesByAnotherConnection) {
  Agree();
  const auto loan = lender_->Lend(kPeer, PushFrame(&memory_, 1));
  Payload payload = BorrowOne(*borrower_, *loan);
  // The lender connects again before the break of the old connection is known.
  lender_->AddPeer(kNext);
  borrower_->AddPeer(kNext);
  Talk(*lender_, *borrower_);
  payload = Payload();
  auto controls = borrower_->TakeControls();
  ASSERT_EQ(controls.size(), 1u);
  EXPECT_EQ(controls[0].peer, kPeer);
  borrower_->PutBack(std::move(controls[0]));
  borrower_->RemovePeer(kPeer);
  controls = borrower_->TakeControls();
  ASSERT_EQ(controls.size(), 1u);
  EXPECT_EQ(controls[0].peer, kNext);
  EXPECT_TRUE(lender_->HandleControl(kNext, controls[0].part.bytes()).ok());
  EXPECT_FALSE(lender_->lends());
}

TEST_F(PayloadSharingTest, WithoutAConnectionReturnsWaitForOne) {
  enum class LetGo { kBefore, kAfter };
  for (const LetGo let_go : {LetGo::kBefore, LetGo::kAfter}) {
    Agree();
    const auto loan = lender_->Lend(kPeer, PushFrame(&memory_, 1));
    Payload payload = BorrowOne(*borrower_, *loan);
    if (let_go == LetGo::kBefore) payload = Payload();
    auto controls = borrower_->TakeControls();
    EXPECT_EQ(controls.size(), let_go == LetGo::kBefore ? 1u : 0u);
    lender_->RemovePeer(kPeer);
    borrower_->RemovePeer(kPeer);
    payload = Payload();
    for (auto& control : controls) borrower_->PutBack(std::move(control));
    EXPECT_TRUE(borrower_->TakeControls().empty());
    EXPECT_TRUE(lender_->lends());
    lender_->AddPeer(kNext);
    borrower_->AddPeer(kNext);
    Talk(*lender_, *borrower_);
    EXPECT_FALSE(lender_->lends());
  }
}

TEST_F(PayloadSharingTest, ReferencesOfWhoCannotBeWatchedAreRefusedAndTheirLeasesReturned) {
  Agree();
  const absl::Status refused = borrower_->Borrow(kPeer, Unreadable(kNobody, 3).bytes()).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kNotFound);
  const auto controls = borrower_->TakeControls();
  const auto refusals = OfKind(controls, SharingKind::kRefuse);
  ASSERT_EQ(refusals.size(), 1u);
  EXPECT_EQ(refusals[0].reason, refused.message());
  const auto returns = OfKind(controls, SharingKind::kReturn);
  ASSERT_EQ(returns.size(), 1u);
  EXPECT_EQ(returns[0].leases, (std::vector<uint64_t>{0, 1, 2}));
}

TEST_F(PayloadSharingTest, ManyReferencesThatCannotBeReadAreRefusedOnce) {
  Agree();
  const auto own = static_cast<uint64_t>(getpid());
  EXPECT_FALSE(borrower_->Borrow(kPeer, Unreadable(own, 100).bytes()).ok());
  const auto controls = borrower_->TakeControls();
  EXPECT_EQ(OfKind(controls, SharingKind::kRefuse).size(), 1u);
  ASSERT_EQ(OfKind(controls, SharingKind::kReturn).size(), 1u);
  EXPECT_EQ(OfKind(controls, SharingKind::kReturn)[0].leases.size(), 100u);
}

TEST_F(PayloadSharingTest, WhoNeverReadsIsOwedLittle) {
  Make(&borrower_, &other_memory_).AddPeer(kPeer);
  const auto nobody_reads = [](PeerId) { return false; };
  const SharingPart bad{.kind = SharingKind::kOffer, .pid = kNobody};
  const SharingPart good{.kind = SharingKind::kOffer,
                         .pid = static_cast<uint64_t>(getpid()),
                         .segment = memory_.greeting()};
  for (int i = 0; i < 1000; ++i) {
    ASSERT_TRUE(borrower_->HandleControl(kPeer, BuildSharingPart(bad).bytes()).ok());
    ASSERT_TRUE(borrower_->HandleControl(kPeer, BuildSharingPart(good).bytes()).ok());
    ASSERT_TRUE(borrower_->TakeControls(nobody_reads).empty());
  }
  auto controls = borrower_->TakeControls();
  ASSERT_EQ(controls.size(), 2u);  // the latest answer, and an offer of its own
  EXPECT_EQ(OfKind(controls, SharingKind::kAccept).size(), 1u);
  for (auto& control : controls) borrower_->PutBack(std::move(control));
  EXPECT_EQ(borrower_->TakeControls().size(), 2u);

  const size_t most = kDefaultLimits.max_payload_frames;
  const Payload references = Unreadable(kNobody, most);
  for (size_t i = 0; i < kMaxReturnsDue / most + 3; ++i) {
    EXPECT_FALSE(borrower_->Borrow(kPeer, references.bytes()).ok());
    ASSERT_TRUE(borrower_->TakeControls(nobody_reads).empty());
  }
  controls = borrower_->TakeControls();
  EXPECT_EQ(OfKind(controls, SharingKind::kRefuse).size(), 1u);
  size_t returned = 0;
  for (const SharingPart& part : OfKind(controls, SharingKind::kReturn)) {
    returned += part.leases.size();
  }
  EXPECT_EQ(returned, kMaxReturnsDue);
  EXPECT_TRUE(borrower_->TakeControls().empty());
  // What was sent makes room for more.
  EXPECT_FALSE(borrower_->Borrow(kPeer, references.bytes()).ok());
  EXPECT_EQ(OfKind(borrower_->TakeControls(), SharingKind::kReturn).size(), 1u);
}

TEST_F(PayloadSharingTest, NobodyEndsTheLeaseOfAnother) {
  Child first, second;
  Make(&lender_, &memory_).AddPeer(kPeer);
  lender_->AddPeer(kNext);
  const auto say = [&](PeerId peer, SharingPart part) {
    EXPECT_TRUE(lender_->HandleControl(peer, BuildSharingPart(part).bytes()).ok());
  };
  say(kPeer, {.kind = SharingKind::kAccept, .pid = first.pid()});
  say(kNext, {.kind = SharingKind::kAccept, .pid = second.pid()});
  const auto loan = lender_->Lend(kPeer, PushFrame(&memory_, 1));
  ASSERT_TRUE(loan);
  say(kNext, {.kind = SharingKind::kReturn, .pid = second.pid(), .leases = loan->leases});
  say(kNext, {.kind = SharingKind::kReturn, .pid = first.pid(), .leases = loan->leases});
  EXPECT_TRUE(lender_->lends());
  EXPECT_EQ(memory_.stats().bytes_in_use, kLarge);
  // A stranger cannot return it either. But the lease may come back over another connection, before
  // the borrower's process is known there.
  constexpr PeerId kThird{3};
  lender_->AddPeer(kThird);
  say(kThird, {.kind = SharingKind::kReturn, .pid = second.pid(), .leases = loan->leases});
  EXPECT_TRUE(lender_->lends());
  say(kThird, {.kind = SharingKind::kReturn, .pid = first.pid(), .leases = loan->leases});
  EXPECT_FALSE(lender_->lends());
}

TEST_F(PayloadSharingTest, ADeadProcessIsOwedNothing) {
  Child child;
  Make(&borrower_, &other_memory_).AddPeer(kPeer);
  EXPECT_FALSE(borrower_->Borrow(kPeer, Unreadable(child.pid(), 2).bytes()).ok());
  EXPECT_TRUE(borrower_->TakeControls([](PeerId) { return false; }).empty());
  child.End();
  borrower_->TakeEndedProcesses();
  EXPECT_TRUE(borrower_->TakeControls().empty());
}

}  // namespace
}  // namespace slimps
