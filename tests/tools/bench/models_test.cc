// SPDX-License-Identifier: Apache-2.0
#include "tools/bench/models/models.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace slimps {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

ModelShape Model(const std::string& name) {
  absl::StatusOr<ModelShape> model = FindModel(name);
  EXPECT_TRUE(model.ok()) << model.status();
  return model.ok() ? *std::move(model) : ModelShape();
}

double Work(const ModelShape& model) {
  double sum = 0;
  for (const ModelTensor& tensor : model.tensors) sum += tensor.multiply_adds;
  return sum;
}

const ModelTensor& Tensor(const ModelShape& model, const std::string& name) {
  const auto found = std::find_if(model.tensors.begin(), model.tensors.end(),
                                  [&](const ModelTensor& t) { return t.name == name; });
  EXPECT_NE(found, model.tensors.end()) << name;
  return found == model.tensors.end() ? model.tensors.front() : *found;
}

// The counts that the frameworks publish with a model.
struct Published {
  const char* name;
  size_t elements;
  size_t tensors;
  double giga_multiply_adds;  // of one forward pass
  double communication_to_compute;
};

class ModelsTest : public ::testing::TestWithParam<Published> {};

TEST_P(ModelsTest, HasThePublishedSize) {
  const ModelShape model = Model(GetParam().name);
  EXPECT_EQ(model.elements(), GetParam().elements);
  EXPECT_EQ(model.tensors.size(), GetParam().tensors);
}

TEST_P(ModelsTest, HasThePublishedWork) {
  EXPECT_NEAR(Work(Model(GetParam().name)) / 1e9, GetParam().giga_multiply_adds,
              0.02 * GetParam().giga_multiply_adds);
}

TEST_P(ModelsTest, HasTheRatioOfSlimGcsTable2) {
  EXPECT_DOUBLE_EQ(Model(GetParam().name).communication_to_compute,
                   GetParam().communication_to_compute);
}

TEST_P(ModelsTest, SaysWhereItIsPublishedAndNamesEveryTensorOnce) {
  const ModelShape model = Model(GetParam().name);
  EXPECT_EQ(model.name, GetParam().name);
  EXPECT_FALSE(model.source.empty());
  std::set<std::string> names;
  for (const ModelTensor& tensor : model.tensors) {
    EXPECT_TRUE(names.insert(tensor.name).second) << tensor.name;
    EXPECT_GT(tensor.elements(), 0u) << tensor.name;
    EXPECT_GE(tensor.multiply_adds, 0) << tensor.name;
  }
}

INSTANTIATE_TEST_SUITE_P(All, ModelsTest,
                         ::testing::Values(Published{"alexnet", 61100840, 16, 0.714, 16.4},
                                           Published{"vgg16", 138357544, 32, 15.47, 5.85},
                                           Published{"vgg19", 143667240, 38, 19.63, 4.0},
                                           Published{"resnet50", 25557032, 161, 4.09, 5.07},
                                           Published{"resnet152", 60192808, 467, 11.51, 4.0},
                                           Published{"inception_bn", 11295240, 278, 2.04, 4.04},
                                           Published{"lstm_ptb", 19780400, 11, 0.464, 4.0},
                                           Published{"bert_base", 109482240, 199, 11.17, 4.0},
                                           Published{"gpt2", 124439808, 148, 145.8, 4.0}),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(Models, AreThoseOfTheList) {
  EXPECT_THAT(ModelNames(), ElementsAre("alexnet", "vgg16", "vgg19", "resnet50", "resnet152",
                                        "inception_bn", "lstm_ptb", "bert_base", "gpt2"));
}

TEST(Models, AnotherNameIsRefusedWithThoseThatThereAre) {
  const auto model = FindModel("resnet5");
  EXPECT_EQ(model.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(model.status().message(), HasSubstr("'resnet5'"));
  EXPECT_THAT(model.status().message(), HasSubstr("alexnet, vgg16, vgg19, resnet50, "));
}

TEST(Models, TensorsAreInForwardOrder) {
  const ModelShape resnet = Model("resnet50");
  EXPECT_EQ(resnet.tensors.front().name, "conv1.weight");
  EXPECT_EQ(resnet.tensors.back().name, "fc.bias");
  EXPECT_EQ(Model("bert_base").tensors.front().name, "embeddings.word_embeddings.weight");
}

TEST(Models, StridesAreWhereTorchvisionHasThem) {
  const ModelShape resnet = Model("resnet50");
  // The block's first convolution still works on the larger image; the second one halves it.
  EXPECT_EQ(Tensor(resnet, "layer2.0.conv1.weight").multiply_adds, 256.0 * 128 * 56 * 56);
  EXPECT_EQ(Tensor(resnet, "layer2.0.conv2.weight").multiply_adds, 9.0 * 128 * 128 * 28 * 28);
  EXPECT_EQ(Tensor(resnet, "layer2.0.downsample.0.weight").multiply_adds, 256.0 * 512 * 28 * 28);
}

TEST(Models, WorkIsOnWeightsAndNotOnBiases) {
  for (const std::string& name : ModelNames()) {
    const ModelShape model = Model(name);
    for (const ModelTensor& tensor : model.tensors) {
      const bool weight = tensor.shape.size() > 1 && tensor.layer != LayerKind::kEmbedding;
      const bool tied_head = tensor.name == "ln_f.bias";
      EXPECT_EQ(tensor.multiply_adds > 0, weight || tied_head) << name << " " << tensor.name;
    }
  }
}

TEST(Models, TheTiedHeadsWorkIsWhereTheBackwardPassBegins) {
  EXPECT_EQ(Model("gpt2").tensors.back().multiply_adds, 50257.0 * 768 * 1024);
}

TEST(Models, LayersHaveTheirKinds) {
  std::map<LayerKind, size_t> kinds;
  for (const ModelTensor& tensor : Model("resnet50").tensors) ++kinds[tensor.layer];
  EXPECT_EQ(kinds[LayerKind::kConvolution], 53u);
  EXPECT_EQ(kinds[LayerKind::kNormalisation], 106u);
  EXPECT_EQ(kinds[LayerKind::kDense], 2u);
  EXPECT_EQ(Tensor(Model("lstm_ptb"), "rnn.weight_hh_l1").layer, LayerKind::kRecurrent);
  EXPECT_EQ(Tensor(Model("gpt2"), "wte.weight").layer, LayerKind::kEmbedding);
}

}  // namespace
}  // namespace slimps
