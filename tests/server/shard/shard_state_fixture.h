// SPDX-License-Identifier: Apache-2.0
// A ShardState of a job of two workers. The test hands it all items.
#ifndef SLIMPS_TESTS_SERVER_SHARD_SHARD_STATE_FIXTURE_H_
#define SLIMPS_TESTS_SERVER_SHARD_SHARD_STATE_FIXTURE_H_

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/base/clock.h"
#include "proto/status_proto.h"
#include "server/shard/shard_state.h"
#include "tests/server/round/server_test_util.h"

namespace slimps {

// One shard of a job of two workers. The test calls it by hand, under a fake clock.
class ShardStateTest : public ::testing::Test {
 protected:
  static Origin From(uint32_t worker, uint64_t request_id = 1) {
    return {.peer = PeerId{worker + 100}, .worker = worker, .request_id = request_id};
  }

  static InitWork MakeInit(const std::string& name, const std::vector<float>& values,
                           wire::StoreMode mode = wire::DIST_SYNC, uint32_t staleness = 0) {
    InitWork init;
    init.id = MakeId(name, 0, 1);
    init.spec.key = Key(name).id();
    init.spec.name = Key(name).typed_name();
    init.spec.elements = values.size();
    init.spec.num_workers = 2;
    init.spec.mode = mode;
    init.spec.staleness = staleness;
    init.value = Raw(values);
    return init;
  }

  void Init(const std::string& name, const std::vector<float>& values,
            wire::StoreMode mode = wire::DIST_SYNC, uint32_t staleness = 0) {
    ShardItems items{.origin = From(0)};
    items.inits.push_back(MakeInit(name, values, mode, staleness));
    state_.HandleItems(std::move(items));
    ASSERT_THAT(InitCodes(), ::testing::ElementsAre(absl::StatusCode::kOk));
  }

  static PushWork MakePush(const std::string& name, uint64_t round,
                           const std::vector<float>& values) {
    Message message;
    PushWork push;
    FillPush(&message, &push.item,
             {.name = name, .round = round, .values = values, .ticket = round});
    push.payload = message.payloads[0];
    return push;
  }

  void Push(uint32_t worker, const std::string& name, uint64_t round,
            const std::vector<float>& values) {
    ShardItems items{.origin = From(worker)};
    items.pushes.push_back(MakePush(name, round, values));
    state_.HandleItems(std::move(items));
  }

  struct Wanted {
    uint32_t worker = 0;
    std::string name = "w";
    uint64_t min_version = 0;
    size_t elements = 1;
    absl::Duration wait = absl::Seconds(5);
    uint64_t ticket = 1;
    uint64_t request_id = 1;
  };
  void Pull(const Wanted& wanted) {
    ShardItems items{.origin = From(wanted.worker, wanted.request_id)};
    PullWork pull;
    FillPull(&pull.item, {.name = wanted.name,
                          .min_version = wanted.min_version,
                          .elements = wanted.elements,
                          .ticket = wanted.ticket});
    pull.deadline = clock_.Now() + wanted.wait;
    items.pulls.push_back(std::move(pull));
    state_.HandleItems(std::move(items));
  }

  void ApplyAll() {
    while (state_.HasCompleteRound()) state_.ApplyOne();
  }

  // The next three functions take the pending replies, which must all be InitReplies, PushReplies
  // or PullReplies, and return their items.
  std::vector<absl::StatusCode> InitCodes() {
    std::vector<absl::StatusCode> codes;
    for (const Reply& reply : state_.TakeReplies()) {
      for (const auto& item : reply.message.header.init_reply().items()) {
        codes.push_back(FromStatusProto(item.status()).code());
      }
    }
    return codes;
  }
  std::vector<absl::StatusCode> PushCodes() {
    std::vector<absl::StatusCode> codes;
    for (const Reply& reply : state_.TakeReplies()) {
      for (const auto& item : reply.message.header.push_reply().items()) {
        codes.push_back(FromStatusProto(item.status()).code());
      }
    }
    return codes;
  }

  struct Pulled {
    PeerId to;
    absl::Status status;
    uint64_t version;
    std::vector<float> values;
  };
  std::vector<Pulled> Pulls() {
    std::vector<Pulled> pulled;
    for (const Reply& reply : state_.TakeReplies()) {
      size_t next = 0;
      for (const auto& item : reply.message.header.pull_reply().items()) {
        pulled.push_back({reply.to, FromStatusProto(item.status()), item.version(),
                          item.payload_bytes() > 0 ? Floats(reply.message.payloads[next++])
                                                   : std::vector<float>()});
      }
    }
    return pulled;
  }

  FakeClock clock_;
  ShardState state_{MakeOptimizer({}), &clock_};
};

}  // namespace slimps

#endif  // SLIMPS_TESTS_SERVER_SHARD_SHARD_STATE_FIXTURE_H_
