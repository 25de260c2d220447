// SPDX-License-Identifier: Apache-2.0
#include "tools/bench/models/models.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tools/bench/models/model_builder.h"

namespace slimps {
namespace {

struct NamedModel {
  const char* name;
  ModelShape (*make)();
};

constexpr NamedModel kModels[] = {
    {"alexnet", AlexNet},          {"vgg16", Vgg16},
    {"resnet50", ResNet50},        {"resnet152", ResNet152},
    {"inception_bn", InceptionBn}, {"lstm_ptb", LstmPtb},
    {"bert_base", BertBase},       {"gpt2", Gpt2},
};

}  // namespace

size_t ModelTensor::elements() const {
  size_t product = 1;
  for (const int64_t extent : shape) product *= static_cast<size_t>(extent);
  return product;
}

size_t ModelShape::elements() const {
  size_t sum = 0;
  for (const ModelTensor& tensor : tensors) sum += tensor.elements();
  return sum;
}

std::vector<std::string> ModelNames() {
  std::vector<std::string> names;
  for (const NamedModel& model : kModels) names.emplace_back(model.name);
  return names;
}

absl::StatusOr<ModelShape> FindModel(std::string_view name) {
  for (const NamedModel& model : kModels) {
    if (name == model.name) return model.make();
  }
  return absl::NotFoundError(absl::StrCat("unknown model '", std::string(name),
                                          "': expected one of ",
                                          absl::StrJoin(ModelNames(), ", ")));
}

}  // namespace slimps
