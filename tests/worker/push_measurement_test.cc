#include "worker/push_measurement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "proto/base/mutex.h"

namespace slimps {
namespace {

using ::testing::HasSubstr;

constexpr absl::Duration kLong = absl::Seconds(30);

TensorPlan TensorOf(size_t partitions) {
  TensorPlan tensor{.key = Key("w"), .info = {}, .elements = 1000 * partitions, .partitions = {}};
  for (size_t i = 0; i < partitions; ++i) {
    tensor.partitions.push_back({static_cast<uint32_t>(i % 2), 1000 * i, 1000});
  }
  return tensor;
}

std::vector<OutgoingItem> Items(size_t partitions, size_t payload_bytes) {
  std::vector<OutgoingItem> items(partitions);
  for (size_t i = 0; i < partitions; ++i) {
    wire::PushItem push;
    push.mutable_id()->set_partition(static_cast<uint32_t>(i));
    items[i].item = push;
    const auto bytes = std::make_shared<std::vector<std::byte>>(payload_bytes);
    items[i].payload = Payload(bytes, *bytes);
    items[i].done = [](Answer) { ADD_FAILURE() << "the caller's own `done` was called"; };
  }
  return items;
}

TEST(PushMeasurement, CommunicationIsThePassageLessTheDecoding) {
  int sent = 0;
  const PushMeasurement measurement(
      [&](uint32_t, std::vector<OutgoingItem> items, int priority) {
        EXPECT_EQ(priority, 7);
        ++sent;
        items[0].done({.status = absl::OkStatus(),
                       .round_trip = absl::Seconds(50),
                       .decode = absl::Seconds(20),
                       .pull = {},
                       .payload = {}});
      },
      kLong);
  const auto passage = measurement.Send(TensorOf(1), 7, Items(1, 1 << 20));
  ASSERT_TRUE(passage.ok()) << passage.status();
  EXPECT_EQ(sent, 1);
  EXPECT_EQ(passage->communication, absl::Seconds(30));
  EXPECT_EQ(passage->decode, absl::Seconds(20));
}

TEST(PushMeasurement, OfManyPartitionsFromTheFirstByteToTheLastAnswer) {
  std::vector<uint32_t> servers;
  const PushMeasurement measurement(
      [&](uint32_t server, std::vector<OutgoingItem> items, int) {
        ASSERT_EQ(items.size(), 1u);  // alone
        servers.push_back(server);
        const uint32_t partition = std::get<wire::PushItem>(items[0].item).id().partition();
        items[0].done({.status = absl::OkStatus(),
                       .round_trip = absl::Seconds(100 - 10 * static_cast<int>(partition)),
                       .decode = absl::Seconds(partition == 2 ? 1 : 30),
                       .pull = {},
                       .payload = {}});
      },
      kLong);
  const auto passage = measurement.Send(TensorOf(3), 0, Items(3, 1 << 20));
  ASSERT_TRUE(passage.ok()) << passage.status();
  EXPECT_EQ(servers, (std::vector<uint32_t>{0, 1, 0}));
  // First byte 100 s ago; the last answer, 1 s of whose wait was decoding, just now.
  EXPECT_NEAR(absl::ToDoubleSeconds(passage->communication), 99, 1);
  EXPECT_EQ(passage->decode, absl::Seconds(61));
}

TEST(PushMeasurement, SmallOnesAreRepeatedAndTheQuickestCounts) {
  for (const size_t bytes :
       {PushMeasurement::kRepeatedBytes, PushMeasurement::kRepeatedBytes + 1}) {
    int sent = 0;
    const PushMeasurement measurement(
        [&](uint32_t, std::vector<OutgoingItem> items, int) {
          ++sent;
          items[0].done({.status = absl::OkStatus(),
                         .round_trip = absl::Seconds(sent == 9 ? 20 : 50),
                         .decode = absl::Seconds(sent == 11 ? 2 : 3),
                         .pull = {},
                         .payload = {}});
        },
        kLong);
    const auto passage = measurement.Send(TensorOf(1), 0, Items(1, bytes));
    ASSERT_TRUE(passage.ok()) << passage.status();
    const bool repeated = bytes == PushMeasurement::kRepeatedBytes;
    EXPECT_EQ(sent, repeated ? PushMeasurement::kRepeats : 1);
    EXPECT_EQ(passage->communication, absl::Seconds(repeated ? 17 : 47));
    EXPECT_EQ(passage->decode, absl::Seconds(repeated ? 2 : 3));
  }
}

TEST(PushMeasurement, APassageOfWhichSomethingWasSentAgainIsNone) {
  for (const int lost : {1, PushMeasurement::kRepeats}) {  // how many passages
    int sent = 0;
    const PushMeasurement measurement(
        [&](uint32_t server, std::vector<OutgoingItem> items, int) {
          const bool again = server == 1 && sent++ < lost;
          items[0].done({.status = absl::OkStatus(),
                         .round_trip = again ? absl::ZeroDuration() : absl::Seconds(30),
                         .decode = {},
                         .pull = {},
                         .payload = {}});
        },
        kLong);
    const auto passage = measurement.Send(TensorOf(2), 0, Items(2, 8));
    ASSERT_TRUE(passage.ok()) << passage.status();
    EXPECT_NEAR(absl::ToDoubleSeconds(passage->communication), lost == 1 ? 30 : 0, 1);
    EXPECT_EQ(passage->communication == absl::ZeroDuration(), lost > 1);
  }
}

TEST(PushMeasurement, AnErrorOfOnePartitionIsTheAnswer) {
  const PushMeasurement measurement(
      [&](uint32_t server, std::vector<OutgoingItem> items, int) {
        items[0].done(
            {.status = server == 1 ? absl::UnavailableError("server 1 is gone") : absl::OkStatus(),
             .round_trip = {},
             .decode = {},
             .pull = {},
             .payload = {}});
      },
      kLong);
  EXPECT_EQ(measurement.Send(TensorOf(4), 0, Items(4, 8)).status().message(), "server 1 is gone");
}

TEST(PushMeasurement, AnswersFromOtherThreadsAndAnswersThatNeverCome) {
  std::vector<std::thread> threads;
  const auto answer = [&](uint32_t, std::vector<OutgoingItem> items, int) {
    threads.emplace_back([done = items[0].done] {
      done({.status = absl::OkStatus(), .round_trip = {}, .decode = {}, .pull = {}, .payload = {}});
    });
  };
  EXPECT_TRUE(PushMeasurement(answer, kLong).Send(TensorOf(8), 0, Items(8, 1)).ok());
  for (std::thread& thread : threads) thread.join();
  const PushMeasurement lost([](uint32_t, std::vector<OutgoingItem>, int) {}, absl::ZeroDuration());
  const absl::Status status = lost.Send(TensorOf(1), 0, Items(1, 1)).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(status.message()), HasSubstr("s:w"));
}

}  // namespace
}  // namespace slimps
