// Memory that runs out at any one allocation while a push is handled: the worker sends it again, and the round goes on as
// if nothing had been.
#include <cstdlib>
#include <memory>
#include <new>

#include "gtest/gtest.h"
#include "proto/base/clock.h"
#include "server/change_codecs.h"
#include "server/partition.h"
#include "tests/server/server_test_util.h"

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
    const auto push = [&] { return partition->Push(2, 0, kElements, gradient, codec); };
    const bool ran_out = RunsOut(n, [&] { (void)push(); });
    ASSERT_TRUE(push().ok());
    ASSERT_TRUE(partition->Push(2, 1, kElements, gradient).ok());
    ASSERT_TRUE(partition->Push(1, 0, kElements, gradient).ok());
    partition->ApplyNextRound();
    ASSERT_TRUE(partition->HasCompleteRound());
    partition->ApplyNextRound();
    EXPECT_EQ(partition->Share(2, 1).base_version, 1u) << "allocation " << n;
    if (ran_out) continue;
    EXPECT_GT(n, 0);
    return;
  }
}

}  // namespace
}  // namespace slimps
