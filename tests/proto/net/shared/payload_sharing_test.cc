// SPDX-License-Identifier: Apache-2.0
// PayloadSharing without sockets: which end lends what to which, and until when.
#include "proto/net/shared/payload_sharing.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <vector>

#include "tests/proto/net/shared/child_process.h"
#include "tests/proto/net/shared/payload_sharing_fixture.h"

namespace slimps {
namespace {

TEST_F(PayloadSharingTest, NothingIsLentBeforeTheOtherSideAccepted) {
  Make(&lender_, &memory_).AddPeer(kPeer);
  EXPECT_FALSE(lender_->Lend(kPeer, PushFrame(&memory_, 1)));
  Make(&borrower_, &other_memory_).AddPeer(kPeer);
  EXPECT_EQ(Talk(*lender_, *borrower_),
            (std::vector<SharingKind>{SharingKind::kOffer, SharingKind::kAccept}));
  EXPECT_TRUE(lender_->Lend(kPeer, PushFrame(&memory_, 1)));
  EXPECT_TRUE(borrower_->Lend(kPeer, PushFrame(&other_memory_, 1)));
}

TEST_F(PayloadSharingTest, ABorrowedPayloadIsTheLendersMemoryUntilItIsLetGo) {
  Agree();
  Frame frame = PushFrame(&memory_, 5);
  const auto loan = lender_->Lend(kPeer, frame);
  ASSERT_TRUE(loan);
  EXPECT_EQ(loan->parts.size(), 2u);  // references, header
  EXPECT_EQ(loan->lent_bytes, kLarge);
  EXPECT_LT(loan->inline_bytes, 1000u);
  Payload payload = BorrowOne(*borrower_, *loan);
  EXPECT_TRUE(IsPayloadOf(payload, 5));
  EXPECT_NE(payload.bytes().data(), frame[1].bytes().data());  // mapped, not copied
  const_cast<std::byte*>(frame[1].bytes().data())[9] ^= std::byte{1};
  EXPECT_FALSE(IsPayloadOf(payload, 5));

  frame.clear();
  Talk(*borrower_, *lender_);
  EXPECT_TRUE(lender_->lends());
  EXPECT_EQ(memory_.stats().bytes_in_use, kLarge);
  const Payload copy = payload;
  payload = Payload();
  EXPECT_TRUE(Talk(*borrower_, *lender_).empty());
  const_cast<Payload&>(copy) = Payload();
  EXPECT_EQ(Talk(*borrower_, *lender_), std::vector<SharingKind>{SharingKind::kReturn});
  EXPECT_FALSE(lender_->lends());
  EXPECT_EQ(memory_.stats().bytes_in_use, 0u);
}

TEST_F(PayloadSharingTest, WhatIsSmallElsewhereOrMisalignedTravelsInline) {
  Agree();
  EXPECT_FALSE(lender_->Lend(kPeer, PushFrame(&memory_, 1, 4096)));
  EXPECT_FALSE(lender_->Lend(kPeer, *BuildFrame(NumberedPush(1, kLarge), kDefaultLimits)));
  Frame frame = PushFrame(&memory_, 1, kLarge + 8);
  frame[1] = Payload(frame[1].owner(), frame[1].bytes().subspan(1));
  EXPECT_FALSE(lender_->Lend(kPeer, frame));
  EXPECT_FALSE(lender_->lends());
}

TEST_F(PayloadSharingTest, AFrameMayCarryBothKinds) {
  Agree();
  Frame frame = PushFrame(&memory_, 1);
  frame.insert(frame.begin() + 1, NumberedPush(2, kLarge).payloads[0]);
  frame.push_back(NumberedPush(3, 64).payloads[0]);
  const auto loan = lender_->Lend(kPeer, frame);
  ASSERT_TRUE(loan);
  EXPECT_EQ(loan->parts.size(), 4u);
  EXPECT_EQ(loan->parts[2].bytes().data(), frame[1].bytes().data());
  const auto borrowed = borrower_->Borrow(kPeer, loan->parts[0].bytes());
  ASSERT_TRUE(borrowed.ok());
  ASSERT_EQ(borrowed->size(), 1u);
  EXPECT_EQ((*borrowed)[0].payload, 1u);
  EXPECT_TRUE(IsPayloadOf((*borrowed)[0].bytes, 1));
}

TEST_F(PayloadSharingTest, BeyondTheBoundPayloadsTravelInlineUntilSomeAreReturned) {
  Make(&lender_, &memory_, 2 * kLarge).AddPeer(kPeer);
  Make(&borrower_, &other_memory_).AddPeer(kPeer);
  Talk(*lender_, *borrower_);
  const Frame frame = PushFrame(&memory_, 1);
  auto first = lender_->Lend(kPeer, frame);
  Payload payload = BorrowOne(*borrower_, *first);
  EXPECT_TRUE(lender_->Lend(kPeer, frame));
  EXPECT_FALSE(lender_->Lend(kPeer, frame));
  payload = Payload();
  Talk(*borrower_, *lender_);
  EXPECT_TRUE(lender_->Lend(kPeer, frame));
}

TEST_F(PayloadSharingTest, ALoanThatWasNotSentIsTakenBack) {
  Agree();
  const auto loan = lender_->Lend(kPeer, PushFrame(&memory_, 1));
  EXPECT_TRUE(lender_->lends());
  lender_->TakeBack(loan->leases);
  lender_->TakeBack(loan->leases);  // a second time it does nothing
  EXPECT_FALSE(lender_->lends());
}

TEST_F(PayloadSharingTest, LeasesOfStrangersAreNobodysBusiness) {
  Agree();
  const auto loan = lender_->Lend(kPeer, PushFrame(&memory_, 1));
  const Payload strange = BuildSharingPart(
      {.kind = SharingKind::kReturn, .pid = 1, .leases = {0, 1, loan->leases[0] + 1}});
  EXPECT_TRUE(lender_->HandleControl(kPeer, strange.bytes()).ok());
  EXPECT_TRUE(lender_->lends());
}

TEST_F(PayloadSharingTest, WhoIsSwitchedOffRefusesAndStaysSilent) {
  Make(&lender_, &memory_).AddPeer(kPeer);
  Make(&borrower_, nullptr).AddPeer(kPeer);
  EXPECT_TRUE(borrower_->TakeControls().empty());
  Talk(*lender_, *borrower_);
  EXPECT_FALSE(lender_->Lend(kPeer, PushFrame(&memory_, 1)));
  const Payload references = BuildSharingPart(
      {.kind = SharingKind::kReferences, .pid = 1, .references = {PayloadReference{}}});
  EXPECT_EQ(borrower_->Borrow(kPeer, references.bytes()).status().code(),
            absl::StatusCode::kFailedPrecondition);
}

TEST_F(PayloadSharingTest, AnOfferThatCannotBeOpenedIsRefusedWithTheReason) {
  Make(&borrower_, &other_memory_).AddPeer(kPeer);
  (void)borrower_->TakeControls();
  const auto answer = [&](SharingPart offer) {
    EXPECT_TRUE(borrower_->HandleControl(kPeer, BuildSharingPart(offer).bytes()).ok());
    return *ParseSharingPart(borrower_->TakeControls().at(0).part.bytes(), kDefaultLimits);
  };
  SharingPart offer{.kind = SharingKind::kOffer,
                    .pid = static_cast<uint64_t>(getpid()),
                    .segment = memory_.greeting()};
  EXPECT_EQ(answer(offer).kind, SharingKind::kAccept);
  offer.segment = SharedMemory().greeting();  // a segment that is gone already
  const SharingPart gone = answer(offer);
  EXPECT_EQ(gone.kind, SharingKind::kRefuse);
  EXPECT_NE(gone.reason.find("/proc/"), std::string::npos) << gone.reason;
  offer.pid = uint64_t{1} << 29;
  const SharingPart nobody = answer(offer);
  EXPECT_EQ(nobody.kind, SharingKind::kRefuse);
  EXPECT_NE(nobody.reason.find("cannot be watched"), std::string::npos) << nobody.reason;
}

TEST_F(PayloadSharingTest, ALeaseSurvivesTheConnectionAndReturnsByTheNext) {
  Agree();
  const auto loan = lender_->Lend(kPeer, PushFrame(&memory_, 1));
  Payload payload = BorrowOne(*borrower_, *loan);
  lender_->RemovePeer(kPeer);
  borrower_->RemovePeer(kPeer);
  EXPECT_TRUE(lender_->lends());  // the borrower lives and may be reading
  EXPECT_FALSE(lender_->Lend(kPeer, PushFrame(&memory_, 1)));
  lender_->AddPeer(kNext);
  borrower_->AddPeer(kNext);
  Talk(*lender_, *borrower_);
  payload = Payload();
  Talk(*borrower_, *lender_);
  EXPECT_FALSE(lender_->lends());
}

TEST_F(PayloadSharingTest, WhatADeadProcessHadBorrowedComesBack) {
  Child child;
  Make(&lender_, &memory_).AddPeer(kPeer);
  const Payload accept = BuildSharingPart({.kind = SharingKind::kAccept, .pid = child.pid()});
  ASSERT_TRUE(lender_->HandleControl(kPeer, accept.bytes()).ok());
  ASSERT_TRUE(lender_->Lend(kPeer, PushFrame(&memory_, 1)));
  lender_->TakeEndedProcesses();
  EXPECT_TRUE(lender_->lends());
  child.End();
  lender_->TakeEndedProcesses();
  EXPECT_FALSE(lender_->lends());
  EXPECT_EQ(memory_.stats().bytes_in_use, 0u);
  EXPECT_FALSE(lender_->Lend(kPeer, PushFrame(&memory_, 1)));  // there is no borrower any more
}

TEST_F(PayloadSharingTest, WhatIsLentWhenTheLenderStopsIsKeptWhileTheBorrowerLives) {
  static SharedMemory memory;  // a kept payload may outlive the test
  Child child;
  Make(&lender_, &memory).AddPeer(kPeer);
  const Payload accept = BuildSharingPart({.kind = SharingKind::kAccept, .pid = child.pid()});
  ASSERT_TRUE(lender_->HandleControl(kPeer, accept.bytes()).ok());
  ASSERT_TRUE(lender_->Lend(kPeer, PushFrame(&memory, 1)));
  lender_.reset();
  EXPECT_EQ(memory.stats().bytes_in_use, kLarge);
  child.End();
  Make(&borrower_, &memory);  // the next to share frees what ended processes left
  EXPECT_EQ(memory.stats().bytes_in_use, 0u);
}

TEST_F(PayloadSharingTest, AnotherProcessInThePeersPlaceIsMetAnew) {
  Child first, second;
  Make(&lender_, &memory_).AddPeer(kPeer);
  const auto accept = [&](const Child& child) {
    const Payload part = BuildSharingPart({.kind = SharingKind::kAccept, .pid = child.pid()});
    EXPECT_TRUE(lender_->HandleControl(kPeer, part.bytes()).ok());
  };
  accept(first);
  ASSERT_TRUE(lender_->Lend(kPeer, PushFrame(&memory_, 1)));
  first.End();
  lender_->TakeEndedProcesses();
  (void)lender_->TakeControls();
  // The successor offers its memory, and receives an offer in return.
  const Payload offer = BuildSharingPart(
      {.kind = SharingKind::kOffer, .pid = second.pid(), .segment = memory_.greeting()});
  ASSERT_TRUE(lender_->HandleControl(kPeer, offer.bytes()).ok());
  std::vector<SharingKind> said;
  for (const auto& control : lender_->TakeControls()) {
    said.push_back(ParseSharingPart(control.part.bytes(), kDefaultLimits)->kind);
  }
  EXPECT_EQ(said.back(), SharingKind::kOffer);
  accept(second);
  EXPECT_TRUE(lender_->Lend(kPeer, PushFrame(&memory_, 1)));
}

}  // namespace
}  // namespace slimps
