// SPDX-License-Identifier: Apache-2.0
// For the numpy references: encodes fp32 gradients from standard input, round after round, and
// writes the results to standard output.
//
//   codec_tool SPEC [name=value ...] < gradients > results
//
//   elements=N  of one gradient; the input holds one or more, and the rounds use them in turn
//   rounds=1  first_round=1  grad_scale=1  key=0  worker=0  partition=0  layer=0 (LayerKind)
//   row_elements=0  skip=0  where the partition's rows lie (RowGrid); 0: no shape
//   residual=codec|on|off  error feedback as the codec prefers, always, or never
//   exchange=off|on  whole exchanges of one worker alone (phases.h), whose tensor is the partition
//   kernels=all|one  all sets that run here, which must give the same bits, or only scalar
//
// A round's result, little-endian: PayloadFormat, payload bytes, elements sent, elements of the
// residual, elements of the momentum (uint64); |x|^2, |decode(x)|^2, |x - decode(x)|^2 (fp64);
// payload; what it decodes to; residual; momentum.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <iterator>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "compress/codec/codec.h"
#include "compress/codec/encode_run.h"
#include "compress/codec/phases.h"
#include "compress/format/format.h"
#include "compress/kernels/kernels.h"
#include "proto/base/status_macros.h"

namespace slimps {
namespace {

using Arguments = std::map<std::string, std::string>;

uint64_t Number(const Arguments& arguments, const std::string& name) {
  return std::strtoull(arguments.at(name).c_str(), nullptr, 0);
}

template <typename T>
void Append(const T* values, size_t count, std::string* out) {
  out->append(reinterpret_cast<const char*>(values), count * sizeof(T));
}

RowGrid Grid(const Arguments& arguments, size_t elements) {
  const size_t row_elements = Number(arguments, "row_elements");
  return row_elements == 0 ? RowGrid{}
                           : RowGrid::At(Number(arguments, "skip"), elements, row_elements);
}

std::vector<float> ReadGradients() {
  const std::string input((std::istreambuf_iterator<char>(std::cin)), {});
  std::vector<float> gradients(input.size() / sizeof(float));
  std::copy_n(input.data(), gradients.size() * sizeof(float),
              reinterpret_cast<char*>(gradients.data()));
  return gradients;
}

absl::Status AppendRound(const Codec& codec, const EncodeInput& input, const EncodeStats& stats,
                         std::span<const std::byte> payload, std::string* out) {
  const size_t n = input.gradient.size();
  SLIMPS_RETURN_IF_ERROR(ValidatePayload(codec.format(), payload, n));
  std::vector<float> decoded(n);
  Decode(codec.format(), payload, n, 0, decoded);
  const uint64_t counts[] = {static_cast<uint64_t>(codec.format()), stats.payload_bytes,
                             stats.elements_sent, input.residual.size(), input.momentum.size()};
  const double norms[] = {stats.input_norm2, stats.decoded_norm2, stats.error_norm2};
  Append(counts, std::size(counts), out);
  Append(norms, std::size(norms), out);
  Append(payload.data(), payload.size(), out);
  Append(decoded.data(), n, out);
  Append(input.residual.data(), input.residual.size(), out);
  Append(input.momentum.data(), input.momentum.size(), out);
  return absl::OkStatus();
}

// Encodes as the only worker of an exchange with phases. `memory` is what the codec keeps.
absl::StatusOr<EncodeStats> Exchange(const Codec& codec, const EncodeInput& input,
                                     std::vector<float>* memory, std::span<std::byte> payload) {
  if (codec.phases() == nullptr) return absl::InvalidArgumentError("the codec has no phases");
  const std::vector<int64_t> shape = {static_cast<int64_t>(input.gradient.size())};
  const std::vector<AuxiliaryShape> keys = codec.phases()->AuxiliaryKeys(shape);
  memory->resize(keys.back().elements());
  const PhasedPart part = {
      .elements = input.gradient.size(), .gradient = input.gradient, .residual = input.residual};
  const auto run = codec.phases()->BeginExchange({.shape = shape,
                                                  .parts = {&part, 1},
                                                  .memory = *memory,
                                                  .grad_scale = input.grad_scale,
                                                  .context = input.context});
  size_t bytes = 0;
  for (size_t phase = 0; phase <= keys.size(); ++phase) {
    if (bytes == 0 && run->may_write()) {
      SLIMPS_ASSIGN_OR_RETURN(bytes, run->Write(0, payload));
    }
    if (phase == keys.size()) break;
    std::vector<float> mine(keys[phase].elements());
    SLIMPS_RETURN_IF_ERROR(run->Contribute(phase, mine));
    SLIMPS_RETURN_IF_ERROR(run->Take(phase, mine, std::vector<uint32_t>{input.context.worker}));
  }
  EncodeStats stats = run->StatsOf(0);
  stats.payload_bytes = bytes;
  return stats;
}

// Returns the results of all rounds.
absl::StatusOr<std::string> Run(const std::string& text, const Kernels& kernels,
                                const Arguments& arguments, std::span<const float> gradients) {
  SLIMPS_ASSIGN_OR_RETURN(const CodecSpec spec, ParseCodecSpec(text));
  SLIMPS_ASSIGN_OR_RETURN(const std::unique_ptr<Codec> codec, MakeCodec(spec, kernels));
  const size_t n = Number(arguments, "elements");
  if (n == 0 || gradients.empty() || gradients.size() % n != 0)
    return absl::InvalidArgumentError("the input is not one or more gradients");
  const std::string& feedback = arguments.at("residual");
  const bool has_residual = feedback == "on" || (feedback == "codec" && codec->wants_residual());
  std::vector<float> residual(has_residual ? n : 0), momentum(codec->wants_momentum() ? n : 0);
  std::vector<float> memory;
  std::vector<std::byte> payload(codec->MaxPayloadBytes(n));
  EncodeWorkspace workspace;
  std::string out;
  for (uint64_t round = 0; round < Number(arguments, "rounds"); ++round) {
    const size_t row = round % (gradients.size() / n);
    const EncodeInput input = {
        .gradient = gradients.subspan(row * n, n),
        .residual = residual,
        .momentum = momentum,
        .grad_scale = std::strtof(arguments.at("grad_scale").c_str(), nullptr),
        .context = {.key = Number(arguments, "key"),
                    .partition = static_cast<uint32_t>(Number(arguments, "partition")),
                    .round = Number(arguments, "first_round") + round,
                    .worker = static_cast<uint32_t>(Number(arguments, "worker")),
                    .layer = static_cast<LayerKind>(Number(arguments, "layer")),
                    .grid = Grid(arguments, n)}};
    SLIMPS_ASSIGN_OR_RETURN(const EncodeStats stats,
                            arguments.at("exchange") == "on"
                                ? Exchange(*codec, input, &memory, payload)
                                : codec->Encode(input, payload, workspace));
    SLIMPS_RETURN_IF_ERROR(
        AppendRound(*codec, input, stats,
                    std::span<const std::byte>(payload).first(stats.payload_bytes), &out));
  }
  return out;
}

absl::Status RunAll(const std::string& text, const Arguments& arguments) {
  const std::vector<float> gradients = ReadGradients();
  std::string first;
  for (const Kernels* kernels : AllKernels()) {
    if (!kernels->runs_here()) continue;
    SLIMPS_ASSIGN_OR_RETURN(const std::string out, Run(text, *kernels, arguments, gradients));
    if (first.empty()) first = out;
    if (out != first)
      return absl::InternalError("other bits from the kernels " + std::string(kernels->name));
    if (arguments.at("kernels") == "one") break;
  }
  std::fwrite(first.data(), 1, first.size(), stdout);
  return absl::OkStatus();
}

}  // namespace
}  // namespace slimps

int main(int argc, char** argv) {
  if (argc == 1) {
    std::cerr << "usage: codec_tool SPEC [name=value ...] < gradients > results\n";
    return 2;
  }
  slimps::Arguments arguments = {{"kernels", "all"},    {"rounds", "1"},       {"first_round", "1"},
                                 {"grad_scale", "1"},   {"key", "0"},          {"worker", "0"},
                                 {"partition", "0"},    {"layer", "0"},        {"elements", "0"},
                                 {"residual", "codec"}, {"row_elements", "0"}, {"skip", "0"},
                                 {"exchange", "off"}};
  for (int i = 2; i < argc; ++i) {
    const std::string argument = argv[i];
    const size_t equals = argument.find('=');
    const auto known = arguments.find(argument.substr(0, equals));
    if (equals == std::string::npos || known == arguments.end()) {
      std::cerr << "codec_tool: what is '" << argument << "'?\n";
      return 2;
    }
    known->second = argument.substr(equals + 1);
  }
  const absl::Status status = slimps::RunAll(argv[1], arguments);
  if (!status.ok()) std::cerr << argv[1] << ": " << status << "\n";
  return status.ok() ? 0 : 1;
}
