// SPDX-License-Identifier: Apache-2.0
#include "tools/bench/codec/model_table.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "compress/format/decode.h"
#include "compress/format/format.h"
#include "compress/kernels/kernels.h"
#include "proto/base/status_macros.h"
#include "tools/bench/codec/encoding.h"
#include "tools/bench/models/gradient_maker.h"
#include "tools/bench/stopwatch.h"

namespace slimps {
namespace {

std::vector<Partition> Cut(std::span<const ModelTensor> tensors) {
  std::vector<Partition> partitions;
  size_t offset = 0, numbers = 0;
  for (size_t key = 0; key < tensors.size(); ++key) {
    size_t rest = tensors[key].elements();
    for (uint32_t index = 0; rest > 0; ++index) {
      const size_t elements = std::min(rest, kPartitionElements);
      partitions.push_back({offset,
                            elements,
                            numbers,
                            {.key = key, .partition = index, .layer = tensors[key].layer}});
      offset += elements;
      numbers += elements;
      rest -= elements;
    }
    numbers += BenchData::kSpareElements;
  }
  return partitions;
}

// Validates and adds up the last round's payloads, as a server does.
absl::Status Decode(const Encoding& encoding, const Kernels& kernels, const Team& team,
                    std::span<float> sum) {
  const std::span<const Partition> partitions = encoding.partitions();
  const PayloadFormat format = encoding.codec().format();
  std::vector<absl::Status> checked(partitions.size());
  team.ForEach(partitions.size(), [&](size_t i, size_t /*thread*/) {
    const auto& [offset, elements, numbers, context] = partitions[i];
    checked[i] = ValidatePayload(format, encoding.payload(i), elements);
    if (!checked[i].ok()) return;
    DecodeAddWith(kernels, format, encoding.payload(i), elements, 0, sum.subspan(offset, elements));
  });
  for (const absl::Status& status : checked) SLIMPS_RETURN_IF_ERROR(status);
  return absl::OkStatus();
}

// Writes the tensor's numbers, and behind them the first of them again, for BenchData's shifts.
void MakeRecorded(const GradientMaker& maker, const ModelTensor& tensor, size_t key,
                  std::span<float> numbers) {
  const size_t elements = tensor.elements();
  maker.Make(tensor.gradient, tensor.rows(), tensor.cols(), key, numbers.first(elements));
  for (size_t i = elements; i < numbers.size(); ++i) numbers[i] = numbers[i - elements];
}

}  // namespace

ModelSize SizeOf(std::span<const ModelTensor> tensors) {
  ModelSize size;
  for (const ModelTensor& tensor : tensors) size.elements += tensor.elements();
  size.partitions = Cut(tensors).size();
  return size;
}

std::string_view GradientName(GradientSource source) {
  return source == GradientSource::kDrawn ? "drawn" : "recorded";
}

BenchData ModelData(std::span<const ModelTensor> tensors, GradientSource source) {
  const size_t elements = SizeOf(tensors).elements;
  const size_t all = elements + tensors.size() * BenchData::kSpareElements;
  if (source == GradientSource::kDrawn) return BenchData(all);
  AlignedBuffer buffer = AlignedBuffer::OfFloats(all);
  const GradientMaker maker(/*worker=*/0);
  double square = 0;
  size_t begin = 0;
  for (size_t key = 0; key < tensors.size(); ++key) {
    const size_t length = tensors[key].elements() + BenchData::kSpareElements;
    MakeRecorded(maker, tensors[key], key, buffer.floats().subspan(begin, length));
    begin += length;
    square += static_cast<double>(tensors[key].elements()) * std::pow(tensors[key].gradient.rms, 2);
  }
  const auto factor = static_cast<float>(std::sqrt(static_cast<double>(elements) / square));
  for (float& number : buffer.floats()) number *= factor;
  return BenchData(std::move(buffer));
}

absl::StatusOr<ModelTimes> TimeModel(std::span<const ModelTensor> tensors,
                                     const CodecSetting& setting, const Kernels& kernels,
                                     const Team& team, int rounds, BenchData& data) {
  SLIMPS_ASSIGN_OR_RETURN(
      const auto encoding,
      Encoding::Create(setting, kernels, Feedback::kOfCodec, Cut(tensors), team, data));
  const std::span<float> sum = data.Floats(BenchData::kSum, encoding->elements());
  std::vector<double> encode, decode;
  for (int i = 0; i < rounds; ++i) {
    absl::Status status;
    encode.push_back(TimeRuns(team.threads(), 1, [&] { status.Update(encoding->Run()); }));
    decode.push_back(TimeRuns(team.threads(), 1, [&] {
      if (status.ok()) status.Update(Decode(*encoding, kernels, team, sum));
    }));
    SLIMPS_RETURN_IF_ERROR(status);
  }
  return ModelTimes{Median(encode), Median(decode), encoding->stats().payload_bytes};
}

}  // namespace slimps
