// SPDX-License-Identifier: Apache-2.0
// Language models. One sample is one sequence.
#include <string>

#include "absl/strings/str_cat.h"
#include "tools/bench/models/model_builder.h"

namespace slimps {
namespace {

// Multiply-adds of all heads' scores and of their sums over values. Neither uses a weight.
constexpr double AttentionWork(int64_t positions, int64_t width) {
  return 2.0 * static_cast<double>(positions * positions * width);
}

}  // namespace

ModelShape LstmPtb() {
  ModelBuilder model(
      "lstm_ptb",
      "Zaremba et al., \"Recurrent Neural Network Regularization\", 2014, the medium "
      "one: 2 layers of 650 units, 10,000 words, 35 steps; two biases a layer as in "
      "torch and MXNet",
      4.0);
  constexpr int64_t kWords = 10000, kUnits = 650, kSteps = 35;
  constexpr auto kGateWork = static_cast<double>(4 * kUnits * kUnits * kSteps);
  model.Tensor("encoder.weight", {kWords, kUnits}, LayerKind::kEmbedding, 0);
  for (int layer = 0; layer < 2; ++layer) {
    const auto name = [layer](const char* tensor) { return absl::StrCat("rnn.", tensor, layer); };
    model.Tensor(name("weight_ih_l"), {4 * kUnits, kUnits}, LayerKind::kRecurrent, kGateWork);
    model.Tensor(name("weight_hh_l"), {4 * kUnits, kUnits}, LayerKind::kRecurrent, kGateWork);
    model.Tensor(name("bias_ih_l"), {4 * kUnits}, LayerKind::kRecurrent, 0);
    model.Tensor(name("bias_hh_l"), {4 * kUnits}, LayerKind::kRecurrent, 0);
  }
  model.Dense("decoder", {.in = kUnits, .out = kWords, .positions = kSteps});
  return std::move(model).Build();
}

ModelShape BertBase() {
  ModelBuilder model("bert_base",
                     "Devlin et al., \"BERT\", 2019: base, uncased, with pooler; sequences of 128",
                     4.0);
  constexpr int64_t kWidth = 768, kPositions = 128;
  model.Tensor("embeddings.word_embeddings.weight", {30522, kWidth}, LayerKind::kEmbedding, 0);
  model.Tensor("embeddings.position_embeddings.weight", {512, kWidth}, LayerKind::kEmbedding, 0);
  model.Tensor("embeddings.token_type_embeddings.weight", {2, kWidth}, LayerKind::kEmbedding, 0);
  model.Normalisation("embeddings.LayerNorm", kWidth);
  for (int layer = 0; layer < 12; ++layer) {
    const std::string prefix = absl::StrCat("encoder.layer.", layer, ".");
    for (const char* part : {"query", "key", "value"}) {
      model.Dense(absl::StrCat(prefix, "attention.self.", part),
                  {.in = kWidth, .out = kWidth, .positions = kPositions});
    }
    model.Dense(prefix + "attention.output.dense", {.in = kWidth,
                                                    .out = kWidth,
                                                    .positions = kPositions,
                                                    .extra = AttentionWork(kPositions, kWidth)});
    model.Normalisation(prefix + "attention.output.LayerNorm", kWidth);
    model.Dense(prefix + "intermediate.dense",
                {.in = kWidth, .out = 4 * kWidth, .positions = kPositions});
    model.Dense(prefix + "output.dense",
                {.in = 4 * kWidth, .out = kWidth, .positions = kPositions});
    model.Normalisation(prefix + "output.LayerNorm", kWidth);
  }
  model.Dense("pooler.dense", {.in = kWidth, .out = kWidth});
  return std::move(model).Build();
}

ModelShape Gpt2() {
  ModelBuilder model(
      "gpt2",
      "Radford et al., \"Language Models are Unsupervised Multitask Learners\", 2019: small, its "
      "head tied to the word embedding; sequences of 1024",
      4.0);
  constexpr int64_t kWords = 50257, kWidth = 768, kPositions = 1024;
  model.Tensor("wte.weight", {kWords, kWidth}, LayerKind::kEmbedding, 0);
  model.Tensor("wpe.weight", {kPositions, kWidth}, LayerKind::kEmbedding, 0);
  for (int layer = 0; layer < 12; ++layer) {
    const std::string prefix = absl::StrCat("h.", layer, ".");
    const auto dense = [&](const char* name, int64_t in, int64_t out, double extra) {
      model.Dense(
          prefix + name,
          {.in = in, .out = out, .positions = kPositions, .extra = extra, .transposed = true});
    };
    model.Normalisation(prefix + "ln_1", kWidth);
    dense("attn.c_attn", kWidth, 3 * kWidth, 0);
    dense("attn.c_proj", kWidth, kWidth, AttentionWork(kPositions, kWidth));
    model.Normalisation(prefix + "ln_2", kWidth);
    dense("mlp.c_fc", kWidth, 4 * kWidth, 0);
    dense("mlp.c_proj", 4 * kWidth, kWidth, 0);
  }
  model.Normalisation("ln_f", kWidth);
  // The head multiplies by wte. It comes last in the forward pass and first in the backward pass,
  // in which wte's gradient is not yet complete.
  model.AddWork(static_cast<double>(kWords * kWidth * kPositions));
  return std::move(model).Build();
}

}  // namespace slimps
