// SPDX-License-Identifier: Apache-2.0
#include "tools/bench/codec/cases.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <span>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "compress/codec/options.h"
#include "proto/base/status_macros.h"
#include "tools/bench/codec/encoding.h"
#include "tools/bench/models/models.h"

namespace slimps {
namespace {

constexpr Operation kOperations[] = {Operation::kEncodeWithFeedback, Operation::kEncode,
                                     Operation::kDecodeAdd, Operation::kAggregate,
                                     Operation::kLevels};
constexpr size_t kMaxElements = size_t{1} << 28;
constexpr size_t kMaxThreads = 256;
constexpr size_t kMaxWorkers = 64;
constexpr std::string_view kPhasesName = "phases";
// Aggregation and levels are measured with these codecs, unless codecs are named.
constexpr std::string_view kAggregated = "1bit";
constexpr std::string_view kWithLevels = "topk";

std::vector<std::string> Words(const std::string& list) { return absl::StrSplit(list, ','); }

// Parses "65536", "64Ki" or "1Mi".
absl::StatusOr<size_t> ParseCount(const std::string& flag, const std::string& word, size_t most) {
  size_t unit = 1;
  std::string digits = word;
  for (const auto& [suffix, factor] : {std::pair("Ki", size_t{1} << 10), {"Mi", size_t{1} << 20}}) {
    if (word.size() > 2 && word.compare(word.size() - 2, 2, suffix) == 0) {
      unit = factor;
      digits = word.substr(0, word.size() - 2);
    }
  }
  uint64_t number = 0;
  if (!absl::SimpleAtoi(digits, &number) || number == 0 || number > most / unit) {
    return absl::InvalidArgumentError(
        absl::StrCat("--", flag, ": expected numbers from 1 to ", most, ", got '", word, "'"));
  }
  return number * unit;
}

absl::StatusOr<std::vector<size_t>> ParseCounts(const std::string& flag, const std::string& list,
                                                const std::string& fallback, size_t most) {
  std::vector<size_t> counts;
  for (const std::string& word : Words(list.empty() ? fallback : list)) {
    SLIMPS_ASSIGN_OR_RETURN(const size_t count, ParseCount(flag, word, most));
    counts.push_back(count);
  }
  return counts;
}

absl::StatusOr<std::vector<Operation>> ParseOperations(const std::string& list) {
  std::vector<std::string_view> names;
  for (const Operation operation : kOperations) names.push_back(OperationName(operation));
  if (list.empty()) return std::vector<Operation>(std::begin(kOperations), std::end(kOperations));
  std::vector<Operation> operations;
  for (const std::string& word : Words(list)) {
    if (word == kPhasesName) {
      operations.push_back(Operation::kPhases);
      continue;
    }
    const auto found = std::find(names.begin(), names.end(), word);
    if (found == names.end()) return UnknownName("operation", word, names);
    operations.push_back(kOperations[found - names.begin()]);
  }
  return operations;
}

absl::StatusOr<std::vector<const Kernels*>> ParseIsa(const std::string& list) {
  std::vector<const Kernels*> chosen;
  if (list.empty()) {
    const Kernels* const avx2 = FindKernels("avx2");
    if (avx2 != nullptr && avx2->runs_here()) chosen.push_back(avx2);
    if (avx2 != &BestKernels()) chosen.push_back(&BestKernels());
    return chosen;
  }
  std::vector<std::string_view> names;
  for (const Kernels* kernels : AllKernels()) names.push_back(kernels->name);
  for (const std::string& word : Words(list)) {
    const Kernels* const kernels = FindKernels(word);
    if (kernels == nullptr) return UnknownName("isa", word, names);
    if (!kernels->runs_here()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "--isa: this CPU cannot run ", word, "; its best is ", std::string(BestKernels().name)));
    }
    chosen.push_back(kernels);
  }
  return chosen;
}

// True if a setting has a row for the operation.
bool Measured(const CodecSetting& setting, Operation operation, const CaseLists& lists) {
  // Bounds matter only for encoding, and most with a residual.
  if (setting.bounds == Bounds::kChecked) return operation == Operation::kEncodeWithFeedback;
  if (operation == Operation::kPhases) return HasPhases(setting);
  if (operation == Operation::kLevels) {
    return setting.label == kWithLevels || (!lists.codecs.empty() && HasLevels(setting));
  }
  if (operation != Operation::kAggregate) return true;
  return !lists.codecs.empty() || setting.label == kAggregated;
}

// True if an operation has partitions for several threads.
bool HasSeveral(Operation operation, size_t elements) {
  return elements > kPartitionElements && operation != Operation::kPhases &&
         operation != Operation::kLevels;
}

RowGrid MatrixOf(size_t elements) {
  return {.elements = elements,
          .row_elements = size_t{1} << static_cast<size_t>(std::bit_width(elements) / 2)};
}

}  // namespace

std::string_view OperationName(Operation operation) {
  switch (operation) {
    case Operation::kEncodeWithFeedback:
      return "encode_ef";
    case Operation::kEncode:
      return "encode";
    case Operation::kDecodeAdd:
      return "decode_add";
    case Operation::kAggregate:
      return "aggregate";
    case Operation::kPhases:
      return kPhasesName;
    case Operation::kLevels:
      return "levels";
  }
  return "unknown";
}

std::string CountName(size_t count) {
  if (count % (1 << 20) == 0) return absl::StrCat(count >> 20, "Mi");
  if (count % (1 << 10) == 0) return absl::StrCat(count >> 10, "Ki");
  return absl::StrCat(count);
}

std::string Case::Name() const {
  std::string name = absl::StrCat(setting.label, " ", std::string(OperationName(operation)), " ",
                                  CountName(elements), " ", std::string(kernels->name));
  if (workers > 1) absl::StrAppend(&name, ", ", workers, " workers");
  if (threads > 1) absl::StrAppend(&name, ", ", threads, " threads");
  return name;
}

absl::StatusOr<std::vector<Case>> MakeCases(const CaseLists& lists) {
  SLIMPS_ASSIGN_OR_RETURN(const auto settings, ChooseCodecSettings(lists.codecs));
  SLIMPS_ASSIGN_OR_RETURN(const auto operations, ParseOperations(lists.operations));
  SLIMPS_ASSIGN_OR_RETURN(const auto kernel_sets, ParseIsa(lists.isa));
  SLIMPS_ASSIGN_OR_RETURN(const auto sizes,
                          ParseCounts("elements", lists.elements,
                                      lists.quick ? "64Ki" : "64Ki,256Ki,1Mi,16Mi", kMaxElements));
  SLIMPS_ASSIGN_OR_RETURN(const auto threads,
                          ParseCounts("threads", lists.threads, "1", kMaxThreads));
  SLIMPS_ASSIGN_OR_RETURN(
      const auto workers,
      ParseCounts("workers", lists.workers, lists.quick ? "1,4" : "1,2,4,8,16", kMaxWorkers));
  const std::vector<size_t> alone = {1};
  std::vector<Case> cases;
  for (const size_t elements : sizes) {
    for (const Operation operation : operations) {
      for (const CodecSetting& setting : settings) {
        if (!Measured(setting, operation, lists)) continue;
        for (const size_t count : operation == Operation::kAggregate ? workers : alone) {
          for (const size_t thread_count : threads) {
            if (thread_count > 1 && !HasSeveral(operation, elements)) continue;
            for (const Kernels* kernels : kernel_sets) {
              cases.push_back({setting, operation, count, elements, static_cast<int>(thread_count),
                               kernels, lists.matrix ? MatrixOf(elements) : RowGrid{}});
            }
          }
        }
      }
    }
  }
  if (cases.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--ops: expected one that a codec of --codecs has, got \"", lists.operations,
        "\"; several --threads take tensors of over ", CountName(kPartitionElements), " elements"));
  }
  return cases;
}

absl::StatusOr<std::vector<Case>> MakeModelCases(const std::string& table, const CaseLists& lists) {
  const std::vector<std::string> names = ModelNames();
  if (std::find(names.begin(), names.end(), table) == names.end()) {
    const std::vector<std::string_view> valid(names.begin(), names.end());
    return UnknownName("table", table, valid);
  }
  SLIMPS_ASSIGN_OR_RETURN(const auto settings, ChooseCodecSettings(lists.codecs));
  SLIMPS_ASSIGN_OR_RETURN(const auto threads,
                          ParseCounts("threads", lists.threads, "1", kMaxThreads));
  SLIMPS_ASSIGN_OR_RETURN(
      const auto kernel_sets,
      ParseIsa(lists.isa.empty() ? std::string(BestKernels().name) : lists.isa));
  std::vector<Case> cases;
  for (const CodecSetting& setting : settings) {
    if (setting.bounds == Bounds::kChecked) continue;
    for (const size_t thread_count : threads) {
      for (const Kernels* kernels : kernel_sets) {
        cases.push_back(
            {.setting = setting, .threads = static_cast<int>(thread_count), .kernels = kernels});
      }
    }
  }
  return cases;
}

}  // namespace slimps
