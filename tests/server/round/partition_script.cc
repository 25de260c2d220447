// SPDX-License-Identifier: Apache-2.0
#include "tests/server/round/partition_script.h"

#include <algorithm>
#include <numeric>
#include <random>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gtest/gtest.h"
#include "proto/base/hash.h"
#include "tests/compress/format/rows_test_util.h"
#include "tests/server/round/server_test_util.h"

namespace slimps {
namespace {

constexpr uint64_t kRounds = 6;
constexpr uint64_t kUnmasks = 5;  // round in which late elements get their first gradient
constexpr uint32_t kLateElements[] = {100, 50};  // a run

PartitionSpec SpecOf(const Scenario& scenario) {
  PartitionSpec spec;
  spec.key = Key("w").id();
  spec.index = 3;
  spec.name = "s:w";
  spec.shape = {960, kRowElements};
  spec.partitions = 10;
  spec.offset = scenario.auxiliary.has_value() ? 0 : 7 * kRowElements;
  spec.elements = kElements;
  spec.row_elements = kRowElements;
  spec.dtype = scenario.dtype;
  spec.layer = LayerKind::kDense;
  spec.mode = scenario.mode;
  spec.staleness = scenario.mode == wire::DIST_SSP ? 2 : 0;
  spec.combine = scenario.auxiliary.value_or(scenario.combine);
  spec.auxiliary = scenario.auxiliary.has_value();
  spec.num_workers = scenario.workers;
  spec.rounds_ahead = kReplayedRoundsAhead;  // as after a restart
  return spec;
}

ClaimedPayload LanesOf(uint64_t round, uint32_t worker) {
  const auto codec = MakeCodec("thc").value();
  const std::vector<float> gradient = RandomValues(kElements, round);  // one scale for all workers
  std::vector<std::byte> payload(codec->MaxPayloadBytes(kElements));
  const EncodeInput input = {
      .gradient = gradient, .residual = {}, .context = {.round = round, .worker = worker}};
  EXPECT_TRUE(codec->Encode(input, payload).ok());
  return {.format = codec->format(), .payload = Payload::Copy(payload), .checksum = worker + 1};
}

ClaimedPayload PushOf(const Scenario& scenario, uint64_t round, uint32_t worker) {
  std::vector<float> values = RandomValues(kElements, 100 * round + worker);
  // Some elements get no gradient before the variance is frozen, and a first one after it.
  if (scenario.optimizer.kind() == wire::OptimizerSpec::ONEBIT_ADAM && round < kUnmasks) {
    std::fill_n(values.begin() + kLateElements[0], kLateElements[1], 0.0f);
  }
  switch (scenario.push) {
    case Scenario::Push::kRaw:
      // One worker has nothing in one round.
      return round == 3 && worker == 1 ? ClaimedPayload{.checksum = 7} : Raw(values);
    case Scenario::Push::kSigns:
      return Signs(values, 0.5f);
    case Scenario::Push::kRows: {
      const RowGrid grid = SpecOf(scenario).grid();
      const Payload rows =
          Payload::Copy(RowsPayload(grid, SomeRows(grid, 0.3, 100 * round + worker), values));
      return {.format = PayloadFormat::kRows, .payload = rows, .checksum = HashBytes(rows.bytes())};
    }
    case Scenario::Push::kLanes:
      return LanesOf(round, worker);
    case Scenario::Push::kFirstRows:
      return Raw({values.begin(), values.begin() + 40 * kRowElements});
  }
  return {};
}

std::string Text(const absl::StatusOr<PushVerdict>& verdict) {
  if (!verdict.ok()) return verdict.status().ToString();
  return *verdict == PushVerdict::kAccepted ? "accepted" : "repeat";
}

std::string Text(const WireValue& value) {
  return absl::StrCat(value.version, "/", static_cast<int>(value.format), "/", value.payload.size(),
                      "/", HashBytes(value.payload.bytes()), "/", value.hash, "/",
                      value.base_version.value_or(999), "/", value.encode_ns, "/",
                      absl::StrJoin(value.contributors, ","), "\n");
}

class Script {
 public:
  explicit Script(const Scenario& scenario) : scenario_(scenario), random_(7) {
    const bool one_at_a_time = scenario.optimizer.kind() == wire::OptimizerSpec::ONEBIT_ADAM;
    for (uint64_t round = 1; round <= kRounds; ++round) {
      if (round == 3) AddReplacement();
      if (round == 4 && scenario.auxiliary == std::nullopt) AddState();
      if (round == 5) AddLeave(2);
      AddRound(round, one_at_a_time ? 0 : 1);
    }
    AddInit();
  }
  const std::vector<Event>& events() const { return events_; }

 private:
  // The pushes of one round in some order, with repeats. A worker may push the next round, too.
  void AddRound(uint64_t round, uint64_t most_ahead) {
    std::vector<uint32_t> workers(scenario_.workers);
    std::iota(workers.begin(), workers.end(), 0u);
    std::shuffle(workers.begin(), workers.end(), random_);
    for (const uint32_t worker : workers) {
      AddPush(round, worker);
      if (random_() % 3 == 0) AddPush(round + most_ahead, worker);
      if (random_() % 2 == 0) AddPush(1 + random_() % round, worker);
      if (round > 1 && random_() % 3 == 0) AddOtherPush(1 + random_() % (round - 1), worker);
      AddPush(round + 3, worker);  // too far ahead
    }
    RepeatAll(round);
    // Some rounds begin before the one before is applied.
    waits_ = !waits_ && random_() % 3 == 0;
    if (scenario_.clipped && !waits_) {
      AddApply();
      for (uint64_t said = round > 1 ? round - 1 : 1; said <= round; ++said) AddScales(said);
    }
    if (waits_) return;
    AddApply();
    RepeatAll(round);
    AddApply();
  }

  // What was refused comes again.
  void RepeatAll(uint64_t round) {
    for (uint32_t worker = 0; worker < scenario_.workers; ++worker) AddPush(round, worker);
  }

  void AddApply() {
    events_.push_back([](Subject& subject) {
      ApplyAll(subject);
      return std::string("applied");
    });
  }

  // Says the scale of a round, and says it again; another one is refused.
  void AddScales(uint64_t round) {
    for (const double scale : {0.5, 0.5, round == 3 ? 0.5 : 0.25}) {
      events_.push_back([=](Subject& subject) {
        std::string said = Text(subject.partition->ScaleRound(round, 1, scale));
        ApplyAll(subject);
        return said;
      });
    }
  }

  static void ApplyAll(Subject& subject) {
    Partition& partition = *subject.partition;
    while (partition.HasCompleteRound()) {
      if (partition.MustMeasureNext()) {
        partition.MeasureNextRound();
      } else {
        partition.ApplyNextRound();
      }
    }
  }

  void AddPush(uint64_t round, uint32_t worker) {
    const ClaimedPayload payload = PushOf(scenario_, round, worker);
    const bool left_out =
        payload.format == PayloadFormat::kAbsent && scenario_.mode == wire::DIST_SYNC;
    const bool first_rows = scenario_.push == Scenario::Push::kFirstRows;
    const size_t elements = first_rows ? 40 * kRowElements : kElements;
    const std::string codec = scenario_.codecs[(round + worker) % scenario_.codecs.size()];
    std::optional<wire::Hyper> hyper;
    if (worker > 0 && round % 2 == 0) {
      hyper.emplace();
      hyper->set_learning_rate(0.01 * worker);
      hyper->set_weight_decay(0.1);
      if (round == 4) hyper->set_momentum(0.5);
    }
    const bool clipped = scenario_.clipped;
    events_.push_back([=](Subject& subject) {
      Partition& partition = *subject.partition;
      // A worker of 1-bit Adam knows what its pull said.
      const bool momentum = partition.MomentumOf(partition.version()).has_value();
      auto change = subject.codecs.Find(codec);
      EXPECT_TRUE(change.ok()) << change.status();
      return Text(partition.Push(round, worker, elements, payload, *change, hyper,
                                 left_out   ? PushedAs::kNothing
                                 : clipped  ? PushedAs::kClippedGradient
                                 : momentum ? PushedAs::kMomentum
                                            : PushedAs::kGradient,
                                 momentum && !left_out && round >= kUnmasks
                                     ? std::span<const uint32_t>(kLateElements)
                                     : std::span<const uint32_t>()));
    });
  }

  // The same number again, with other bytes.
  void AddOtherPush(uint64_t round, uint32_t worker) {
    events_.push_back([=](Subject& subject) {
      return Text(subject.partition->Push(round, worker, kElements,
                                          Raw(std::vector<float>(kElements, 0.25f))));
    });
  }

  void AddReplacement() {
    wire::OptimizerSpec spec = scenario_.optimizer;
    spec.set_learning_rate(0.05);
    events_.push_back([spec](Subject& subject) {
      subject.partition->SetOptimizer(MakeOptimizer(spec));
      return std::string("set");
    });
  }

  void AddState() {
    for (const uint64_t load : {2, 1}) {
      events_.push_back([load](Subject& subject) {
        wire::OptimizerState state;
        state.set_tensor(1);
        subject.partition->ShareState(&state);  // fills in kind and number
        state.set_load(load);
        state.set_updates(10 + load);
        return subject.partition->PutState(state, Raw(RandomValues(kElements, load))).ToString();
      });
    }
  }

  void AddLeave(uint32_t worker) {
    events_.push_back(
        [=](Subject& subject) { return subject.partition->Leave(worker, 0).ToString(); });
  }

  void AddInit() {
    for (const uint64_t seed : {1, 2}) {
      const uint64_t checksum = Raw(RandomValues(kElements, seed)).checksum;
      const PartitionSpec spec = SpecOf(scenario_);
      events_.push_back([=](Subject& subject) {
        return subject.partition->CheckRepeatedInit(spec, checksum).ToString();
      });
    }
  }

  const Scenario scenario_;
  std::mt19937_64 random_;
  std::vector<Event> events_;
  bool waits_ = false;  // the round before is complete, and not applied
};

}  // namespace

wire::OptimizerSpec Rule(wire::OptimizerSpec::Kind kind, uint64_t freeze_after) {
  wire::OptimizerSpec spec;
  spec.set_kind(kind);
  spec.set_learning_rate(0.1);
  spec.set_momentum(kind == wire::OptimizerSpec::SGD ? 0.9 : 0);
  spec.set_weight_decay(0.01);
  spec.set_beta1(0.9);
  spec.set_beta2(0.99);
  spec.set_epsilon(1e-8);
  spec.set_average(true);
  spec.set_freeze_after(freeze_after);
  return spec;
}

Subject MakeSubject(const Scenario& scenario) {
  Subject subject;
  subject.waiting = std::make_shared<WaitingBytes>(scenario.most_waiting);
  PartitionSpec spec = SpecOf(scenario);
  spec.waiting = subject.waiting;
  subject.partition =
      Partition::Create(spec, Raw(RandomValues(kElements, 1)), MakeOptimizer(scenario.optimizer))
          .value();
  return subject;
}

std::string Answers(Subject& subject) {
  Partition& partition = *subject.partition;
  std::string text = absl::StrCat(partition.version(), " ", partition.HasCompleteRound(), " ",
                                  subject.waiting->bytes(), " ", partition.slowest(), "\n");
  for (uint64_t version = partition.version(); version + 2 > partition.version(); --version) {
    const absl::Status held = partition.CheckHeld(version);
    absl::StrAppend(&text, held.ToString(), "\n");
    if (held.ok()) {
      absl::StrAppend(&text, Text(partition.Share(version)));
      absl::StrAppend(&text, Text(partition.Share(version, version - 1)));
      const std::vector<uint32_t> rows = {0, 3, 50, 95};
      absl::StrAppend(&text, Text(partition.ShareRows(version, rows)));
    }
    if (version == 0) break;
  }
  for (uint32_t tensor = 0; tensor <= 3; ++tensor) {
    wire::OptimizerState state;
    state.set_tensor(tensor);
    absl::StrAppend(&text, Text(partition.ShareState(&state)), state.ShortDebugString(), "\n");
  }
  absl::StrAppend(&text, partition.measured());
  for (uint64_t round = partition.measured(); round + 2 > partition.measured(); --round) {
    const absl::StatusOr<double> norm2 = partition.Norm2(round);
    absl::StrAppend(&text, " ", norm2.ok() ? absl::StrCat(*norm2) : norm2.status().ToString());
    if (round == 0) break;
  }
  const auto momentum = partition.MomentumOf(partition.version());
  absl::StrAppend(&text, momentum.has_value() ? momentum->ShortDebugString() : "none", "\n");
  for (uint32_t worker = 0; worker < partition.spec().num_workers; ++worker) {
    absl::StrAppend(&text, partition.ReadsFrom(worker), " ", partition.CountedUpTo(worker), "\n");
  }
  absl::StrAppend(&text, partition.DescribeWait(partition.version() + 1, 9), "\n",
                  HashBytes(std::as_bytes(partition.weights())), "\n",
                  HashBytes(std::as_bytes(partition.seen())), "\n");
  return text;
}

std::vector<Event> EventsOf(const Scenario& scenario) { return Script(scenario).events(); }

}  // namespace slimps
