// SPDX-License-Identifier: Apache-2.0
// Helpers that the server's tests share: payloads, items, and a transport that records.
#ifndef SLIMPS_TESTS_SERVER_ROUND_SERVER_TEST_UTIL_H_
#define SLIMPS_TESTS_SERVER_ROUND_SERVER_TEST_UTIL_H_

#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "compress/format/levels.h"
#include "compress/kernels/kernels.h"
#include "proto/base/buffer.h"
#include "proto/base/hash.h"
#include "proto/base/key.h"
#include "proto/base/mutex.h"
#include "proto/frame.h"
#include "proto/net/transport.h"
#include "proto/slimps.pb.h"
#include "server/round/optimizer.h"
#include "server/round/partition.h"

namespace slimps {

// Steps one block. State that the rule does not need may be empty.
// REQUIRES: all other spans have one length.
inline void ApplyBlock(const Optimizer& optimizer, const UpdateStep& step,
                       std::span<const float> before, std::span<const float> sum,
                       std::span<float> after, std::span<float> state0, std::span<float> state1) {
  optimizer.RuleOf(BestKernels())
      .store(step, {.before = before.data(),
                    .sum = sum.data(),
                    .after = after.data(),
                    .state0 = state0.data(),
                    .state1 = state1.data(),
                    .n = sum.size()});
}

inline Payload RawPayload(const std::vector<float>& values) {
  return Payload::Copy(std::as_bytes(std::span<const float>(values)));
}

inline std::vector<float> Floats(const Payload& payload) {
  std::vector<float> values(payload.size() / sizeof(float));
  if (!values.empty()) std::memcpy(values.data(), payload.bytes().data(), payload.size());
  return values;
}

inline std::vector<float> RandomValues(size_t count, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  for (float& value : values) value = normal(random);
  return values;
}

// Returns a levels payload of one bit per element and no scales: the signs of `values` times
// `level`.
inline Payload SignPayload(const std::vector<float>& values, float level) {
  LevelsLayout layout;
  layout.elements = values.size();
  layout.value = level;
  AlignedBuffer buffer(layout.PayloadBytes());
  std::memset(buffer.bytes().data(), 0, buffer.size());
  BuildLevelsHeader(layout, buffer.bytes());
  for (size_t i = 0; i < values.size(); ++i) {
    if (!(values[i] >= 0)) continue;
    const size_t at = layout.PlanesOffset(i / kBlockElements) + i % kBlockElements / 8;
    buffer.bytes()[at] |= std::byte{1} << (i % 8);
  }
  const size_t bytes = buffer.size();
  return Payload::Adopt(std::move(buffer), bytes);
}

inline ClaimedPayload Raw(const std::vector<float>& values) {
  Payload payload = RawPayload(values);
  const uint64_t hash = HashBytes(payload.bytes());
  return {.format = PayloadFormat::kRawF32, .payload = std::move(payload), .checksum = hash};
}

inline ClaimedPayload Signs(const std::vector<float>& values, float level) {
  Payload payload = SignPayload(values, level);
  const uint64_t hash = HashBytes(payload.bytes());
  return {.format = PayloadFormat::kLevels, .payload = std::move(payload), .checksum = hash};
}

inline wire::OptimizerSpec SgdSpec(double learning_rate, double momentum = 0) {
  wire::OptimizerSpec spec;
  spec.set_kind(wire::OptimizerSpec::SGD);
  spec.set_learning_rate(learning_rate);
  spec.set_momentum(momentum);
  return spec;
}

inline std::shared_ptr<const Optimizer> MakeOptimizer(const wire::OptimizerSpec& spec) {
  return Optimizer::Create(spec).value();
}

// The next functions fill in items of one key "s:w" (or another name), as a worker sends them. The
// caller chooses the tickets.
inline wire::ItemId MakeId(const std::string& name, uint32_t partition, uint64_t ticket) {
  wire::ItemId id;
  id.set_key(Key(name).id());
  id.set_partition(partition);
  id.set_ticket(ticket);
  return id;
}

// One partition's initial values. The whole tensor has `total` elements; by default, those of
// `values`.
struct InitFields {
  std::string name = "w";
  uint32_t partition = 0;
  uint32_t partitions = 1;
  uint64_t offset = 0;
  std::vector<float> values;
  std::optional<int64_t> total;
  uint64_t ticket = 1;
};

struct PushFields {
  std::string name = "w";
  uint32_t partition = 0;
  uint64_t round = 1;
  std::vector<float> values;
  uint64_t ticket = 1;
};

struct PullFields {
  std::string name = "w";
  uint32_t partition = 0;
  uint64_t min_version = 0;
  size_t elements = 1;
  uint64_t timeout_ms = 0;
  uint64_t ticket = 1;
};

inline void AddInit(Message* message, const InitFields& fields) {
  wire::InitItem* item = message->header.mutable_init()->add_items();
  *item->mutable_id() = MakeId(fields.name, fields.partition, fields.ticket);
  item->mutable_info()->set_key(Key(fields.name).id());
  item->mutable_info()->set_name(Key(fields.name).typed_name());
  item->mutable_info()->add_shape(
      fields.total.value_or(static_cast<int64_t>(fields.values.size())));
  item->set_offset(fields.offset);
  item->set_elements(fields.values.size());
  item->set_partitions(fields.partitions);
  item->set_format(wire::RAW_F32);
  AttachPayload(item, RawPayload(fields.values), PayloadHashing::kXxh3, message);
}

inline void FillPush(Message* message, wire::PushItem* item, const PushFields& fields) {
  *item->mutable_id() = MakeId(fields.name, fields.partition, fields.ticket);
  item->set_round(fields.round);
  item->set_elements(fields.values.size());
  item->set_format(wire::RAW_F32);
  AttachPayload(item, RawPayload(fields.values), PayloadHashing::kXxh3, message);
}

inline void AddPush(Message* message, const PushFields& fields) {
  FillPush(message, message->header.mutable_push()->add_items(), fields);
}

inline void FillPull(wire::PullItem* item, const PullFields& fields) {
  *item->mutable_id() = MakeId(fields.name, fields.partition, fields.ticket);
  item->set_min_version(fields.min_version);
  item->set_elements(fields.elements);
  item->set_timeout_ms(fields.timeout_ms);
}

inline void AddPull(Message* message, const PullFields& fields) {
  FillPull(message->header.mutable_pull()->add_items(), fields);
}

// Records what is sent. Thread-safe.
class RecordingTransport final : public Transport {
 public:
  struct Sent {
    PeerId to;
    Message message;
  };

  absl::StatusOr<std::string> Bind(std::string_view address) override {
    return std::string(address);
  }
  absl::Status Start(MessageSink*) override { return absl::OkStatus(); }
  absl::StatusOr<PeerId> Connect(std::string_view) override { return PeerId{1}; }
  absl::Status Send(PeerId to, Message message, SendOptions) override {
    MutexLock lock(&mutex_);
    sent_.push_back({to, std::move(message)});
    changed_.NotifyAll();
    return absl::OkStatus();
  }
  void Stop() override {}

  // Returns the next message sent, or an empty one if none is sent within `timeout`.
  Sent Next(absl::Duration timeout = absl::Seconds(10)) {
    MutexLock lock(&mutex_);
    changed_.Await(&mutex_, timeout, [this] { return HasUnread(); });
    if (!HasUnread()) return {};
    return sent_[read_++];
  }

  // Returns true if all sent messages have been read.
  bool Drained() {
    MutexLock lock(&mutex_);
    return !HasUnread();
  }

 private:
  bool HasUnread() const { return read_ < sent_.size(); }

  Mutex mutex_;
  CondVar changed_;
  std::vector<Sent> sent_;
  size_t read_ = 0;
};

}  // namespace slimps

#endif  // SLIMPS_TESTS_SERVER_ROUND_SERVER_TEST_UTIL_H_
