// SPDX-License-Identifier: Apache-2.0
#include "tools/bench/codec/subjects.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "compress/codec/encode_run.h"
#include "compress/format/decode.h"
#include "compress/format/format.h"
#include "compress/format/sum.h"
#include "proto/base/buffer.h"
#include "proto/base/status_macros.h"
#include "proto/slimps.pb.h"
#include "server/round/aggregate.h"
#include "server/round/optimizer.h"
#include "tools/bench/codec/encoding.h"
#include "tools/bench/codec/phased_rounds.h"
#include "tools/bench/codec/references.h"

namespace slimps {
namespace {

// The base of all subjects: a case, threads, memory, and the reference d += s.
class CaseSubject : public Subject {
 public:
  CaseSubject(const Case& c, const Team& team, BenchData& data)
      : case_(c),
        team_(team),
        data_(data),
        partitions_(CutTensor(c.elements, c.threads, c.grid)),
        references_(FindReferences(c.kernels->name)),
        reference_(data.Floats(BenchData::kReference, c.elements)) {}

  size_t gradient_bytes() const override { return case_.workers * reference_bytes(); }
  size_t reference_bytes() const override { return case_.elements * sizeof(float); }

 protected:
  void Add() {
    const std::span<const float> s = data_.Floats(BenchData::kReferenceSource, case_.elements);
    ForPartitions([&](size_t /*i*/, size_t first, size_t count) {
      references_.add(s.data() + first, reference_.data() + first, count);
    });
  }

  // Calls body(i, its first element, its elements) for each partition, on the team's threads.
  template <typename Body>
  void ForPartitions(const Body& body) {
    team_.ForEach(partitions_.size(), [&](size_t i, size_t /*thread*/) {
      body(i, partitions_[i].offset, partitions_[i].elements);
    });
  }

  const Case case_;
  const Team& team_;
  BenchData& data_;
  const std::vector<Partition> partitions_;
  const References& references_;
  const std::span<float> reference_;
};

double SentFraction(const Encoding& encoding, const Case& c) {
  return static_cast<double>(encoding.stats().elements_sent) / static_cast<double>(c.elements);
}

absl::Status Validate(const Encoding& encoding) {
  for (size_t i = 0; i < encoding.partitions().size(); ++i) {
    SLIMPS_RETURN_IF_ERROR(ValidatePayload(encoding.codec().format(), encoding.payload(i),
                                           encoding.partitions()[i].elements));
  }
  return absl::OkStatus();
}

class EncodeSubject final : public CaseSubject {
 public:
  EncodeSubject(const Case& c, const Team& team, BenchData& data,
                std::unique_ptr<Encoding> encoding)
      : CaseSubject(c, team, data), encoding_(std::move(encoding)) {}

  absl::Status Run() override { return encoding_->Run(); }
  void Settle() override { encoding_->Settle(); }
  void RunReference() override {
    if (case_.operation == Operation::kEncodeWithFeedback) return Add();
    ForPartitions([&](size_t /*i*/, size_t first, size_t count) {
      // volatile, so that the compiler cannot drop the unused sum.
      volatile float sum = references_.sum(reference_.data() + first, count);
      static_cast<void>(sum);
    });
  }
  size_t payload_bytes() const override { return encoding_->stats().payload_bytes; }
  double sent_fraction() const override { return SentFraction(*encoding_, case_); }

 private:
  const std::unique_ptr<Encoding> encoding_;
};

class DecodeAddSubject final : public CaseSubject {
 public:
  DecodeAddSubject(const Case& c, const Team& team, BenchData& data,
                   std::unique_ptr<Encoding> encoding)
      : CaseSubject(c, team, data),
        encoding_(std::move(encoding)),
        sum_(data.Floats(BenchData::kSum, c.elements)) {}

  absl::Status Run() override {
    ForPartitions([&](size_t i, size_t first, size_t count) {
      DecodeAddWith(*case_.kernels, encoding_->codec().format(), encoding_->payload(i), count, 0,
                    sum_.subspan(first, count));
    });
    return absl::OkStatus();
  }
  void RunReference() override {
    ForPartitions([&](size_t /*i*/, size_t first, size_t count) {
      references_.multiply(factor_, reference_.data() + first, count);
    });
  }
  size_t payload_bytes() const override { return encoding_->stats().payload_bytes; }
  double sent_fraction() const override { return SentFraction(*encoding_, case_); }

 private:
  const std::unique_ptr<Encoding> encoding_;
  const std::span<float> sum_;
  volatile float factor_ = 1;  // volatile, so that the compiler cannot use the value
};

// One worker's payloads, by partition.
using Payloads = std::vector<AlignedBuffer>;

// A server's work on a complete round: the payloads' sum and SGD with momentum. Two buffers of
// weights take turns, as a server's versions do.
class AggregateSubject final : public CaseSubject {
 public:
  AggregateSubject(const Case& c, const Team& team, BenchData& data, const Encoding& encoding,
                   std::vector<Payloads> payloads, std::shared_ptr<const Optimizer> optimizer)
      : CaseSubject(c, team, data),
        payloads_(std::move(payloads)),
        sent_fraction_(SentFraction(encoding, c)),
        optimizer_(std::move(optimizer)),
        shares_(partitions_.size()) {
    const auto zeros = [&](BenchData::Slot slot) {
      const std::span<float> floats = data.Floats(slot, c.elements);
      std::fill(floats.begin(), floats.end(), 0.0f);
      return floats;
    };
    const std::span<float> weights = zeros(BenchData::kWeights);
    const std::span<float> next = zeros(BenchData::kNextWeights);
    const std::span<float> state = zeros(BenchData::kOptimizerState);
    for (size_t i = 0; i < shares_.size(); ++i) {
      Share& its = shares_[i];
      for (const Payloads& of_worker : payloads_) {
        its.views.push_back({encoding.codec().format(), of_worker[i].bytes()});
      }
      const size_t first = partitions_[i].offset, count = partitions_[i].elements;
      its.input.payloads = its.views;
      its.input.combine = encoding.codec().combine();
      its.input.optimizer = optimizer_.get();
      its.input.step = optimizer_->PlanStep({.contributors = static_cast<uint32_t>(c.workers)});
      its.input.before = its.idle = weights.subspan(first, count);
      its.input.after = next.subspan(first, count);
      its.input.state0 = state.subspan(first, count);
    }
  }

  absl::Status Run() override {
    ForPartitions([&](size_t i, size_t /*first*/, size_t count) {
      auto& [views, input, idle] = shares_[i];
      AggregateRoundWith(*case_.kernels, input, 0, count);
      const std::span<float> written = input.after;
      input.after = idle;
      input.before = idle = written;
    });
    return absl::OkStatus();
  }
  void RunReference() override { Add(); }
  size_t payload_bytes() const override {
    size_t bytes = 0;
    for (const AlignedBuffer& payload : payloads_[0]) bytes += payload.size();
    return bytes;
  }
  double sent_fraction() const override { return sent_fraction_; }

 private:
  // One partition's part.
  struct Share {
    std::vector<PayloadView> views;
    AggregateInput input;
    std::span<float> idle;  // the buffer that the next round overwrites
  };

  const std::vector<Payloads> payloads_;  // by worker
  const double sent_fraction_;
  const std::shared_ptr<const Optimizer> optimizer_;
  std::vector<Share> shares_;
};

class PhasesSubject final : public CaseSubject {
 public:
  PhasesSubject(const Case& c, const Team& team, BenchData& data,
                std::unique_ptr<PhasedRounds> rounds)
      : CaseSubject(c, team, data), rounds_(std::move(rounds)) {}

  absl::Status Run() override { return rounds_->Run(); }
  void RunReference() override { Add(); }
  size_t payload_bytes() const override { return rounds_->contributed_bytes(); }
  double sent_fraction() const override { return 0; }

 private:
  const std::unique_ptr<PhasedRounds> rounds_;
};

absl::StatusOr<std::unique_ptr<Subject>> MakePhases(const Case& c, const Team& team,
                                                    BenchData& data) {
  SLIMPS_ASSIGN_OR_RETURN(auto rounds,
                          PhasedRounds::Create(c.setting, *c.kernels, c.elements, c.grid, data));
  return std::make_unique<PhasesSubject>(c, team, data, std::move(rounds));
}

// Multi-level compression, as GraVAC's workers measure their factors: the payload of a codec is
// made from that of the one before, which sends more.
class LevelsSubject final : public CaseSubject {
 public:
  static absl::StatusOr<std::unique_ptr<Subject>> Create(const Case& c, const Team& team,
                                                         BenchData& data) {
    auto subject = std::unique_ptr<LevelsSubject>(new LevelsSubject(c, team, data));
    for (const int times : {4, 2, 1}) {
      Level& level = subject->levels_.emplace_back();
      SLIMPS_ASSIGN_OR_RETURN(level.codec, MakeCodec(LowerLevel(c.setting, times), *c.kernels));
      for (AlignedBuffer* payload : {&level.payload, &level.anew}) {
        *payload = AlignedBuffer(level.codec->MaxPayloadBytes(c.elements));
      }
    }
    SLIMPS_RETURN_IF_ERROR(subject->CheckEqual());
    return subject;
  }

  absl::Status Run() override {
    FinerPayload finer;
    for (Level& level : levels_) {
      SLIMPS_ASSIGN_OR_RETURN(level.stats, Encode(*level.codec, finer, level.payload.bytes()));
      finer = {.codec = level.codec.get(),
               .payload = level.payload.bytes().first(level.stats.payload_bytes),
               .stats = level.stats};
    }
    return absl::OkStatus();
  }
  void RunReference() override {
    for (Level& level : levels_) {
      anew_status_.Update(Encode(*level.codec, {}, level.anew.bytes()).status());
    }
  }
  size_t gradient_bytes() const override { return reference_bytes(); }
  size_t payload_bytes() const override { return levels_.back().stats.payload_bytes; }
  double sent_fraction() const override {
    return static_cast<double>(levels_.back().stats.elements_sent) /
           static_cast<double>(case_.elements);
  }

 private:
  struct Level {
    std::unique_ptr<Codec> codec;
    AlignedBuffer payload, anew;
    EncodeStats stats;
  };

  LevelsSubject(const Case& c, const Team& team, BenchData& data)
      : CaseSubject(c, team, data), x_(data.Floats(BenchData::kResidual, c.elements)) {
    data.FillAged(x_);
  }

  absl::StatusOr<EncodeStats> Encode(const Codec& codec, const FinerPayload& finer,
                                     std::span<std::byte> payload) {
    const EncodeInput input = {.gradient = x_,
                               .residual = {},
                               .gradient_bound = BenchData::kAgedBound,
                               .context = {.key = 1},
                               .finer = finer};
    return codec.Encode(input, payload, workspace_);
  }

  // Figures of payloads that differ would compare nothing.
  absl::Status CheckEqual() {
    SLIMPS_RETURN_IF_ERROR(Run());
    RunReference();
    SLIMPS_RETURN_IF_ERROR(anew_status_);
    for (const Level& level : levels_) {
      const auto made = level.payload.bytes().first(level.stats.payload_bytes);
      if (!std::ranges::equal(made, level.anew.bytes().first(made.size()))) {
        return absl::InternalError(level.codec->spec().ToString() + ": payloads differ");
      }
    }
    return absl::OkStatus();
  }

  const std::span<float> x_;
  EncodeWorkspace workspace_;
  std::vector<Level> levels_;
  absl::Status anew_status_;
};

absl::StatusOr<std::unique_ptr<Subject>> MakeAggregate(const Case& c, const Team& team,
                                                       BenchData& data,
                                                       std::unique_ptr<Encoding> encoding) {
  std::vector<Payloads> payloads;
  for (size_t worker = 0; worker < c.workers; ++worker) {
    const bool agreed = encoding->codec().phases() != nullptr;
    SLIMPS_RETURN_IF_ERROR(agreed ? encoding->RunFirstAs(static_cast<uint32_t>(worker))
                                  : encoding->Run());
    SLIMPS_RETURN_IF_ERROR(Validate(*encoding));
    Payloads& its = payloads.emplace_back();
    for (size_t i = 0; i < encoding->partitions().size(); ++i) {
      const std::span<const std::byte> payload = encoding->payload(i);
      std::ranges::copy(payload, its.emplace_back(payload.size()).bytes().begin());
    }
  }
  wire::OptimizerSpec spec;
  spec.set_kind(wire::OptimizerSpec::SGD);
  spec.set_learning_rate(1e-6);  // so small that the weights hardly change, however long this runs
  spec.set_momentum(0.9);
  spec.set_average(true);
  SLIMPS_ASSIGN_OR_RETURN(std::shared_ptr<const Optimizer> optimizer, Optimizer::Create(spec));
  return std::make_unique<AggregateSubject>(c, team, data, *encoding, std::move(payloads),
                                            std::move(optimizer));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Subject>> MakeSubject(const Case& c, const Team& team,
                                                     BenchData& data) {
  if (c.operation == Operation::kPhases) return MakePhases(c, team, data);
  if (c.operation == Operation::kLevels) return LevelsSubject::Create(c, team, data);
  // The payloads to decode come from an encoding with error feedback if the codec wants a residual.
  const Feedback feedback = c.operation == Operation::kEncodeWithFeedback ? Feedback::kOn
                            : c.operation == Operation::kEncode           ? Feedback::kOff
                                                                          : Feedback::kOfCodec;
  SLIMPS_ASSIGN_OR_RETURN(auto encoding,
                          Encoding::Create(c.setting, *c.kernels, feedback,
                                           CutTensor(c.elements, c.threads, c.grid), team, data));
  switch (c.operation) {
    case Operation::kEncodeWithFeedback:
    case Operation::kEncode:
      return std::make_unique<EncodeSubject>(c, team, data, std::move(encoding));
    case Operation::kDecodeAdd:
      SLIMPS_RETURN_IF_ERROR(Validate(*encoding));
      return std::make_unique<DecodeAddSubject>(c, team, data, std::move(encoding));
    case Operation::kAggregate:
      return MakeAggregate(c, team, data, std::move(encoding));
    case Operation::kPhases:
    case Operation::kLevels:
      break;  // made above
  }
  return absl::InternalError("unknown operation");
}

}  // namespace slimps
