// SPDX-License-Identifier: Apache-2.0
#include "worker/push/push_measurement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <thread>

#include "compress/policy/threshold_table.h"
#include "proto/base/mutex.h"

namespace slimps {
namespace {

using ::testing::HasSubstr;

constexpr absl::Duration kLong = absl::Seconds(30);

TensorPlan TensorOf(size_t partitions, size_t elements = size_t{1} << 20) {
  TensorPlan tensor{.key = Key("w"), .info = {}, .elements = elements, .partitions = {}};
  const size_t share = elements / partitions;
  for (size_t i = 0; i < partitions; ++i) {
    tensor.partitions.push_back({static_cast<uint32_t>(i % 2), share * i, share});
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
        ASSERT_EQ(items.size(), 1u);  // it travels alone
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
  // The first byte went 100 s ago and the last answer came just now. 1 s of its wait was decoding.
  EXPECT_NEAR(absl::ToDoubleSeconds(passage->communication), 99, 1);
  EXPECT_EQ(passage->decode, absl::Seconds(61));
}

TEST(PushMeasurement, SmallOnesAreRepeatedAndTheQuickestCounts) {
  for (const size_t elements : {size_t{1000}, size_t{16'384}}) {
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
    const auto passage = measurement.Send(TensorOf(1, elements), 0, Items(1, 8));
    ASSERT_TRUE(passage.ok()) << passage.status();
    const bool repeated = elements == 1000;
    EXPECT_EQ(sent, repeated ? PushMeasurement::kMaxRepeats : 1);
    EXPECT_EQ(passage->communication, absl::Seconds(repeated ? 17 : 47));
    EXPECT_EQ(passage->decode, absl::Seconds(repeated ? 2 : 3));
  }
}

TEST(PushMeasurement, RepeatsGoByTheTensorsSizeWhateverItsPayload) {
  EXPECT_EQ(PushMeasurement::Repeats(0), PushMeasurement::kMaxRepeats);
  EXPECT_EQ(PushMeasurement::Repeats(4096), 16);
  EXPECT_EQ(PushMeasurement::Repeats(4100), 15);
  EXPECT_EQ(PushMeasurement::Repeats(20'000), 3);
  EXPECT_EQ(PushMeasurement::Repeats(uint64_t{1} << 40), 1);
  for (const size_t payload_bytes : {size_t{8}, size_t{1} << 20}) {
    int sent = 0;
    const PushMeasurement measurement(
        [&](uint32_t, std::vector<OutgoingItem> items, int) {
          ++sent;
          items[0].done({.status = absl::OkStatus(),
                         .round_trip = absl::Seconds(1),
                         .decode = {},
                         .pull = {},
                         .payload = {}});
        },
        kLong);
    ASSERT_TRUE(measurement.Send(TensorOf(1, 4096), 0, Items(1, payload_bytes)).ok());
    EXPECT_EQ(sent, 4) << payload_bytes;
  }
}

// A link that takes a start-up time, the time of the bytes, and a random extra time.
class JitteringLink final {
 public:
  static constexpr double kStartupNs = 100'000, kNsPerByte = 8, kMeanJitterNs = 60'000;

  explicit JitteringLink(double mean_jitter_ns) : mean_jitter_ns_(mean_jitter_ns) {}

  // Returns the time of sending a tensor of `tensor_bytes` as a payload of `payload_bytes`.
  absl::Duration Measure(uint64_t tensor_bytes, size_t payload_bytes) {
    const PushMeasurement measurement(
        [this](uint32_t, std::vector<OutgoingItem> items, int) {
          const double ns =
              kStartupNs + kNsPerByte * static_cast<double>(items[0].payload.size()) + Jitter();
          items[0].done({.status = absl::OkStatus(),
                         .round_trip = absl::Nanoseconds(static_cast<int64_t>(ns)),
                         .decode = {},
                         .pull = {},
                         .payload = {}});
        },
        kLong);
    const TensorPlan tensor = TensorOf(1, tensor_bytes / sizeof(float));
    return measurement.Send(tensor, 0, Items(1, payload_bytes)).value().communication;
  }

 private:
  double Jitter() { return mean_jitter_ns_ == 0 ? 0 : mean_jitter_ns_ * exponential_(random_); }

  const double mean_jitter_ns_;
  std::mt19937_64 random_{1};
  std::exponential_distribution<double> exponential_{1};
};

constexpr uint64_t kTensorBytes[] = {512,       4096,      8192,    32 << 10,
                                     126 << 10, 512 << 10, 2 << 20, 3'000'000};

TEST(PushMeasurement, AJitteringLinkShortensNeitherSide) {
  JitteringLink link(JitteringLink::kMeanJitterNs);
  for (const double share : {1.0 / 32, 0.001 * 5.3 / 4}) {  // 1bit, topk with ratio 0.001
    for (const uint64_t bytes : kTensorBytes) {
      const auto payload = static_cast<size_t>(static_cast<double>(bytes) * share);
      constexpr int kRounds = 1000;
      absl::Duration saved;
      for (int i = 0; i < kRounds; ++i) {
        saved += link.Measure(bytes, bytes) - link.Measure(bytes, payload);
      }
      const double saved_ns = absl::ToDoubleNanoseconds(saved) / kRounds;
      const double true_ns = JitteringLink::kNsPerByte * static_cast<double>(bytes - payload);
      EXPECT_NEAR(saved_ns, true_ns, JitteringLink::kMeanJitterNs / 6) << bytes << " x " << share;
    }
  }
}

TEST(PushMeasurement, SizesGainOnAJitteringLinkThatGainOnASteadyOne) {
  const auto table = [](double mean_jitter_ns) {
    JitteringLink link(mean_jitter_ns);
    ThresholdTable table("1bit");
    for (int round = 0; round < 100; ++round) {
      for (const uint64_t bytes : kTensorBytes) {
        table.AddRaw(bytes, link.Measure(bytes, bytes));
        // Encoding costs slightly more than compression saves on 32 KiB.
        table.AddCompressed(bytes, link.Measure(bytes, bytes / 32), absl::Microseconds(280));
      }
    }
    return table.Rows();
  };
  const std::vector<ThresholdRow> steady = table(0), jittering = table(60'000);
  for (size_t i = 0; i < steady.size(); ++i) {
    EXPECT_EQ(jittering[i].gains(), steady[i].gains()) << steady[i].bytes;
    EXPECT_EQ(steady[i].gains(), steady[i].bytes > 32 << 10) << steady[i].bytes;
  }
}

TEST(PushMeasurement, APassageOfWhichSomethingWasSentAgainIsNone) {
  for (const int lost : {1, 8}) {  // how many passages lose something
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
    const auto passage = measurement.Send(TensorOf(2, 2000), 0, Items(2, 8));
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
  std::vector<OutgoingItem> unanswered;
  const auto keep = [&](uint32_t, std::vector<OutgoingItem> items, int) {
    unanswered = std::move(items);
  };
  const PushMeasurement lost(keep, absl::ZeroDuration());
  const absl::Status status = lost.Send(TensorOf(1), 0, Items(1, 1)).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(status.message()), HasSubstr("s:w"));
}

}  // namespace
}  // namespace slimps
