// SPDX-License-Identifier: Apache-2.0
// A PullMerger whose requests the test answers by hand, as servers would.
#ifndef SLIMPS_TESTS_WORKER_PULL_PULL_MERGER_FIXTURE_H_
#define SLIMPS_TESTS_WORKER_PULL_PULL_MERGER_FIXTURE_H_

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "proto/base/clock.h"
#include "proto/base/mutex.h"
#include "proto/status_proto.h"
#include "tests/proto/base/moved_clock.h"
#include "worker/pull/pull_merger.h"

namespace slimps {

inline constexpr absl::Duration kLong = absl::Seconds(60);  // only a failing test waits this long

// Keeps each pull for the test, which answers it as servers would. Thread-safe.
class AskedTransport final : public Transport {
 public:
  absl::StatusOr<std::string> Bind(std::string_view address) override {
    return std::string(address);
  }
  absl::Status Start(MessageSink*) override { return absl::OkStatus(); }
  absl::StatusOr<PeerId> Connect(std::string_view) override { return PeerId{1}; }
  absl::Status Send(PeerId, Message message, SendOptions options) override {
    if (options.on_handed_over) options.on_handed_over(MachineClock()->Now());
    MutexLock lock(&mutex_);
    for (const wire::PullItem& item : message.header.pull().items()) asked_.push_back(item);
    changed_.NotifyAll();
    return absl::OkStatus();
  }
  void Stop() override {}

  // Returns the next pull asked for, or one without a key if none comes.
  wire::PullItem Next(absl::Duration within = kLong) {
    MutexLock lock(&mutex_);
    if (!changed_.Await(&mutex_, within, [this] { return !asked_.empty(); })) return {};
    wire::PullItem item = std::move(asked_.front());
    asked_.pop_front();
    return item;
  }
  bool idle() {
    MutexLock lock(&mutex_);
    return asked_.empty();
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  std::deque<wire::PullItem> asked_;
};

// Keeps the result of a pull. Thread-safe.
class Outcome {
 public:
  std::function<void(absl::Status)> Setter() {
    return [this](absl::Status status) {
      MutexLock lock(&mutex_);
      status_ = std::move(status);
      ++calls_;
      changed_.NotifyAll();
    };
  }
  absl::Status Await() {
    MutexLock lock(&mutex_);
    changed_.Await(&mutex_, kLong, [this] { return status_.has_value(); });
    EXPECT_EQ(calls_, 1);
    return status_.value_or(absl::UnknownError("never done"));
  }
  bool done() {
    MutexLock lock(&mutex_);
    return status_.has_value();
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  std::optional<absl::Status> status_;
  int calls_ = 0;
};

class PullMergerTest : public ::testing::Test {
 protected:
  explicit PullMergerTest(absl::Duration retry_interval = kLong)
      : courier_(&transport_, &membership_, {PeerId{1}}, {.retry_interval = retry_interval}) {
    tensor_.elements = 4;
    tensor_.partitions = {{.server = 0, .offset = 0, .elements = 3},
                          {.server = 0, .offset = 3, .elements = 1}};
  }
  ~PullMergerTest() override { courier_.FailAll(absl::CancelledError("the test is over")); }

  void Make(PullMergerOptions options = {}) {
    merger_ = std::make_unique<PullMerger>(&courier_, std::move(options));
  }
  void Submit(uint64_t version, PullKind kind, std::vector<float>& out, Outcome& outcome,
              bool is_newest = false) {
    merger_->Submit({.tensor = &tensor_,
                     .min_version = version,
                     .out = out,
                     .kind = kind,
                     .is_newest = is_newest,
                     .done = outcome.Setter()});
  }
  std::vector<wire::PullItem> Asked() { return {transport_.Next(), transport_.Next()}; }

  struct AnswerFields {
    uint64_t version = 0;
    float value = 0;                              // of every element
    std::optional<uint64_t> base = std::nullopt;  // the answer is a change onto this version
    uint64_t encode_ns = 0;
  };
  void Answer(const wire::PullItem& asked, const AnswerFields& answer) {
    const std::vector<float> values(tensor_.partitions.at(asked.id().partition()).elements,
                                    answer.value);
    Message reply;
    wire::PullReplyItem* item = reply.header.mutable_pull_reply()->add_items();
    *item->mutable_id() = asked.id();
    item->set_version(answer.version);
    item->set_elements(values.size());
    item->set_format(wire::RAW_F32);
    item->set_payload_bytes(values.size() * sizeof(float));
    item->set_is_change(answer.base.has_value());
    item->set_base_version(answer.base.value_or(0));
    item->set_encode_ns(answer.encode_ns);
    reply.payloads.push_back(Payload::Copy(std::as_bytes(std::span(values))));
    EXPECT_TRUE(courier_.HandleMessage(PeerId{1}, reply));
  }
  void Refuse(const wire::PullItem& asked, const absl::Status& why) {
    Message reply;
    wire::PullReplyItem* item = reply.header.mutable_pull_reply()->add_items();
    *item->mutable_id() = asked.id();
    *item->mutable_status() = ToStatusProto(why);
    EXPECT_TRUE(courier_.HandleMessage(PeerId{1}, reply));
  }

  // Makes one whole pull. Both partitions get the same answer.
  void Pull(uint64_t version, PullKind kind, std::vector<float>& out, float value,
            std::optional<uint64_t> base = std::nullopt) {
    Outcome outcome;
    Submit(version, kind, out, outcome);
    for (const wire::PullItem& asked : Asked())
      Answer(asked, {.version = version, .value = value, .base = base});
    const absl::Status status = outcome.Await();
    EXPECT_TRUE(status.ok()) << status;
  }

  // Fills `out` with version 1, whose elements are all 10, and submits a pull of `version` onto it.
  // Returns the requests for both partitions.
  std::vector<wire::PullItem> AskOnto(std::vector<float>& out, uint64_t version, Outcome& outcome) {
    Pull(1, PullKind::kOnto, out, 10);
    Submit(version, PullKind::kOnto, out, outcome);
    return Asked();
  }

  MovedClock clock_;  // of the mergers that ask for it; it stands still until a test moves it
  AskedTransport transport_;
  Membership membership_{&transport_, {.role = wire::WORKER}};
  Courier courier_;
  TensorPlan tensor_{.key = Key("w")};
  std::unique_ptr<PullMerger> merger_;
};

}  // namespace slimps

#endif  // SLIMPS_TESTS_WORKER_PULL_PULL_MERGER_FIXTURE_H_
