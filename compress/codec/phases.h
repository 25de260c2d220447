// SPDX-License-Identifier: Apache-2.0
// Codecs whose exchange has several phases. In each phase every worker contributes to an auxiliary
// key, whose server combines what they contribute, and all workers take the answer. After the last
// phase each worker writes payloads for the partitions of the tensor itself.
//
//   const PhasedCodec* phases = codec.phases();               // nullptr: payloads alone
//   auto keys = phases->AuxiliaryKeys(shape);                 // none: this tensor travels as it is
//   auto run = phases->BeginExchange({.parts = parts, .memory = memory, ...});
//   for (size_t phase = 0; phase < keys.size(); ++phase) {
//     if (run->may_write()) ... writes the payloads, as below, once ...
//     if (input.contributes()) SLIMPS_RETURN_IF_ERROR(run->Contribute(phase, out));
//     ... sends `out`, or nothing, and awaits what the workers' contributions combine to ...
//     SLIMPS_RETURN_IF_ERROR(run->Take(phase, combined, contributors));
//   }
//   for (size_t i = 0; i < parts.size(); ++i) if (run->Sends(i)) run->Write(i, payload);
//
// Pure: no messages, no threads.
#ifndef SLIMPS_COMPRESS_CODEC_PHASES_H_
#define SLIMPS_COMPRESS_CODEC_PHASES_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "compress/codec/codec.h"
#include "proto/base/key.h"

namespace slimps {

// The key of one phase: `rows` vectors of `columns` elements.
struct AuxiliaryShape {
  std::string_view name;  // "p": the key is "#p:s:conv1.weight"
  Combine combine = Combine::kSum;
  size_t rows = 1;
  size_t columns = 1;

  size_t elements() const { return rows * columns; }
};

// One partition of a tensor, as one worker has it. Both spans are empty if the worker contributes
// nothing in this round.
struct PhasedPart {
  size_t elements = 0;
  std::span<const float> gradient;
  std::span<float> residual;  // as EncodeInput::residual; for codecs with wants_residual()
};

struct PhasedInput {
  std::span<const int64_t> shape;     // of the tensor; AuxiliaryKeys has keys for it
  std::span<const PhasedPart> parts;  // by partition; they outlive the run
  // What the codec keeps of the tensor from round to round, the same for all workers, if it
  // wants_memory(): as many numbers as the last phase's key has, or more where another codec of the
  // same kind needs more. Zeros at first. It outlives the run.
  std::span<float> memory;
  float grad_scale = 1.0f;
  EncodeContext context;  // `partition` means nothing

  bool contributes() const { return !parts.empty() && !parts[0].gradient.empty(); }
};

// One worker's part in the exchange of one tensor in one round. Thread-compatible.
class PhasedRun {
 public:
  virtual ~PhasedRun() = default;

  // Writes this worker's contribution to a phase. After an error the states are of no use.
  // InvalidArgument: the numbers have become too large for fp32.
  // REQUIRES: the input contributes(); Take has run for the phases before, and Write for every part
  // if may_write(); `out` has AuxiliaryShape::elements() elements.
  [[nodiscard]] virtual absl::Status Contribute(size_t phase, std::span<float> out) = 0;

  // True once the gradients are read for the last time, if payloads are not written early.
  virtual bool has_read_gradients() const = 0;

  // True once Write may be called: after the last phase, or earlier if the phases to come serve the
  // next round alone.
  virtual bool may_write() const = 0;

  // Takes what the workers' contributions to a phase combine to.
  // InvalidArgument: it is not finite.
  [[nodiscard]] virtual absl::Status Take(size_t phase, std::span<const float> combined,
                                          std::span<const uint32_t> contributors) = 0;

  // True if this worker sends a payload for the partition; else it sends ABSENT.
  // REQUIRES: may_write().
  virtual bool Sends(size_t part) const = 0;

  // Returns the most bytes that Write takes.
  virtual size_t MaxPayloadBytes(size_t part) const = 0;

  // Writes the partition's payload, of the codec's format(), to the front of `payload`, and returns
  // its bytes.
  // InvalidArgument: the gradient has what no payload carries (names the element), and no
  // Contribute has looked at it. The states are then of no use.
  // REQUIRES: may_write(); payload.size() >= MaxPayloadBytes(part).
  [[nodiscard]] virtual absl::StatusOr<size_t> Write(size_t part, std::span<std::byte> payload) = 0;

  // Returns the sums over one partition of this worker's gradient. Its payload_bytes mean nothing.
  // REQUIRES: the input contributes(); may_write(), and Write has run if Sends(part).
  virtual EncodeStats StatsOf(size_t part) const = 0;
};

// What a job makes of partitions.
struct PartitionWishes {
  size_t servers = 1;
  size_t usual_elements = 0;  // of a partition, without the codec
  size_t max_elements = 0;    // a partition that a message can hold
};

// Thread-safe: constant after construction.
class PhasedCodec {
 public:
  virtual ~PhasedCodec() = default;

  // Returns the keys of the phases, in their order. None: a tensor of this shape travels as it
  // would without the codec.
  virtual std::vector<AuxiliaryShape> AuxiliaryKeys(std::span<const int64_t> shape) const = 0;

  virtual bool wants_memory() const = 0;

  // True if Codec::Encode, which has no phases, is of use: for the change of the weights, in which
  // no worker has a part.
  virtual bool encodes_alone() const = 0;

  // Returns how much of |x|^2 exchanges of the tensor x alone keep, at [k - 1] with the first k
  // rows of each phase's key, for every k up to this codec's: what those codecs do that differ in
  // the rows alone. x keeps its values. Throws std::bad_alloc.
  // REQUIRES: !encodes_alone(), the tensor has keys, and x is finite.
  virtual std::vector<double> KeptNorm2(std::span<const int64_t> /*shape*/, KeyId /*key*/,
                                        std::span<float> /*x*/) const {
    return {};
  }

  // Returns how many elements a partition of a tensor that has keys should have, 1 or more.
  virtual size_t PartitionElements(std::span<const int64_t> shape,
                                   const PartitionWishes& wishes) const = 0;

  // REQUIRES: the tensor has keys.
  virtual std::unique_ptr<PhasedRun> BeginExchange(const PhasedInput& input) const = 0;
};

}  // namespace slimps

#endif  // SLIMPS_COMPRESS_CODEC_PHASES_H_
