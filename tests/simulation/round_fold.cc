// SPDX-License-Identifier: Apache-2.0
#include "tests/simulation/round_fold.h"

#include <algorithm>
#include <set>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "proto/base/simulation/simulation.h"

namespace slimps {

RoundFold::RoundFold(const JobPlan& plan, uint32_t workers)
    : plan_(plan), workers_(workers), begun_(workers) {
  for (const ReferenceTensor& tensor : plan.tensors) {
    Tensor& one = tensors_.emplace_back();
    one.name = tensor.key.typed_name();
    one.partitions = (tensor.value.size() + kPartitionElements - 1) / kPartitionElements;
    one.job = std::make_unique<ReferenceTensorJob>(tensor, FoldOptions(plan, tensor, workers));
    one.weights.push_back(one.job->Pulled());
  }
}

void RoundFold::TakeNote(absl::string_view note) {
  const std::vector<absl::string_view> words = absl::StrSplit(note, ' ');
  if (words.size() != 5 || words[0] != "counts") return;
  const auto tensor = std::ranges::find(tensors_, words[1], &Tensor::name);
  size_t partition = 0;
  int round = 0;
  if (tensor == tensors_.end() || !absl::SimpleAtoi(words[2], &partition) ||
      partition >= tensor->partitions || !absl::SimpleAtoi(words[3], &round)) {
    return;  // an auxiliary key's
  }
  std::set<uint32_t> workers;
  for (const absl::string_view word : absl::StrSplit(words[4], ',', absl::SkipEmpty())) {
    uint32_t worker = 0;
    if (absl::SimpleAtoi(word, &worker)) workers.insert(worker);
  }
  CountedWorkers& counted = tensor->counted[round];
  counted.resize(tensor->partitions);
  if (!counted[partition].has_value()) counted[partition] = workers;
  if (*counted[partition] == workers) return;
  simulation::Fail(absl::StrCat("a server that was started again counts other pushes: ", note));
}

void RoundFold::Begin(uint32_t worker, int round) {
  begun_[worker].push_back(round);
  for (Tensor& tensor : tensors_) {
    if (tensor.weights.size() > static_cast<size_t>(round)) tensor.job->Forget(worker);
  }
}

void RoundFold::Compute(Tensor* tensor, size_t index) {
  const auto round = static_cast<int>(tensor->weights.size());
  const auto counted = tensor->counted.find(round);
  if (counted == tensor->counted.end() ||
      std::ranges::any_of(counted->second, [](const auto& one) { return !one.has_value(); })) {
    simulation::Fail(
        absl::StrCat("a pull of t", index, " was answered before round ", round, " was complete"));
  }
  Weights gradients;
  for (uint32_t worker = 0; worker < workers_; ++worker) {
    if (std::ranges::find(begun_[worker], round) != begun_[worker].end()) {
      tensor->job->Forget(worker);
    }
    gradients.push_back(GradientOf(plan_.tensors[index], worker, round));
  }
  tensor->job->Round(gradients, counted->second);
  tensor->weights.push_back(tensor->job->Pulled());
}

const std::vector<float>& RoundFold::WeightsOf(size_t tensor, int round, uint32_t worker) {
  Tensor& one = tensors_[tensor];
  while (one.weights.size() <= static_cast<size_t>(round)) Compute(&one, tensor);
  const auto counted = one.counted.find(round);
  if (round >= begun_[worker].back() && counted != one.counted.end()) {
    for (size_t partition = 0; partition < one.partitions; ++partition) {
      if (counted->second[partition]->contains(worker)) continue;
      simulation::Fail(absl::StrCat("t", tensor, ", partition ", partition, ", round ", round,
                                    " was completed without worker ", worker,
                                    ", which has pushed it"));
    }
  }
  return one.weights[static_cast<size_t>(round)];
}

}  // namespace slimps
