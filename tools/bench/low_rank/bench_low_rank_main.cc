// SPDX-License-Identifier: Apache-2.0
// Times one worker's step of powersgd on one matrix, with error feedback and on one thread: both
// phases, the server's orthogonalisation between them, the residual and the payloads. Prints the
// median milliseconds of a step.
//
//   bench_low_rank --rows=4096 --columns=4096 --rank=4 --runs=5
#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <iostream>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "compress/codec/catalogue/registry.h"
#include "compress/codec/lowrank/orthonormal.h"
#include "compress/codec/phases.h"
#include "gflags/gflags.h"
#include "proto/base/status_macros.h"
#include "tools/bench/codec/bench_data.h"
#include "tools/bench/stopwatch.h"

DEFINE_uint32(rows, 4096, "rows of the matrix");
DEFINE_uint32(columns, 4096, "columns of the matrix");
DEFINE_uint32(rank, 4, "of powersgd");
DEFINE_uint32(runs, 5, "steps that are timed");

namespace slimps {
namespace {

constexpr uint32_t kWarmUp = 2;

// A worker that is alone in its job. Thread-compatible.
class Worker final {
 public:
  Worker(std::unique_ptr<Codec> codec, std::array<int64_t, 2> shape)
      : codec_(std::move(codec)),
        shape_(shape),
        elements_(static_cast<size_t>(shape[0] * shape[1])),
        keys_(codec_->phases()->AuxiliaryKeys(shape_)),
        data_(elements_),
        part_elements_(codec_->phases()->PartitionElements(
            shape_, {.servers = 1, .usual_elements = size_t{1} << 18, .max_elements = elements_})),
        memory_(keys_.empty() ? 0 : keys_.back().elements()) {}

  bool sends_factors() const { return !keys_.empty(); }

  absl::Status Step(uint64_t round) {
    const std::span<const float> gradient = data_.OfRound(elements_, round).values;
    const std::span<float> residual = data_.Floats(BenchData::kResidual, elements_);
    std::vector<PhasedPart> parts;
    for (size_t at = 0; at < elements_; at += part_elements_) {
      const size_t size = std::min(part_elements_, elements_ - at);
      parts.push_back({size, gradient.subspan(at, size), residual.subspan(at, size)});
    }
    const auto run = codec_->phases()->BeginExchange({.shape = shape_,
                                                      .parts = parts,
                                                      .memory = memory_,
                                                      .context = {.key = 1, .round = round}});
    for (size_t phase = 0; phase < keys_.size(); ++phase) {
      const AuxiliaryShape& key = keys_[phase];
      std::vector<float> factor(key.elements());
      SLIMPS_RETURN_IF_ERROR(run->Contribute(phase, factor));
      if (key.combine == Combine::kOrthogonalise) {
        Orthonormalise(key.rows, key.columns, round, factor);
      }
      SLIMPS_RETURN_IF_ERROR(run->Take(phase, factor, std::array<uint32_t, 1>{0}));
    }
    for (size_t part = 0; part < parts.size(); ++part) {
      if (!run->Sends(part)) continue;
      const auto payload = data_.Bytes(BenchData::kPayload, run->MaxPayloadBytes(part));
      SLIMPS_RETURN_IF_ERROR(run->Write(part, payload).status());
    }
    return absl::OkStatus();
  }

 private:
  const std::unique_ptr<Codec> codec_;
  const std::array<int64_t, 2> shape_;
  const size_t elements_;
  const std::vector<AuxiliaryShape> keys_;
  BenchData data_;
  const size_t part_elements_;
  std::vector<float> memory_;
};

absl::Status Run() {
  SLIMPS_ASSIGN_OR_RETURN(const CodecSpec spec,
                          ParseCodecSpec(absl::StrCat("powersgd:rank=", FLAGS_rank)));
  SLIMPS_ASSIGN_OR_RETURN(std::unique_ptr<Codec> codec, MakeCodec(spec));
  Worker worker(std::move(codec), {FLAGS_rows, FLAGS_columns});
  if (!worker.sends_factors()) {
    return absl::InvalidArgumentError(
        absl::StrCat("rank ", FLAGS_rank, " does not shrink a matrix of ", FLAGS_rows, " x ",
                     FLAGS_columns, ": expected a lower rank or a larger matrix"));
  }
  std::vector<double> times;
  for (uint32_t round = 1; round <= kWarmUp + FLAGS_runs; ++round) {
    const double begin = SecondsNow(/*threads=*/1);
    SLIMPS_RETURN_IF_ERROR(worker.Step(round));
    if (round > kWarmUp) times.push_back(1e3 * (SecondsNow(1) - begin));
  }
  std::printf("%.6f\n", Median(times));
  return absl::OkStatus();
}

}  // namespace
}  // namespace slimps

int main(int argc, char** argv) {
  gflags::ParseCommandLineFlags(&argc, &argv, /*remove_flags=*/true);
  if (FLAGS_rows == 0 || FLAGS_columns == 0 || FLAGS_runs == 0) {
    std::cerr << "bench_low_rank: expected rows, columns and runs of 1 or more\n";
    return 2;
  }
  const absl::Status status = slimps::Run();
  if (!status.ok()) std::cerr << "bench_low_rank: " << status.message() << '\n';
  return status.ok() ? 0 : 2;
}
