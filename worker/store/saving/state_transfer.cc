// SPDX-License-Identifier: Apache-2.0
#include "worker/store/saving/state_transfer.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/base/hash.h"
#include "proto/base/out_of_memory.h"
#include "proto/base/status_macros.h"
#include "worker/courier/item_gathering.h"
#include "worker/store/store_init.h"

namespace slimps {
namespace {

constexpr char kSaving[] = "saving optimizer states";
constexpr char kLoading[] = "loading optimizer states";
constexpr uint32_t kAllTensors[] = {1, 2, 3};
static_assert(std::size(kAllTensors) == kMaxStateTensors);

// Adds one answer to its key's state. The first answer of all (`is_first`) tells which optimizer it
// is; all others must agree.
absl::Status AddAnswer(const TensorPlan& tensor, size_t partition, uint32_t number,
                       const Answer& answer, bool is_first, OptimizerStates* states) {
  const PartitionPlan& plan = tensor.partitions[partition];
  const wire::OptimizerState& got = answer.pull.state();
  const auto where = [&] {
    return absl::StrCat("optimizer state of key ", tensor.key.typed_name(), " partition ",
                        partition, " from server ", plan.server, ": ");
  };
  if (is_first) {
    states->kind = got.kind();
    states->tensors = std::min(got.tensors(), kMaxStateTensors);
  }
  if (got.kind() != states->kind || got.tensors() != states->tensors) {
    return absl::FailedPreconditionError(
        absl::StrCat(where(), "expected that of ", DescribeOptimizer(states->kind, states->tensors),
                     ", got ", DescribeOptimizer(got.kind(), got.tensors())));
  }
  KeyState& key = states->keys[tensor.key.typed_name()];
  if (key.tensors.empty() && partition == 0 && number == 1) {
    key.elements = tensor.elements;
    key.updates = got.updates();
    key.tensors.assign(states->tensors, std::vector<float>(tensor.elements));
  }
  if (got.updates() != key.updates) {
    return absl::FailedPreconditionError(absl::StrCat(
        where(), "expected ", key.updates, " updates as in partition 0, got ", got.updates()));
  }
  if (number > states->tensors) return absl::OkStatus();
  if (answer.pull.format() != wire::RAW_F32 ||
      answer.payload.size() != plan.elements * sizeof(float)) {
    return absl::DataLossError(absl::StrCat(where(), "expected ", plan.elements,
                                            " elements in RAW_F32, got ", answer.payload.size(),
                                            " bytes in ", wire::Format_Name(answer.pull.format())));
  }
  std::memcpy(key.tensors[number - 1].data() + plan.offset, answer.payload.bytes().data(),
              answer.payload.size());
  return absl::OkStatus();
}

}  // namespace

wire::PullItem StateTransfer::StatePull(const TensorPlan& tensor, size_t partition,
                                        uint32_t number) const {
  wire::PullItem pull = tensors_->MakePull(tensor, partition, tensors_->NewestPushed(tensor.key));
  pull.set_state_tensor(number);
  return pull;
}

absl::StatusOr<std::vector<Answer>> StateTransfer::Ask(const TensorPlan& tensor,
                                                       std::span<const uint32_t> numbers) {
  ItemGathering gathering(node_->courier(), {.priority = ItemGathering::kBeforeAll});
  for (size_t i = 0; i < tensor.partitions.size(); ++i) {
    const PartitionPlan& partition = tensor.partitions[i];
    for (const uint32_t number : numbers) {
      gathering.Add(partition.server,
                    {.item = StatePull(tensor, i, number),
                     .payload = {},
                     .key_name = tensor.key.typed_name(),
                     .done = {}},
                    partition.elements * sizeof(float));
    }
  }
  return node_->AwaitAnswers(gathering);
}

absl::Status StateTransfer::Collect(const TensorPlan& tensor, OptimizerStates* states) {
  // Asks for every tensor that any optimizer has: which one it is, the answers tell.
  SLIMPS_ASSIGN_OR_RETURN(const std::vector<Answer> answers, Ask(tensor, kAllTensors));
  for (size_t i = 0; i < answers.size(); ++i) {
    const bool is_first = states->keys.empty();
    SLIMPS_RETURN_IF_ERROR(AddAnswer(tensor, i / kMaxStateTensors, 1 + i % kMaxStateTensors,
                                     answers[i], is_first, states));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> StateTransfer::Save() {
  // No worker pushes on before all have waited: an asynchronous store would step meanwhile.
  SLIMPS_RETURN_IF_ERROR(node_->AgreeOn(tensors_->Wait(), kSaving));
  OptimizerStates states;
  // Tensor by tensor: a worker near the servers waits for the others no longer than they take for
  // one tensor.
  for (const TensorPlan* tensor : keys_->InNameOrder()) {
    const auto collect = [&] { return Collect(*tensor, &states); };
    SLIMPS_RETURN_IF_ERROR(
        node_->AgreeOn(OrOutOfMemory(collect, kSaving, tensor->key.typed_name()), kSaving));
  }
  absl::StatusOr<std::string> content = absl::FailedPreconditionError(
      absl::StrCat(kSaving, ": expected an optimizer at the servers and a key, got none"));
  if (states.kind != wire::OptimizerSpec::NONE) {
    content = OrOutOfMemory(
        [&] { return absl::StatusOr<std::string>(BuildOptimizerStates(states)); }, kSaving);
  }
  SLIMPS_RETURN_IF_ERROR(node_->AgreeOn(content.status(), kSaving));
  return content;
}

absl::Status StateTransfer::CheckLoadable(const OptimizerStates& states) {
  const std::vector<const TensorPlan*> tensors = keys_->InNameOrder();
  SLIMPS_RETURN_IF_ERROR(CheckKeys(states, tensors));
  // Checks that it is the servers' optimizer before anything changes. Every key has the same one.
  // No optimizer has a tensor of that number, so the answer only describes the optimizer.
  if (tensors.empty()) return absl::OkStatus();
  const TensorPlan& tensor = *tensors[0];
  ItemGathering gathering(node_->courier(), {.priority = ItemGathering::kBeforeAll});
  gathering.Add(tensor.partitions[0].server, {.item = StatePull(tensor, 0, kMaxStateTensors + 1),
                                              .payload = {},
                                              .key_name = tensor.key.typed_name(),
                                              .done = {}});
  SLIMPS_ASSIGN_OR_RETURN(const std::vector<Answer> answers, node_->AwaitAnswers(gathering));
  const wire::OptimizerState& state = answers[0].pull.state();
  return CheckOptimizer(states, state.kind(), state.tensors());
}

absl::Status StateTransfer::Send(const TensorPlan& tensor, const OptimizerStates& states,
                                 uint64_t load) {
  const KeyState& key = states.keys.at(tensor.key.typed_name());
  ItemGathering gathering(node_->courier(), {});
  for (size_t i = 0; i < tensor.partitions.size(); ++i) {
    const PartitionPlan& partition = tensor.partitions[i];
    for (uint32_t number = 1; number <= states.tensors; ++number) {
      wire::InitItem init = MakeInitItem(tensor, i, codecs_->plan()->compressor().combine());
      init.mutable_state()->set_kind(states.kind);
      init.mutable_state()->set_tensors(states.tensors);
      init.mutable_state()->set_tensor(number);
      init.mutable_state()->set_updates(key.updates);
      init.mutable_state()->set_load(load);
      const std::span<const float> values = key.tensors[number - 1];
      Payload value =
          Payload::Copy(std::as_bytes(values.subspan(partition.offset, partition.elements)));
      init.set_payload_bytes(value.size());
      if (options_.checksums) init.set_payload_hash(HashBytes(value.bytes()));
      gathering.Add(partition.server, {.item = std::move(init),
                                       .payload = std::move(value),
                                       .key_name = tensor.key.typed_name(),
                                       .done = {}});
    }
  }
  return node_->AwaitAnswers(gathering).status();
}

absl::Status StateTransfer::TakeMomentum(const TensorPlan& tensor) {
  constexpr size_t kTensors = std::size(SharedMomentum::kStateTensors);
  SLIMPS_ASSIGN_OR_RETURN(const std::vector<Answer> answers,
                          Ask(tensor, SharedMomentum::kStateTensors));
  for (size_t i = 0; i < answers.size(); ++i) {
    SLIMPS_RETURN_IF_ERROR(codecs_->momentum()->Put(tensor, i / kTensors, answers[i].pull,
                                                    answers[i].payload.bytes()));
  }
  return absl::OkStatus();
}

absl::Status StateTransfer::Load(std::string_view content) {
  const absl::StatusOr<OptimizerStates> states =
      OrOutOfMemory([&] { return ParseOptimizerStates(content); }, kLoading);
  absl::Status ready = tensors_->Wait();
  if (ready.ok()) ready = states.status();
  if (ready.ok()) ready = CheckLoadable(*states);
  SLIMPS_RETURN_IF_ERROR(node_->AgreeOn(ready, kLoading));
  const uint64_t load = ++loads_;
  const uint64_t restarts = node_->servers().restarts();
  // Tensor by tensor, so that no worker waits for worker 0 longer than one tensor takes.
  for (const TensorPlan* tensor : keys_->InNameOrder()) {
    absl::Status sent;
    if (node_->rank() == 0) {
      sent = OrOutOfMemory([&] { return Send(*tensor, *states, load); }, kLoading,
                           tensor->key.typed_name());
    }
    SLIMPS_RETURN_IF_ERROR(node_->AgreeOn(sent, kLoading));
    // A third tensor, which 1-bit Adam alone has, says that the variance is frozen.
    if (states->tensors < kMaxStateTensors) continue;
    const auto take = [&] { return TakeMomentum(*tensor); };
    SLIMPS_RETURN_IF_ERROR(
        node_->AgreeOn(OrOutOfMemory(take, kLoading, tensor->key.typed_name()), kLoading));
  }
  absl::Status lasts = node_->rank() == 0 ? node_->Persist() : absl::OkStatus();
  if (lasts.ok() && node_->servers().restarts() != restarts) {
    lasts = absl::UnavailableError(absl::StrCat(
        kLoading, ": a server was started again meanwhile, and may lack some: load them again"));
  }
  return node_->AgreeOn(lasts, kLoading);
}

}  // namespace slimps
