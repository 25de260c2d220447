// SPDX-License-Identifier: Apache-2.0
// A PushPipeline over a network that stands still. The test sees what is sent and gives the
// answers.
#ifndef SLIMPS_TESTS_WORKER_PUSH_PUSH_PIPELINE_FIXTURE_H_
#define SLIMPS_TESTS_WORKER_PUSH_PUSH_PIPELINE_FIXTURE_H_

#include <algorithm>
#include <cmath>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "proto/base/mutex.h"
#include "proto/status_proto.h"
#include "tests/worker/courier/holding_transport.h"
#include "worker/push/push_pipeline.h"

namespace slimps {

inline constexpr absl::Duration kLong = absl::Seconds(30);  // only a failing test waits this long
inline constexpr size_t kLargeElements = Coalescer::kSmallItemBytes / sizeof(float) + 1;

class PushPipelineTest : public ::testing::Test {
 protected:
  void Make(const CompressionPlanOptions& plan = {}, size_t max_bytes_waiting = size_t{1} << 30,
            absl::Duration timeout = kLong, int threads = 1) {
    plan_ = CompressionPlan::Create(plan).value();
    PushPipelineOptions options;
    options.encode_threads = threads;
    options.change_codec = [this](const TensorPlan& tensor, uint64_t round) {
      if (while_encoding) while_encoding(tensor, round);
      return std::string();
    };
    options.timeout = timeout;
    options.max_bytes_waiting = max_bytes_waiting;
    options.on_report = [](const wire::ThresholdReport&) {};
    options.on_error = [this](absl::Status why) {
      MutexLock lock(&mutex_);
      errors_.push_back(std::move(why));
      changed_.NotifyAll();
    };
    pipeline_ = std::make_unique<PushPipeline>(&courier_, plan_.get(), std::move(options));
  }
  // Ends as the store does it: answers may still come while the pipeline lives.
  void TearDown() override { courier_.FailAll(absl::CancelledError("the test is over")); }

  // Returns a tensor with partitions of `elements` each, on one server.
  const TensorPlan* Tensor(const std::string& name, size_t elements, size_t partitions = 1) {
    auto tensor =
        std::make_unique<TensorPlan>(TensorPlan{.key = Key(name), .info = {}, .partitions = {}});
    tensor->elements = elements * partitions;
    for (size_t i = 0; i < partitions; ++i) {
      tensor->partitions.push_back({.server = 0, .offset = i * elements, .elements = elements});
    }
    return tensors_.emplace_back(std::move(tensor)).get();
  }
  PushJob Job(const TensorPlan* tensor, int priority = 0, uint64_t round = 1, float value = 1) {
    GradientBuffers grad_bufs;
    for (const PartitionPlan& partition : tensor->partitions) {
      grad_bufs.push_back(device_->AllocateHost(partition.elements).value());
      std::ranges::fill(grad_bufs.back()->floats(), value);
    }
    return {.tensor = tensor,
            .round = round,
            .priority = priority,
            .grad_bufs = std::move(grad_bufs),
            .gradient_bound = std::abs(value)};
  }

  // Called on the thread that makes an item, before it encodes. Set it while none does.
  std::function<void(const TensorPlan&, uint64_t round)> while_encoding;

  // Holds up a push thread in its first message, until the caller keeps the returned promise.
  std::promise<void> HoldUp() {
    std::promise<void> go;
    std::promise<void> stands;
    transport_.before_send = [go = go.get_future().share(), &stands, first = true]() mutable {
      if (!std::exchange(first, false)) return;
      stands.set_value();
      go.wait();
    };
    EXPECT_TRUE(pipeline_->Submit(Job(Tensor("holds up", kLargeElements))).ok());
    stands.get_future().wait();
    return go;
  }
  void Answer(size_t index, const absl::Status& status = absl::OkStatus()) {
    transport_.HandOver(index);
    Message reply;
    const wire::Header sent = transport_.header(index);
    for (const wire::PushItem& push : sent.push().items()) {
      wire::ItemStatus* item = reply.header.mutable_push_reply()->add_items();
      *item->mutable_id() = push.id();
      *item->mutable_status() = ToStatusProto(status);
    }
    EXPECT_TRUE(courier_.HandleMessage(PeerId{7}, reply));
  }
  absl::Status AwaitError() {
    MutexLock lock(&mutex_);
    changed_.Await(&mutex_, kLong, [this] { return !errors_.empty(); });
    return errors_.empty() ? absl::OkStatus() : errors_[0];
  }
  std::vector<KeyId> KeysOf(size_t message) {
    std::vector<KeyId> keys;
    const wire::Header sent = transport_.header(message);
    for (const auto& item : sent.push().items()) keys.push_back(item.id().key());
    return keys;
  }

  const std::unique_ptr<Device> device_ = MakeHostDevice();
  std::vector<std::unique_ptr<TensorPlan>> tensors_;
  HoldingTransport transport_;
  Membership membership_{&transport_, {.role = wire::WORKER}};
  Courier courier_{&transport_, &membership_, {PeerId{7}}, {.timeout = kLong}};
  Mutex mutex_;
  CondVar changed_;
  std::vector<absl::Status> errors_;
  std::unique_ptr<CompressionPlan> plan_;
  std::unique_ptr<PushPipeline> pipeline_;
};

}  // namespace slimps

#endif  // SLIMPS_TESTS_WORKER_PUSH_PUSH_PIPELINE_FIXTURE_H_
