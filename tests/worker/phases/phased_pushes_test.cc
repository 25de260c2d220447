// SPDX-License-Identifier: Apache-2.0
// How pushes go on from the thread of phases to the pipeline. The test plays the server.
#include "worker/phases/phased_pushes.h"

#include <memory>
#include <utility>

#include "compress/codec/codec.h"
#include "compress/codec/phases.h"
#include "gtest/gtest.h"
#include "tests/proto/base/holding_clock.h"
#include "tests/worker/push/push_pipeline_fixture.h"

namespace slimps {
namespace {

using PhasedPushesTest = PushPipelineTest;

// The next round may use the residual on another thread, so it waits until this one is done.
TEST_F(PhasedPushesTest, ARoundWithoutPhasesEndsWhenItIsAcknowledged) {
  Make();
  PhasedPushes phases(&courier_, pipeline_.get(), {.on_error = [](absl::Status) {}});
  const TensorPlan* tensor = Tensor("w", kLargeElements);
  phases.AddTensor(tensor, {});
  ASSERT_TRUE(phases.Submit(Job(tensor, /*priority=*/0, /*round=*/1)).ok());
  ASSERT_TRUE(phases.Submit(Job(tensor, /*priority=*/0, /*round=*/2)).ok());
  ASSERT_TRUE(transport_.AwaitSent(1));
  EXPECT_FALSE(phases.Drain(absl::Milliseconds(50)).ok());
  EXPECT_EQ(transport_.sent(), 1u);
  Answer(0);
  ASSERT_TRUE(transport_.AwaitSent(2));
  EXPECT_EQ(transport_.header(1).push().items(0).id().key(), tensor->key.id());
  Answer(1);
  EXPECT_TRUE(phases.Drain(kLong).ok());
  courier_.FailAll(absl::CancelledError("the test is over"));
}

TEST_F(PhasedPushesTest, TwoTensorsAreAtAStepAtTheSameTime) {
  Make({.compression = "thc", .fixed_threshold_bytes = 0});
  HoldingClock clock("phases");
  PhasedPushes phases(&courier_, pipeline_.get(),
                      {.threads = 2, .on_error = [](absl::Status) {}, .clock = &clock});
  const std::unique_ptr<Codec> codec = MakeCodec("thc").value();
  clock.Arm(2);
  for (const char* name : {"v", "w"}) {
    const TensorPlan* tensor = Tensor(name, kLargeElements);
    tensors_.back()->info.add_shape(kLargeElements);
    const AuxiliaryShape shape = codec->phases()->AuxiliaryKeys(tensor->shape())[0];
    TensorPlan key{.key = Key::Auxiliary(shape.name, tensor->key), .info = {}, .partitions = {}};
    key.elements = shape.elements();
    key.partitions = {{.server = 0, .offset = 0, .elements = key.elements}};
    phases.AddTensor(tensor, {{.plan = std::move(key)}});
    ASSERT_TRUE(phases.Submit(Job(tensor)).ok());
  }
  EXPECT_TRUE(clock.AwaitAll()) << "one waits for the other";
  clock.Release();
  EXPECT_TRUE(transport_.AwaitSent(1));
  courier_.FailAll(absl::CancelledError("the test is over"));
}

}  // namespace
}  // namespace slimps
