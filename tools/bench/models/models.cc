// SPDX-License-Identifier: Apache-2.0
#include "tools/bench/models/models.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "proto/base/status_macros.h"
#include "tools/bench/models/model_builder.h"

namespace slimps {
namespace {

struct NamedModel {
  const char* name;
  ModelShape (*make)();
};

constexpr NamedModel kModels[] = {
    {"alexnet", AlexNet},   {"vgg16", Vgg16},         {"vgg19", Vgg19},
    {"resnet50", ResNet50}, {"resnet152", ResNet152}, {"inception_bn", InceptionBn},
    {"lstm_ptb", LstmPtb},  {"bert_base", BertBase},  {"gpt2", Gpt2},
};

// Sets what each tensor's gradient is like.
absl::Status AddRecording(ModelShape* model) {
  const auto fail = [model](const std::string& what) {
    return absl::InternalError(absl::StrCat("recorded/", model->name, ".txt: ", what));
  };
  const auto recording = ParseRecording(RecordingOf(model->name));
  if (!recording.ok()) return fail(std::string(recording.status().message()));
  for (ModelTensor& tensor : model->tensors) {
    const auto found = recording->find(tensor.name);
    if (found == recording->end()) return fail(absl::StrCat("expected a line of ", tensor.name));
    if (found->second.rows != tensor.rows() || found->second.cols != tensor.cols()) {
      return fail(absl::StrCat(tensor.name, ": expected ", tensor.rows(), " x ", tensor.cols(),
                               ", got ", found->second.rows, " x ", found->second.cols));
    }
    tensor.gradient = found->second.gradient;
  }
  return absl::OkStatus();
}

}  // namespace

size_t ModelTensor::elements() const {
  size_t product = 1;
  for (const int64_t extent : shape) product *= static_cast<size_t>(extent);
  return product;
}

size_t ModelTensor::rows() const { return static_cast<size_t>(shape.front()); }

size_t ModelTensor::cols() const { return elements() / rows(); }

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
    if (name != model.name) continue;
    ModelShape shape = model.make();
    SLIMPS_RETURN_IF_ERROR(AddRecording(&shape));
    return shape;
  }
  return absl::NotFoundError(absl::StrCat("unknown model '", std::string(name),
                                          "': expected one of ",
                                          absl::StrJoin(ModelNames(), ", ")));
}

}  // namespace slimps
