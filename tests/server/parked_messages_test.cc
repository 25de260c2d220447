#include "server/parked_messages.h"

#include <string>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/base/buffer.h"

namespace slimps {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using Code = absl::StatusCode;

constexpr absl::Time kBegin = absl::UnixEpoch();

EarlyMessage Early(uint64_t request, size_t payload_bytes = 0, absl::Time came = kBegin) {
  EarlyMessage early{.from = PeerId{1}, .message = {}, .came = came};
  early.message.header.set_request_id(request);
  if (payload_bytes > 0) {
    early.message.payloads.push_back(Payload::Adopt(AlignedBuffer(payload_bytes), payload_bytes));
  }
  return early;
}

TEST(ParkedMessages, AreTakenInTheOrderInWhichTheyCame) {
  ParkedMessages parked;
  for (uint64_t request = 1; request <= 3; ++request) {
    EXPECT_TRUE(parked.Add(Early(request), kBegin).ok());
  }
  const auto all = parked.TakeAll();
  ASSERT_THAT(all, SizeIs(3));
  for (uint64_t i = 0; i < 3; ++i) EXPECT_EQ(all[i].message.header.request_id(), i + 1);
  EXPECT_THAT(parked.TakeAll(), IsEmpty());
}

TEST(ParkedMessages, AreNoMoreThanThereIsRoomFor) {
  ParkedMessages parked;
  for (size_t i = 0; i < ParkedMessages::kMostMessages; ++i) {
    EXPECT_TRUE(parked.Add(Early(i), kBegin).ok());
  }
  EXPECT_EQ(parked.Add(Early(0), kBegin).code(), Code::kResourceExhausted);
  EXPECT_THAT(parked.TakeAll(), SizeIs(ParkedMessages::kMostMessages));

  constexpr size_t kThird = ParkedMessages::kMostBytes / 3;
  for (int repeat = 0; repeat < 2; ++repeat) {
    for (const absl::Duration waited : {absl::Seconds(1), absl::ZeroDuration()}) {
      EXPECT_TRUE(parked.Add(Early(1, kThird, kBegin - waited), kBegin).ok());
    }
    EarlyMessage large = Early(2, kThird + 3);
    const absl::Status refused = parked.Add(std::move(large), kBegin);
    EXPECT_EQ(refused.code(), Code::kResourceExhausted);
    EXPECT_THAT(std::string(refused.message()), HasSubstr("2 messages of 447392"));
    EXPECT_THAT(large.message.payloads, SizeIs(1)) << "its owner answers it";
    EXPECT_TRUE(parked.Add(Early(3), kBegin).ok());
    // What goes leaves its room, whichever way.
    if (repeat == 0) {
      EXPECT_THAT(parked.TakeLate(kBegin + ParkedMessages::kLongest), SizeIs(3));
    }
  }
  EXPECT_THAT(parked.TakeAll(), SizeIs(3));
  EXPECT_TRUE(parked.Add(Early(4, 2 * kThird), kBegin).ok());
}

TEST(ParkedMessages, WaitForSoLongAndNotAgain) {
  ParkedMessages parked;
  EXPECT_TRUE(parked.Add(Early(1, 0, kBegin), kBegin).ok());
  const absl::Time later = kBegin + absl::Seconds(1);
  EXPECT_TRUE(parked.Add(Early(2, 0, later), later).ok());
  const absl::Time end = kBegin + ParkedMessages::kLongest;
  EXPECT_THAT(parked.TakeLate(end - absl::Nanoseconds(1)), IsEmpty());
  auto late = parked.TakeLate(end);
  ASSERT_THAT(late, SizeIs(1));
  EXPECT_EQ(late[0].message.header.request_id(), 1u);
  const absl::Status refused = parked.Add(std::move(late[0]), end);
  EXPECT_EQ(refused, absl::ResourceExhaustedError("it has not come within 10s"));
  EXPECT_THAT(parked.TakeAll(), SizeIs(1));
}

}  // namespace
}  // namespace slimps
