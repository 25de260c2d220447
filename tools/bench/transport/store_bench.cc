// SPDX-License-Identifier: Apache-2.0
#include "tools/bench/transport/store_bench.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "proto/base/status_macros.h"
#include "tools/bench/models/models.h"

namespace slimps {
namespace {

constexpr uint64_t kMaxBytes = uint64_t{1} << 32;
constexpr uint64_t kMaxKeys = 1 << 16;
constexpr uint64_t kMaxRounds = uint64_t{1} << 24;

absl::StatusOr<Gradients> GradientsOf(const Command& command) {
  if (!command.values.contains("lend")) return Gradients::kCopied;
  SLIMPS_ASSIGN_OR_RETURN(const uint64_t lend, command.Count("lend", 0, 1));
  return lend == 1 ? Gradients::kLent : Gradients::kCopied;
}

}  // namespace

std::vector<size_t> EqualParts(size_t bytes, size_t part_bytes) {
  std::vector<size_t> elements(bytes / part_bytes, part_bytes / sizeof(float));
  const size_t rest = bytes % part_bytes / sizeof(float);
  if (rest > 0) elements.push_back(rest);
  return elements;
}

absl::StatusOr<std::unique_ptr<StoreBench>> StoreBench::Create(KVStore* store) {
  SLIMPS_RETURN_IF_ERROR(store->SetOptimizer(BenchOptimizer()));
  SLIMPS_RETURN_IF_ERROR(store->Barrier());
  return std::unique_ptr<StoreBench>(new StoreBench(store));
}

absl::StatusOr<std::string> StoreBench::Answer(const Command& command) {
  if (command.verb == "verify") return Verify();
  absl::StatusOr<Times> times;
  if (command.verb == "push_pull") {
    times = PushPull(command);
  } else if (command.verb == "latency") {
    times = Latency(command);
  } else if (command.verb == "model") {
    times = Model(command);
  } else {
    times = absl::InvalidArgumentError(absl::StrCat(
        "command: expected push_pull, latency, model or verify, got \"", command.verb, "\""));
  }
  SLIMPS_RETURN_IF_ERROR(times.status());
  return TimesJson(times->seconds, times->samples_us, times->push_seconds);
}

absl::StatusOr<Times> StoreBench::PushPull(const Command& command) {
  SLIMPS_ASSIGN_OR_RETURN(const uint64_t bytes, command.Count("bytes", sizeof(float), kMaxBytes));
  SLIMPS_ASSIGN_OR_RETURN(const uint64_t keys, command.Count("keys", 1, kMaxKeys));
  SLIMPS_ASSIGN_OR_RETURN(const uint64_t rounds, command.Count("rounds", 1, kMaxRounds));
  SLIMPS_ASSIGN_OR_RETURN(const Gradients gradients, GradientsOf(command));
  SLIMPS_ASSIGN_OR_RETURN(TensorSet* const set,
                          Tensors(absl::StrCat("push_pull", bytes, "x", keys),
                                  std::vector<size_t>(keys, bytes / sizeof(float))));
  return set->RunPipelined(rounds, gradients);
}

absl::StatusOr<Times> StoreBench::Latency(const Command& command) {
  SLIMPS_ASSIGN_OR_RETURN(const uint64_t bytes, command.Count("bytes", sizeof(float), kMaxBytes));
  SLIMPS_ASSIGN_OR_RETURN(const uint64_t count, command.Count("count", 1, kMaxRounds));
  SLIMPS_ASSIGN_OR_RETURN(const uint64_t pause, command.Count("pause_us", 0, 1000'000));
  SLIMPS_ASSIGN_OR_RETURN(TensorSet* const set,
                          Tensors(absl::StrCat("latency", bytes), {bytes / sizeof(float)}));
  return set->RunOneByOne(count, absl::Microseconds(static_cast<int64_t>(pause)));
}

absl::StatusOr<Times> StoreBench::Model(const Command& command) {
  SLIMPS_ASSIGN_OR_RETURN(const std::string name, command.Text("name"));
  SLIMPS_ASSIGN_OR_RETURN(const uint64_t part_bytes, command.Count("part_bytes", 0, kMaxBytes));
  SLIMPS_ASSIGN_OR_RETURN(const uint64_t rounds, command.Count("rounds", 1, kMaxRounds));
  SLIMPS_ASSIGN_OR_RETURN(const Gradients gradients, GradientsOf(command));
  SLIMPS_ASSIGN_OR_RETURN(const ModelShape model, FindModel(name));
  std::vector<size_t> elements;
  if (part_bytes > 0) {
    elements = EqualParts(model.elements() * sizeof(float), part_bytes);
  } else {
    for (const ModelTensor& tensor : model.tensors) elements.push_back(tensor.elements());
  }
  SLIMPS_ASSIGN_OR_RETURN(TensorSet* const set,
                          Tensors(absl::StrCat(name, "/", part_bytes), elements));
  return set->RunRounds(rounds, gradients);
}

absl::StatusOr<std::string> StoreBench::Verify() {
  size_t bytes = 0;
  for (const auto& [name, set] : sets_) {
    SLIMPS_RETURN_IF_ERROR(set->Check());
    bytes += set->bytes();
  }
  return absl::StrCat("{\"verified_bytes\": ", bytes, "}");
}

absl::StatusOr<TensorSet*> StoreBench::Tensors(const std::string& name,
                                               const std::vector<size_t>& elements) {
  std::unique_ptr<TensorSet>& set = sets_[name];
  if (set == nullptr) {
    SLIMPS_ASSIGN_OR_RETURN(set, TensorSet::Init(store_, name, elements));
  }
  return set.get();
}

}  // namespace slimps
