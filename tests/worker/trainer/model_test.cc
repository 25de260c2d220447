// SPDX-License-Identifier: Apache-2.0
#include "worker/trainer/model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "tests/worker/trainer/synthetic_data.h"

namespace slimps {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

const std::vector<int64_t> kMnistShape = {1, 28, 28};
const std::vector<int64_t> kDigitsShape = {1, 8, 8};
const std::vector<int64_t> kCifarShape = {3, 32, 32};

std::unique_ptr<Model> Make(const std::string& name, const Dataset& data, uint64_t seed = 1) {
  auto model = MakeModel(name, data, seed);
  EXPECT_TRUE(model.ok()) << model.status();
  return *std::move(model);
}

Minibatch FirstSamples(const Dataset& data, size_t count) {
  std::vector<uint32_t> samples(count);
  std::iota(samples.begin(), samples.end(), 0u);
  return GatherBatch(data, data.train, samples);
}

std::map<std::string, std::vector<int64_t>> Shapes(const Model& model) {
  std::map<std::string, std::vector<int64_t>> shapes;
  for (const Parameter& parameter : model.parameters()) shapes[parameter.name] = parameter.shape;
  return shapes;
}

size_t Elements(const Model& model) {
  size_t elements = 0;
  for (const Parameter& parameter : model.parameters()) elements += parameter.values.size();
  return elements;
}

std::vector<std::vector<float>> Weights(const Model& model) {
  std::vector<std::vector<float>> weights;
  for (const Parameter& parameter : model.parameters()) {
    weights.emplace_back(parameter.values.begin(), parameter.values.end());
  }
  return weights;
}

LossSums StepSgd(Model* model, const Minibatch& batch, float lr) {
  std::vector<std::span<const float>> gradients(model->parameters().size());
  const auto sums = model->ForwardBackward(
      batch, [&](size_t index, std::span<const float> gradient) { gradients[index] = gradient; });
  EXPECT_TRUE(sums.ok()) << sums.status();
  for (size_t i = 0; i < gradients.size(); ++i) {
    const std::span<float> values = model->parameters()[i].values;
    for (size_t k = 0; k < gradients[i].size(); ++k) values[k] -= lr * gradients[i][k];
  }
  return *sums;
}

bool ReadsText(const std::string& model) { return model == "lstm" || model == "char_transformer"; }

TEST(Models, LenetHasCaffesShapes) {
  const auto model = Make("lenet", SyntheticImages(1, kMnistShape));
  const auto shapes = Shapes(*model);
  EXPECT_EQ(shapes.size(), 8u);
  EXPECT_THAT(shapes.at("conv1.weight"), ElementsAre(20, 1, 5, 5));
  EXPECT_THAT(shapes.at("conv2.weight"), ElementsAre(50, 20, 5, 5));
  EXPECT_THAT(shapes.at("hidden.weight"), ElementsAre(500, 800));
  EXPECT_THAT(shapes.at("output.weight"), ElementsAre(10, 500));
  EXPECT_THAT(shapes.at("output.bias"), ElementsAre(10));
}

TEST(Models, MlpOnDigitsHasTensorsFrom40BytesTo1Megabyte) {
  const auto model = Make("mlp", SyntheticImages(1, kDigitsShape));
  std::vector<size_t> bytes;
  for (const Parameter& parameter : model->parameters()) {
    bytes.push_back(parameter.values.size_bytes());
  }
  EXPECT_THAT(bytes, ElementsAre(131072, 2048, 1048576, 2048, 20480, 40));
}

TEST(Models, Resnet20HasThePapersSize) {
  const auto model = Make("resnet20", SyntheticImages(1, kCifarShape));
  EXPECT_EQ(Elements(*model), 269722u);  // 0.27 M, He et al. 2016, table 6
}

TEST(Models, CharTransformerHasFourLayersOfWidth128) {
  const auto model = Make("char_transformer", SyntheticText(1));
  const auto shapes = Shapes(*model);
  // Two embeddings, 4 layers of 12 tensors, a norm and the output.
  EXPECT_EQ(shapes.size(), 2u + 4 * 12 + 2 + 2);
  EXPECT_THAT(shapes.at("embedding.weight"), ElementsAre(7, 128));
  EXPECT_THAT(shapes.at("positions.weight"), ElementsAre(64, 128));
  EXPECT_THAT(shapes.at("block1.attention.query_key_value.weight"), ElementsAre(384, 128));
  EXPECT_THAT(shapes.at("block4.hidden.weight"), ElementsAre(512, 128));
  EXPECT_THAT(shapes.at("output.weight"), ElementsAre(7, 128));
  // 12 width^2 + 13 width a layer.
  EXPECT_EQ(Elements(*model), (7u + 64) * 128 + 4 * (12u * 128 * 128 + 13 * 128) + 256 + 7 * 129);
}

// Returns by how much the logit of label 1 is above that of label 0 at one place of the window: the
// other labels' losses cancel.
double LogitOfOneOverZero(Model* model, Minibatch batch, size_t place) {
  batch.labels[place] = 0;
  const double zero = model->Evaluate(batch)->loss;
  batch.labels[place] = 1;
  return zero - model->Evaluate(batch)->loss;
}

TEST(Models, CharTransformerSeesEarlierCharactersOnly) {
  const Dataset data = SyntheticText(1);
  const auto model = Make("char_transformer", data);
  const Minibatch batch = FirstSamples(data, 1);
  const double before = LogitOfOneOverZero(model.get(), batch, 20);
  for (const size_t place : {0u, 10u, 20u, 21u, 63u}) {
    Minibatch changed = batch;
    changed.values[place] = batch.values[place] == 3 ? 4 : 3;
    const double moved = std::abs(LogitOfOneOverZero(model.get(), changed, 20) - before);
    if (place <= 20) {
      EXPECT_GT(moved, 5e-4) << place;
    } else {
      EXPECT_LT(moved, 5e-5) << place;  // the rounding of sums
    }
  }
}

TEST(Models, LayersSayWhatKindTheyAre) {
  const auto lenet = Make("lenet", SyntheticImages(1, kMnistShape));
  EXPECT_EQ(lenet->parameters()[0].layer, wire::CONVOLUTION);
  EXPECT_EQ(lenet->parameters()[7].layer, wire::DENSE);
  const auto lstm = Make("lstm", SyntheticText(1));
  EXPECT_EQ(lstm->parameters()[0].layer, wire::EMBEDDING);
  EXPECT_EQ(lstm->parameters()[1].layer, wire::RECURRENT);
  const auto resnet = Make("resnet20", SyntheticImages(1, kCifarShape));
  EXPECT_EQ(resnet->parameters()[1].layer, wire::NORMALISATION);
  const auto transformer = Make("char_transformer", SyntheticText(1));
  EXPECT_EQ(transformer->parameters()[1].layer, wire::EMBEDDING);
  EXPECT_EQ(transformer->parameters()[2].layer, wire::NORMALISATION);
  EXPECT_EQ(transformer->parameters()[4].layer, wire::DENSE);
}

TEST(Models, ParametersComeInTheOrderOfForward) {
  const auto model = Make("resnet20", SyntheticImages(1, kCifarShape));
  EXPECT_EQ(model->parameters().front().name, "conv.weight");
  EXPECT_EQ(model->parameters().back().name, "output.bias");
}

TEST(Models, TheSeedFixesTheFirstWeights) {
  const Dataset data = SyntheticImages(1, kCifarShape);
  for (const char* name : {"logistic", "mlp", "lenet", "resnet20"}) {
    EXPECT_EQ(Weights(*Make(name, data, 5)), Weights(*Make(name, data, 5))) << name;
    EXPECT_NE(Weights(*Make(name, data, 5)), Weights(*Make(name, data, 6))) << name;
  }
  const Dataset text = SyntheticText(1);
  for (const char* name : {"lstm", "char_transformer"}) {
    EXPECT_EQ(Weights(*Make(name, text, 5)), Weights(*Make(name, text, 5))) << name;
    EXPECT_NE(Weights(*Make(name, text, 5)), Weights(*Make(name, text, 6))) << name;
  }
}

TEST(Models, GradientsLeaveLastLayerFirstEachOnce) {
  const Dataset data = SyntheticImages(4, kDigitsShape);
  const auto model = Make("mlp", data);
  for (int step = 0; step < 2; ++step) {
    std::vector<size_t> order;
    ASSERT_TRUE(model
                    ->ForwardBackward(FirstSamples(data, 4),
                                      [&](size_t index, std::span<const float> gradient) {
                                        EXPECT_EQ(gradient.size(),
                                                  model->parameters()[index].values.size());
                                        order.push_back(index);
                                      })
                    .ok());
    ASSERT_EQ(order.size(), 6u);
    // Within a layer, weight and bias may come in either order.
    for (size_t i = 0; i < 6; ++i) EXPECT_EQ(order[i] / 2, (5 - i) / 2) << i;
  }
}

TEST(Models, GradientIsTheSlopeOfTheMeanLoss) {
  const Dataset data = SyntheticImages(6, kDigitsShape);
  const auto model = Make("logistic", data);
  const Minibatch batch = FirstSamples(data, 6);
  std::vector<float> gradient;
  const auto keep = [&](size_t index, std::span<const float> g) {
    if (index == 0) gradient.assign(g.begin(), g.end());
  };
  ASSERT_TRUE(model->ForwardBackward(batch, keep).ok());
  for (const size_t at : {0u, 100u, 639u}) {
    float& weight = model->parameters()[0].values[at];
    const float before = weight;
    constexpr float kStep = 0.01f;
    weight = before + kStep;
    const double above = model->Evaluate(batch)->MeanLoss();
    weight = before - kStep;
    const double below = model->Evaluate(batch)->MeanLoss();
    weight = before;
    EXPECT_NEAR(gradient[at], (above - below) / (2 * kStep), 1e-3) << at;
  }
}

TEST(Models, GradientsAreTheSameWhenComputedAgain) {
  const Dataset data = SyntheticImages(4, kMnistShape);
  const auto model = Make("lenet", data);
  std::vector<std::vector<std::vector<float>>> runs(2, std::vector<std::vector<float>>(8));
  for (auto& run : runs) {
    ASSERT_TRUE(model
                    ->ForwardBackward(FirstSamples(data, 4),
                                      [&](size_t index, std::span<const float> g) {
                                        run[index].assign(g.begin(), g.end());
                                      })
                    .ok());
  }
  EXPECT_EQ(runs[0], runs[1]);
}

class EveryModel : public ::testing::TestWithParam<const char*> {};

TEST_P(EveryModel, LearnsASmallBatch) {
  const std::string name = GetParam();
  const Dataset data = ReadsText(name) ? SyntheticText(4) : SyntheticImages(8, kCifarShape);
  const auto model = Make(name, data);
  const Minibatch batch = FirstSamples(data, data.train.count);
  const double first = StepSgd(model.get(), batch, 0.05f).MeanLoss();
  double last = first;
  for (int step = 0; step < 8; ++step) last = StepSgd(model.get(), batch, 0.05f).MeanLoss();
  EXPECT_LT(last, 0.97 * first);
}

TEST_P(EveryModel, EvaluationCountsEveryLabelAndLeavesTheWeights) {
  const std::string name = GetParam();
  const Dataset data = ReadsText(name) ? SyntheticText(2) : SyntheticImages(2, kCifarShape);
  const auto model = Make(name, data);
  const auto before = Weights(*model);
  const auto sums = model->Evaluate(FirstSamples(data, 2));
  ASSERT_TRUE(sums.ok()) << sums.status();
  EXPECT_EQ(sums->labels, 2 * data.labels_per_sample);
  EXPECT_LE(sums->correct, sums->labels);
  EXPECT_GT(sums->MeanLoss(), 0);
  EXPECT_EQ(Weights(*model), before);
}

INSTANTIATE_TEST_SUITE_P(Models, EveryModel,
                         ::testing::Values("logistic", "mlp", "lenet", "resnet20", "lstm",
                                           "char_transformer"));

TEST(Models, BatchNormalisationEvaluatesByRunningAverages) {
  const Dataset data = SyntheticImages(4, kCifarShape);
  const auto model = Make("resnet20", data);
  const auto evaluate = [&] { return model->Evaluate(FirstSamples(data, 4))->loss; };
  const double before = evaluate();
  EXPECT_EQ(evaluate(), before);
  ASSERT_TRUE(model->ForwardBackward(FirstSamples(data, 4), [](size_t, auto) {}).ok());
  EXPECT_NE(evaluate(), before);  // the weights are the same, the averages moved
}

TEST(Models, DataThatDoesNotFitIsRefusedWithItsShape) {
  const auto lenet = MakeModel("lenet", SyntheticImages(1, kDigitsShape), 1);
  EXPECT_EQ(lenet.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(lenet.status().message(), HasSubstr("{1, 8, 8}"));
  EXPECT_FALSE(MakeModel("lstm", SyntheticImages(1, kDigitsShape), 1).ok());
  EXPECT_FALSE(MakeModel("char_transformer", SyntheticImages(1, kDigitsShape), 1).ok());
  EXPECT_FALSE(MakeModel("mlp", SyntheticText(1), 1).ok());
}

TEST(Models, UnknownNameListsTheKnownOnes) {
  const auto model = MakeModel("vgg", SyntheticImages(1, kDigitsShape), 1);
  EXPECT_EQ(model.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(model.status().message(), HasSubstr("resnet20"));
}

TEST(Models, ALabelOutOfRangeIsAStatusAndNotAnException) {
  const Dataset data = SyntheticImages(2, kDigitsShape);
  const auto model = Make("logistic", data);
  Minibatch batch = FirstSamples(data, 2);
  batch.labels[1] = 10;
  EXPECT_EQ(model->ForwardBackward(batch, [](size_t, auto) {}).status().code(),
            absl::StatusCode::kInternal);
  EXPECT_TRUE(model->ForwardBackward(FirstSamples(data, 2), [](size_t, auto) {}).ok());
}

}  // namespace
}  // namespace slimps
