// SPDX-License-Identifier: Apache-2.0
#include "tools/bench/cluster/layer_plan.h"

#include "gtest/gtest.h"

namespace slimps {
namespace {

ModelShape Small() {
  ModelShape model;
  model.tensors = {{"a.weight", {4}, LayerKind::kDense, 30},
                   {"a.bias", {1}, LayerKind::kDense, 0},
                   {"b.bn.weight", {2}, LayerKind::kNormalisation, 0},
                   {"c.weight", {4}, LayerKind::kDense, 10}};
  return model;
}

TEST(LayerPlan, TensorsOfOneNameAreOneLayer) {
  const std::vector<Layer> layers = PlanLayers(Small(), absl::Milliseconds(120));
  ASSERT_EQ(layers.size(), 3u);
  EXPECT_EQ(layers[0].first, 0u);
  EXPECT_EQ(layers[0].tensors, 2u);
  EXPECT_EQ(layers[1].first, 2u);
  EXPECT_EQ(layers[2].first, 3u);
  EXPECT_EQ(layers[2].tensors, 1u);
}

TEST(LayerPlan, TimeIsSharedByWorkAThirdOfItForward) {
  const std::vector<Layer> layers = PlanLayers(Small(), absl::Milliseconds(120));
  EXPECT_EQ(layers[0].forward, absl::Milliseconds(30));
  EXPECT_EQ(layers[0].backward, absl::Milliseconds(60));
  EXPECT_EQ(layers[1].forward, absl::ZeroDuration());
  EXPECT_EQ(layers[2].forward, absl::Milliseconds(10));
  EXPECT_EQ(layers[2].backward, absl::Milliseconds(20));
}

TEST(LayerPlan, NoWorkTakesNoTime) {
  ModelShape model = Small();
  for (ModelTensor& tensor : model.tensors) tensor.multiply_adds = 0;
  for (const Layer& layer : PlanLayers(model, absl::Milliseconds(120))) {
    EXPECT_EQ(layer.forward + layer.backward, absl::ZeroDuration());
  }
}

TEST(LayerPlan, EveryTensorOfARealModelIsInOneLayerAndAllTimeIsSpent) {
  for (const std::string& name : ModelNames()) {
    const ModelShape model = FindModel(name).value();
    const absl::Duration compute = absl::Milliseconds(200);
    absl::Duration forward, backward;
    size_t next = 0;
    for (const Layer& layer : PlanLayers(model, compute)) {
      EXPECT_EQ(layer.first, next) << name;
      next += layer.tensors;
      forward += layer.forward;
      backward += layer.backward;
    }
    EXPECT_EQ(next, model.tensors.size()) << name;
    EXPECT_NEAR(absl::ToDoubleMilliseconds(forward), 200.0 / 3, 0.01) << name;
    EXPECT_NEAR(absl::ToDoubleMilliseconds(backward), 400.0 / 3, 0.01) << name;
  }
}

}  // namespace
}  // namespace slimps
