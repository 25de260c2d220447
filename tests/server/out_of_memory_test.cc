// Memory that runs out at any one allocation while a push is handled: the worker sends it again, and the round goes on as
// if nothing had been.
#include <cstdlib>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "server/change_codecs.h"
#include "server/partition.h"
#include "tests/server/server_test_util.h"
#include "tests/server/shard_state_fixture.h"

namespace {

// Of this thread: how many allocations succeed before one fails; negative: all do.
thread_local int allocations_left = -1;
thread_local bool one_failed = false;

}  // namespace

void* operator new(size_t bytes) {
  if (allocations_left >= 0 && allocations_left-- == 0) {
    one_failed = true;
    throw std::bad_alloc();
  }
  void* const memory = std::malloc(bytes == 0 ? 1 : bytes);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }

namespace slimps {
namespace {

// Runs `body` with its n-th allocation failing. False: it has no so many.
template <typename Body>
bool RunsOut(int n, Body body) {
  one_failed = false;
  allocations_left = n;
  try {
    body();
  } catch (const std::bad_alloc&) {
    // As where it is not handled, nobody is answered.
  }
  allocations_left = -1;
  return one_failed;
}

TEST(OutOfMemory, ARoundKeepsTheChoiceOfThePushThatIsSentAgain) {
  constexpr size_t kElements = 5000;
  FakeClock clock;
  ChangeCodecs codecs(&clock);
  PartitionSpec spec;
  spec.key = Key("w").id();
  spec.name = "s:w";
  spec.elements = kElements;
  spec.num_workers = 2;
  const ClaimedPayload gradient = Raw(RandomValues(kElements, 1));
  const std::shared_ptr<const ChangeCodec> codec = codecs.Find("1bit").value();
  for (int n = 0;; ++n) {
    auto partition = Partition::Create(spec, gradient, MakeOptimizer({})).value();
    ASSERT_TRUE(partition->Push(1, 1, kElements, gradient).ok());
    // Nobody's choice yet, and then that of a higher rank.
    const uint64_t round = n % 2 == 0 ? 2 : 1;
    const auto push = [&] { return partition->Push(round, 0, kElements, gradient, codec); };
    const bool ran_out = RunsOut(n / 2, [&] { (void)push(); });
    ASSERT_TRUE(push().ok());
    if (round == 2) {
      ASSERT_TRUE(partition->Push(2, 1, kElements, gradient).ok());
      ASSERT_TRUE(partition->Push(1, 0, kElements, gradient).ok());
      partition->ApplyNextRound();
    }
    ASSERT_TRUE(partition->HasCompleteRound());
    partition->ApplyNextRound();
    EXPECT_EQ(partition->Share(round, round - 1).base_version, round - 1) << "allocation " << n;
    if (ran_out || round == 2) continue;
    EXPECT_GT(n, 2);
    return;
  }
}

class OutOfMemoryState : public ShardStateTest {};

TEST_F(OutOfMemoryState, ACompleteRoundIsAppliedOnceItsLastPushIsSentAgain) {
  for (int n = 0;; ++n) {
    const std::string name = "w" + std::to_string(n);
    Init(name, {1, 2});
    Push(1, name, 1, {1, 1});
    (void)state_.TakeReplies();
    ShardItems items{.origin = From(0)};
    items.pushes.push_back(MakePush(name, 1, {1, 1}));
    const bool ran_out = RunsOut(n, [&] { state_.HandleItems(std::move(items)); });
    if (ran_out) Push(0, name, 1, {1, 1});
    ApplyAll();
    ASSERT_EQ(state_.Find({.key = Key(name).id(), .index = 0})->version(), 1u)
        << "allocation " << n;
    (void)state_.TakeReplies();
    if (ran_out) continue;
    EXPECT_GT(n, 3);
    return;
  }
}

}  // namespace
}  // namespace slimps
