// SPDX-License-Identifier: Apache-2.0
#include "worker/store/saving/state_transfer.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <iterator>
#include <optional>
#include <tuple>
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
// Workers agree after so many bytes of state, or one key: a worker near the servers waits for the
// others no longer than these take.
constexpr size_t kBatchBytes = size_t{16} << 20;
static_assert(std::tuple_size_v<decltype(LentOptimizerState::tensors)> == kMaxStateTensors);

// Calls `work(first, count)` for one batch of tensors after the other, until an error.
template <typename Work>
absl::Status ForBatches(std::span<const TensorPlan* const> tensors, const Work& work) {
  for (size_t first = 0, end = 0; first < tensors.size(); first = end) {
    size_t bytes = 0;
    do {
      bytes += kMaxStateTensors * tensors[end++]->bytes();
    } while (end < tensors.size() && bytes < kBatchBytes);
    SLIMPS_RETURN_IF_ERROR(work(first, end - first));
  }
  return absl::OkStatus();
}

// True for +0 alone, so that what is put back is equal bit for bit.
bool AreZeros(std::span<const float> values) {
  return std::ranges::all_of(values, [](float x) { return std::bit_cast<uint32_t>(x) == 0; });
}

// Tensor 1 is always asked for: its answer says how many there are.
bool Wants(const LentOptimizerState& state, uint32_t number) {
  return number == 1 || !state.tensors[number - 1].empty();
}

absl::Status NoOptimizer(const char* what) {
  return absl::FailedPreconditionError(
      absl::StrCat(what, ": expected an optimizer at the servers and a key, got none"));
}

}  // namespace

OutgoingItem StateTransfer::StatePull(const TensorPlan& tensor, size_t partition, uint32_t number,
                                      uint64_t least) const {
  wire::PullItem pull =
      tensors_->MakePull(tensor, partition, std::max(least, tensors_->NewestPushed(tensor.key)));
  pull.set_state_tensor(number);
  return {.item = std::move(pull), .payload = {}, .key_name = tensor.key.typed_name(), .done = {}};
}

absl::StatusOr<std::vector<Answer>> StateTransfer::Ask(const TensorPlan& tensor,
                                                       std::span<const uint32_t> numbers) {
  ItemGathering gathering(node_->courier(), {.priority = ItemGathering::kBeforeAll});
  for (size_t i = 0; i < tensor.partitions.size(); ++i) {
    const PartitionPlan& partition = tensor.partitions[i];
    for (const uint32_t number : numbers) {
      gathering.Add(partition.server, StatePull(tensor, i, number, 0),
                    partition.elements * sizeof(float));
    }
  }
  return node_->AwaitAnswers(gathering);
}

absl::StatusOr<wire::OptimizerState> StateTransfer::Describe(
    std::span<const TensorPlan* const> tensors, const char* what) {
  if (tensors.empty()) return NoOptimizer(what);
  // No optimizer has a tensor of that number, so the answer only describes the optimizer. Every key
  // has the same one.
  ItemGathering gathering(node_->courier(), {.priority = ItemGathering::kBeforeAll});
  gathering.Add(tensors[0]->partitions[0].server,
                StatePull(*tensors[0], 0, kMaxStateTensors + 1, 0));
  SLIMPS_ASSIGN_OR_RETURN(const std::vector<Answer> answers, node_->AwaitAnswers(gathering));
  const wire::OptimizerState& state = answers[0].pull.state();
  if (state.kind() == wire::OptimizerSpec::NONE) return NoOptimizer(what);
  return state;
}

absl::Status StateTransfer::TakeAnswer(const TensorPlan& tensor, size_t partition, uint32_t number,
                                       const Answer& answer, LentOptimizerState* state) const {
  const PartitionPlan& plan = tensor.partitions[partition];
  const wire::OptimizerState& got = answer.pull.state();
  const auto where = [&] {
    return absl::StrCat("optimizer state of key ", tensor.key.typed_name(), " partition ",
                        partition, " from server ", plan.server, ": ");
  };
  if (got.kind() == wire::OptimizerSpec::NONE) return NoOptimizer(kSaving);
  const uint32_t count = std::min(got.tensors(), kMaxStateTensors);
  const uint64_t version = answer.pull.version();
  if (partition == 0 && number == 1) {
    state->count = count;
    state->updates = got.updates();
    state->round = version;
  }
  // Rounds of a worker that has left are compared when all is there.
  const bool is_one_round = tensors_->counts_rounds() && !tensors_->left();
  if (count != state->count ||
      (is_one_round && (got.updates() != state->updates || version != state->round))) {
    return absl::FailedPreconditionError(
        absl::StrCat(where(), "expected ", state->count, " tensors with ", state->updates,
                     " updates of round ", state->round, ", as partition 0 has, got ", count,
                     " with ", got.updates(), " of round ", version));
  }
  state->updates = std::max(state->updates, got.updates());
  state->round = std::max(state->round, version);
  if (number > count || state->tensors[number - 1].empty()) return absl::OkStatus();
  const std::span<float> out = state->tensors[number - 1].subspan(plan.offset, plan.elements);
  if (answer.pull.format() == wire::ABSENT) {
    std::ranges::fill(out, 0.0f);
    return absl::OkStatus();
  }
  if (answer.pull.format() != wire::RAW_F32 || answer.payload.size() != out.size_bytes()) {
    return absl::DataLossError(absl::StrCat(where(), "expected ", plan.elements,
                                            " elements in RAW_F32, got ", answer.payload.size(),
                                            " bytes in ", wire::Format_Name(answer.pull.format())));
  }
  std::memcpy(out.data(), answer.payload.bytes().data(), out.size_bytes());
  return absl::OkStatus();
}

absl::StatusOr<StateTransfer::Rounds> StateTransfer::Collect(
    std::span<const TensorPlan* const> tensors, std::span<LentOptimizerState> states,
    uint64_t least) {
  ItemGathering gathering(node_->courier(), {.priority = ItemGathering::kBeforeAll});
  const auto for_each = [&](const auto& use) -> absl::Status {
    for (size_t i = 0; i < tensors.size(); ++i) {
      for (size_t part = 0; part < tensors[i]->partitions.size(); ++part) {
        for (uint32_t number = 1; number <= kMaxStateTensors; ++number) {
          if (!Wants(states[i], number)) continue;
          SLIMPS_RETURN_IF_ERROR(use(*tensors[i], part, number, &states[i]));
        }
      }
    }
    return absl::OkStatus();
  };
  const auto ask = [&](const TensorPlan& tensor, size_t part, uint32_t number,
                       const LentOptimizerState* /*state*/) {
    gathering.Add(tensor.partitions[part].server, StatePull(tensor, part, number, least),
                  tensor.partitions[part].elements * sizeof(float));
    return absl::OkStatus();
  };
  SLIMPS_RETURN_IF_ERROR(for_each(ask));
  SLIMPS_ASSIGN_OR_RETURN(const std::vector<Answer> answers, node_->AwaitAnswers(gathering));
  Rounds rounds;
  size_t next = 0;
  const auto take = [&](const TensorPlan& tensor, size_t part, uint32_t number,
                        LentOptimizerState* state) {
    const Answer& answer = answers[next++];
    rounds.least = std::min(rounds.least, answer.pull.version());
    rounds.most = std::max(rounds.most, answer.pull.version());
    return TakeAnswer(tensor, part, number, answer, state);
  };
  SLIMPS_RETURN_IF_ERROR(for_each(take));
  return rounds;
}

absl::StatusOr<std::vector<const TensorPlan*>> StateTransfer::Find(
    std::span<const Key> keys, std::span<const LentOptimizerState> states) const {
  std::vector<const TensorPlan*> found;
  for (size_t i = 0; i < keys.size(); ++i) {
    SLIMPS_ASSIGN_OR_RETURN(const TensorPlan* tensor, keys_->Find(keys[i]));
    found.push_back(tensor);
    if (i >= states.size()) continue;
    for (const std::span<const float> values : states[i].tensors) {
      if (values.empty() || values.size() == tensor->elements) continue;
      return absl::InvalidArgumentError(
          absl::StrCat("optimizer state of key ", tensor->key.typed_name(), ": expected ",
                       tensor->elements, " elements, got ", values.size()));
    }
  }
  return found;
}

absl::Status StateTransfer::Pull(std::span<const Key> keys, std::span<LentOptimizerState> states) {
  if (states.size() != keys.size()) {
    return absl::InvalidArgumentError(absl::StrCat(kSaving, ": expected as many states as keys, ",
                                                   keys.size(), ", got ", states.size()));
  }
  SLIMPS_ASSIGN_OR_RETURN(const std::vector<const TensorPlan*> tensors, Find(keys, states));
  SLIMPS_RETURN_IF_ERROR(tensors_->Wait());
  const auto pull = [&](uint64_t least) -> absl::StatusOr<Rounds> {
    Rounds rounds;
    const auto collect = [&](size_t first, size_t count) -> absl::Status {
      SLIMPS_ASSIGN_OR_RETURN(const Rounds some, Collect(std::span(tensors).subspan(first, count),
                                                         states.subspan(first, count), least));
      rounds.least = std::min(rounds.least, some.least);
      rounds.most = std::max(rounds.most, some.most);
      return absl::OkStatus();
    };
    SLIMPS_RETURN_IF_ERROR(ForBatches(tensors, collect));
    return rounds;
  };
  SLIMPS_ASSIGN_OR_RETURN(Rounds rounds, pull(0));
  // No round waits for a worker that has left. One may have been under way: then it is waited for.
  const auto is_torn = [&] { return tensors_->left() && rounds.least < rounds.most; };
  if (is_torn()) {
    SLIMPS_ASSIGN_OR_RETURN(rounds, pull(rounds.most));
  }
  if (!is_torn()) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      kSaving, ": rounds ", rounds.least, " to ", rounds.most,
      " were made meanwhile; expected a worker that takes part in rounds, and this one has left"));
}

absl::StatusOr<std::string> StateTransfer::Save() {
  // No worker pushes on before all have waited: an asynchronous store would step meanwhile.
  SLIMPS_RETURN_IF_ERROR(node_->AgreeOn(tensors_->Wait(), kSaving));
  const std::vector<const TensorPlan*> tensors = keys_->InNameOrder();
  OptimizerStates states;
  const auto describe = [&]() -> absl::Status {
    SLIMPS_ASSIGN_OR_RETURN(const wire::OptimizerState state, Describe(tensors, kSaving));
    states.kind = state.kind();
    states.tensors = std::min(state.tensors(), kMaxStateTensors);
    return absl::OkStatus();
  };
  SLIMPS_RETURN_IF_ERROR(node_->AgreeOn(describe(), kSaving));
  const auto collect = [&](size_t first, size_t count) -> absl::Status {
    std::vector<LentOptimizerState> lent(count);
    for (size_t i = 0; i < count; ++i) {
      const TensorPlan& tensor = *tensors[first + i];
      KeyState& key = states.keys[tensor.key.typed_name()];
      key.elements = tensor.elements;
      key.tensors.assign(states.tensors, std::vector<float>(tensor.elements));
      std::ranges::copy(key.tensors, lent[i].tensors.begin());
    }
    SLIMPS_RETURN_IF_ERROR(
        Collect(std::span(tensors).subspan(first, count), lent, /*least=*/0).status());
    for (size_t i = 0; i < count; ++i) {
      states.keys[tensors[first + i]->key.typed_name()].updates = lent[i].updates;
    }
    return absl::OkStatus();
  };
  SLIMPS_RETURN_IF_ERROR(ForBatches(tensors, [&](size_t first, size_t count) {
    return node_->AgreeOn(OrOutOfMemory([&] { return collect(first, count); }, kSaving,
                                        tensors[first]->key.typed_name()),
                          kSaving);
  }));
  absl::StatusOr<std::string> content = OrOutOfMemory(
      [&] { return absl::StatusOr<std::string>(BuildOptimizerStates(states)); }, kSaving);
  SLIMPS_RETURN_IF_ERROR(node_->AgreeOn(content.status(), kSaving));
  return content;
}

absl::Status StateTransfer::Send(std::span<const TensorPlan* const> tensors,
                                 std::span<const LentOptimizerState> states,
                                 const wire::OptimizerState& kind) {
  ItemGathering gathering(node_->courier(), {});
  for (size_t key = 0; key < tensors.size(); ++key) {
    const TensorPlan& tensor = *tensors[key];
    for (size_t i = 0; i < tensor.partitions.size(); ++i) {
      const PartitionPlan& partition = tensor.partitions[i];
      for (uint32_t number = 1; number <= states[key].count; ++number) {
        wire::InitItem init = MakeInitItem(tensor, i, codecs_->plan()->compressor().combine());
        *init.mutable_state() = kind;
        init.mutable_state()->set_tensors(states[key].count);
        init.mutable_state()->set_tensor(number);
        init.mutable_state()->set_updates(states[key].updates);
        const std::span<const float> values =
            states[key].tensors[number - 1].subspan(partition.offset, partition.elements);
        Payload value;
        if (AreZeros(values)) {
          init.set_format(wire::ABSENT);
        } else {
          value = Payload::Copy(std::as_bytes(values));
          init.set_payload_bytes(value.size());
          if (options_.checksums) init.set_payload_hash(HashBytes(value.bytes()));
        }
        gathering.Add(partition.server, {.item = std::move(init),
                                         .payload = std::move(value),
                                         .key_name = tensor.key.typed_name(),
                                         .done = {}});
      }
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

absl::StatusOr<wire::OptimizerState> StateTransfer::CheckPuttable(
    std::span<const TensorPlan* const> tensors, std::span<const LentOptimizerState> states) {
  if (states.size() != tensors.size()) {
    return absl::InvalidArgumentError(absl::StrCat(kLoading, ": expected those of ", tensors.size(),
                                                   " keys, got ", states.size()));
  }
  SLIMPS_ASSIGN_OR_RETURN(wire::OptimizerState kind, Describe(tensors, kLoading));
  for (size_t i = 0; i < states.size(); ++i) {
    const LentOptimizerState& state = states[i];
    for (uint32_t number = 0; number < std::min(state.count, kMaxStateTensors); ++number) {
      if (state.tensors[number].size() == tensors[i]->elements) continue;
      return absl::InvalidArgumentError(absl::StrCat(kLoading, ": key ",
                                                     tensors[i]->key.typed_name(), ": tensor ",
                                                     number + 1, " is missing"));
    }
    SLIMPS_RETURN_IF_ERROR(
        CheckOptimizer({.kind = kind.kind(), .tensors = state.count}, kind.kind(), kind.tensors()));
  }
  return kind;
}

absl::Status StateTransfer::Put(std::span<const Key> keys,
                                std::span<const LentOptimizerState> states, absl::Status mine) {
  absl::Status ready = tensors_->Wait();
  ready.Update(mine);
  std::vector<const TensorPlan*> tensors;
  wire::OptimizerState kind;
  const auto check = [&]() -> absl::Status {
    SLIMPS_RETURN_IF_ERROR(ready);
    const bool is_first = node_->rank() == 0;
    SLIMPS_ASSIGN_OR_RETURN(tensors,
                            Find(keys, is_first ? states : std::span<const LentOptimizerState>()));
    if (!is_first || keys.empty()) return absl::OkStatus();
    SLIMPS_ASSIGN_OR_RETURN(kind, CheckPuttable(tensors, states));
    return absl::OkStatus();
  };
  SLIMPS_RETURN_IF_ERROR(node_->AgreeOn(check(), kLoading));
  kind.set_load(++loads_);
  const uint64_t restarts = node_->servers().restarts();
  SLIMPS_RETURN_IF_ERROR(ForBatches(tensors, [&](size_t first, size_t count) {
    const auto send = [&] {
      return Send(std::span(tensors).subspan(first, count), states.subspan(first, count), kind);
    };
    const bool sends = node_->rank() == 0;
    return node_->AgreeOn(
        sends ? OrOutOfMemory(send, kLoading, tensors[first]->key.typed_name()) : absl::OkStatus(),
        kLoading);
  }));
  SLIMPS_RETURN_IF_ERROR(TakeMomenta(tensors));
  absl::Status lasts = node_->rank() == 0 ? node_->Persist() : absl::OkStatus();
  if (lasts.ok() && node_->servers().restarts() != restarts) {
    lasts = absl::UnavailableError(absl::StrCat(
        kLoading, ": a server was started again meanwhile, and may lack some: load them again"));
  }
  return node_->AgreeOn(lasts, kLoading);
}

absl::Status StateTransfer::TakeMomenta(std::span<const TensorPlan* const> tensors) {
  const std::optional<wire::OptimizerSpec> optimizer = codecs_->optimizer();
  if (!optimizer.has_value() || optimizer->kind() != wire::OptimizerSpec::ONEBIT_ADAM) {
    return absl::OkStatus();
  }
  const absl::StatusOr<wire::OptimizerState> state = Describe(tensors, kLoading);
  SLIMPS_RETURN_IF_ERROR(node_->AgreeOn(state.status(), kLoading));
  // A third tensor says that the variance is frozen.
  if (state->tensors() < kMaxStateTensors) return absl::OkStatus();
  return ForBatches(tensors, [&](size_t first, size_t count) {
    absl::Status taken;
    for (size_t i = first; taken.ok() && i < first + count; ++i) {
      taken = OrOutOfMemory([&] { return TakeMomentum(*tensors[i]); }, kLoading,
                            tensors[i]->key.typed_name());
    }
    return node_->AgreeOn(taken, kLoading);
  });
}

absl::Status StateTransfer::Load(std::string_view content) {
  const std::vector<const TensorPlan*> tensors = keys_->InNameOrder();
  std::vector<Key> keys;
  for (const TensorPlan* tensor : tensors) keys.push_back(tensor->key);
  OptimizerStates states;
  std::vector<LentOptimizerState> lent;
  const auto read = [&]() -> absl::Status {
    SLIMPS_ASSIGN_OR_RETURN(states, ParseOptimizerStates(content));
    SLIMPS_RETURN_IF_ERROR(CheckKeys(states, tensors));
    if (tensors.empty()) return absl::OkStatus();
    // Checks that it is the servers' optimizer before anything changes.
    SLIMPS_ASSIGN_OR_RETURN(const wire::OptimizerState there, Describe(tensors, kLoading));
    SLIMPS_RETURN_IF_ERROR(CheckOptimizer(states, there.kind(), there.tensors()));
    for (const TensorPlan* tensor : tensors) {
      KeyState& key = states.keys.at(tensor->key.typed_name());
      LentOptimizerState& one = lent.emplace_back();
      one.count = states.tensors;
      one.updates = key.updates;
      std::ranges::copy(key.tensors, one.tensors.begin());
    }
    return absl::OkStatus();
  };
  absl::Status ready = tensors_->Wait();
  if (ready.ok()) ready = OrOutOfMemory(read, kLoading);
  return Put(keys, lent, ready);
}

}  // namespace slimps
