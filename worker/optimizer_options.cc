// SPDX-License-Identifier: Apache-2.0
#include "worker/optimizer_options.h"

#include <cmath>
#include <cstdint>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace slimps {
namespace {

using Spec = wire::OptimizerSpec;
using Schedule = wire::LearningRateSchedule;

enum class Takes { kNumber, kNonZero, kPositive, kSwitch, kRounds };

// Which optimizers use an option.
enum class UsedBy { kAll, kSgdAndAdams, kSgd, kAdams, kOneBitAdam };

struct Option {
  const char* name;
  Takes takes;
  void (*set)(Spec* spec, double value);
  UsedBy used_by = UsedBy::kAll;
};

uint64_t Rounds(double value) { return static_cast<uint64_t>(value); }

constexpr Option kOptions[] = {
    {"learning_rate", Takes::kNumber, [](Spec* s, double v) { s->set_learning_rate(v); }},
    {"momentum", Takes::kNumber, [](Spec* s, double v) { s->set_momentum(v); }, UsedBy::kSgd},
    {"nesterov", Takes::kSwitch, [](Spec* s, double v) { s->set_nesterov(v != 0); }, UsedBy::kSgd},
    {"weight_decay", Takes::kNumber, [](Spec* s, double v) { s->set_weight_decay(v); },
     UsedBy::kSgdAndAdams},
    {"beta1", Takes::kNumber, [](Spec* s, double v) { s->set_beta1(v); }, UsedBy::kAdams},
    {"beta2", Takes::kNumber, [](Spec* s, double v) { s->set_beta2(v); }, UsedBy::kAdams},
    {"epsilon", Takes::kNumber, [](Spec* s, double v) { s->set_epsilon(v); }, UsedBy::kAdams},
    {"rescale_grad", Takes::kNonZero, [](Spec* s, double v) { s->set_rescale_grad(v); }},
    {"clip_gradient", Takes::kNumber, [](Spec* s, double v) { s->set_clip_gradient(v); }},
    {"average", Takes::kSwitch, [](Spec* s, double v) { s->set_average(v != 0); }},
    {"warmup_rounds", Takes::kRounds,
     [](Spec* s, double v) { s->mutable_schedule()->set_warmup_rounds(Rounds(v)); }},
    {"schedule_every", Takes::kRounds,
     [](Spec* s, double v) { s->mutable_schedule()->set_every(Rounds(v)); }},
    {"freeze_after", Takes::kRounds, [](Spec* s, double v) { s->set_freeze_after(Rounds(v)); },
     UsedBy::kOneBitAdam},
    {"schedule_factor", Takes::kNumber,
     [](Spec* s, double v) { s->mutable_schedule()->set_factor(v); }},
    {"total_rounds", Takes::kRounds,
     [](Spec* s, double v) { s->mutable_schedule()->set_total_rounds(Rounds(v)); }},
    {"schedule_begin_round", Takes::kRounds,
     [](Spec* s, double v) { s->mutable_schedule()->set_begin_round(Rounds(v)); }},
    {"schedule_power", Takes::kPositive,
     [](Spec* s, double v) { s->mutable_schedule()->set_power(v); }},
    {"final_lr", Takes::kNumber, [](Spec* s, double v) { s->mutable_schedule()->set_final_lr(v); }},
};

constexpr char kScheduleOption[] = "schedule";
constexpr std::pair<const char*, Schedule::Kind> kSchedules[] = {{"constant", Schedule::CONSTANT},
                                                                 {"step", Schedule::STEP},
                                                                 {"cosine", Schedule::COSINE},
                                                                 {"linear", Schedule::LINEAR}};
constexpr std::pair<const char*, Spec::Kind> kOptimizers[] = {
    {"sgd", Spec::SGD},     {"adam", Spec::ADAM},
    {"adamw", Spec::ADAMW}, {"onebit_adam", Spec::ONEBIT_ADAM},
    {"test", Spec::TEST},   {"none", Spec::NONE}};

bool IsAdam(Spec::Kind kind) {
  return kind == Spec::ADAM || kind == Spec::ADAMW || kind == Spec::ONEBIT_ADAM;
}

// Returns the names of the optimizers that use the option, or nullptr if `kind` does.
const char* OtherUsers(UsedBy used_by, Spec::Kind kind) {
  switch (used_by) {
    case UsedBy::kAll:
      return nullptr;
    case UsedBy::kSgdAndAdams:
      return kind == Spec::SGD || IsAdam(kind) ? nullptr : "sgd, adam, adamw and onebit_adam";
    case UsedBy::kSgd:
      return kind == Spec::SGD ? nullptr : "sgd";
    case UsedBy::kAdams:
      return IsAdam(kind) ? nullptr : "adam, adamw and onebit_adam";
    case UsedBy::kOneBitAdam:
      return kind == Spec::ONEBIT_ADAM ? nullptr : "onebit_adam";
  }
  return nullptr;
}

// Returns the description of what the option takes, or nullptr if it takes `value`.
const char* Expected(Takes takes, double value) {
  constexpr double kMaxRounds = 9007199254740992;  // 2^53: whole numbers are exact up to there
  switch (takes) {
    case Takes::kNumber:
      return std::isfinite(value) ? nullptr : "a number";
    case Takes::kNonZero:
      return std::isfinite(value) && value != 0 ? nullptr : "a number other than 0";
    case Takes::kPositive:
      return std::isfinite(value) && value > 0 ? nullptr : "a number above 0";
    case Takes::kSwitch:
      return value == 0 || value == 1 ? nullptr : "0 or 1";
    case Takes::kRounds:
      return value >= 0 && value <= kMaxRounds && value == std::floor(value)
                 ? nullptr
                 : "a whole number of rounds";
  }
  return "";
}

template <typename Value>
absl::Status Refuse(std::string_view name, const char* expected, const Value& got) {
  return absl::InvalidArgumentError(
      absl::StrCat("optimizer option ", std::string(name), ": expected ", expected, ", got ", got));
}

const Option* Find(std::string_view name) {
  for (const Option& option : kOptions) {
    if (name == option.name) return &option;
  }
  return nullptr;
}

absl::Status Unknown(std::string_view name) {
  return absl::InvalidArgumentError(absl::StrCat("no optimizer option \"", std::string(name),
                                                 "\"; there are ",
                                                 absl::StrJoin(OptimizerOptionNames(), ", ")));
}

}  // namespace

absl::StatusOr<Spec> MakeOptimizer(std::string_view kind) {
  for (const auto& [name, number] : kOptimizers) {
    if (kind != name) continue;
    Spec spec;
    spec.set_kind(number);
    spec.set_rescale_grad(1);
    if (number == Spec::SGD) spec.set_learning_rate(0.01);
    if (IsAdam(number)) {
      spec.set_learning_rate(0.001);
      spec.set_beta1(0.9);
      spec.set_beta2(0.999);
      spec.set_epsilon(1e-8);
    }
    return spec;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("optimizer: expected sgd, adam, adamw, onebit_adam, test or none, got \"",
                   std::string(kind), "\""));
}

absl::Status SetOptimizerNumber(std::string_view name, double value, Spec* spec) {
  const Option* option = Find(name);
  if (option == nullptr) {
    return name == kScheduleOption ? Refuse(name, "text, as cosine", value) : Unknown(name);
  }
  if (const char* expected = Expected(option->takes, value)) return Refuse(name, expected, value);
  const char* const users = OtherUsers(option->used_by, spec->kind());
  if (users != nullptr && value != 0) {
    return absl::InvalidArgumentError(absl::StrCat("optimizer option ", option->name, "=", value,
                                                   " has no effect: it is of ", users));
  }
  option->set(spec, value);
  return absl::OkStatus();
}

absl::Status SetOptimizerOption(std::string_view name, std::string_view value, Spec* spec) {
  const std::string text(value);
  if (name == kScheduleOption) {
    for (const auto& [schedule, kind] : kSchedules) {
      if (text != schedule) continue;
      spec->mutable_schedule()->set_kind(kind);
      return absl::OkStatus();
    }
    return Refuse(name, "constant, step, cosine or linear", absl::StrCat("\"", text, "\""));
  }
  if (Find(name) == nullptr) return Unknown(name);
  double number = 0;
  if (!absl::SimpleAtod(text, &number)) {
    return Refuse(name, "a number", absl::StrCat("\"", text, "\""));
  }
  return SetOptimizerNumber(name, number, spec);
}

std::vector<std::string> OptimizerOptionNames() {
  std::vector<std::string> names;
  for (const Option& option : kOptions) names.emplace_back(option.name);
  names.emplace_back(kScheduleOption);
  return names;
}

}  // namespace slimps
