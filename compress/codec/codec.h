// SPDX-License-Identifier: Apache-2.0
// A codec turns a gradient into a payload: it selects or quantises. A format (compress/format)
// defines the payload's layout, and the format is all that a server knows.
//
//   auto codec = MakeCodec("1bit:scaling=l1");
//   AlignedBuffer bit_buf((*codec)->MaxPayloadBytes(n));
//   EncodeWorkspace workspace;                                   // kept for the next encoding
//   auto stats = (*codec)->Encode({.gradient = g, .residual = e}, bit_buf.bytes(), workspace);
//
// Error feedback (x = g + e; e = x - decode(encode(x))) happens inside the encoding's own passes
// over memory when a residual is given. Every codec does this. "none" with a residual sends g + e
// and leaves zeros, so a raw push clears a residual.
//
// Thread-safe: a codec holds options only. One thread runs an encoding, which needs a workspace of
// its own.
#ifndef SLIMPS_COMPRESS_CODEC_CODEC_H_
#define SLIMPS_COMPRESS_CODEC_CODEC_H_

#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "compress/format/format.h"
#include "compress/format/row_grid.h"
#include "compress/kernels/momentum.h"
#include "proto/base/key.h"

namespace slimps {

class Codec;
class EncodeWorkspace;  // compress/codec/encode_run.h
class PhasedCodec;      // compress/codec/phases.h
struct Kernels;         // compress/kernels/kernels.h

// A codec's name and options. Thread-compatible.
struct CodecSpec {
  std::string name;                            // "none", "1bit", "topk", ...: registry.h lists them
  std::map<std::string, std::string> options;  // as written

  // Returns "1bit:scaling=l1". ParseCodecSpec of that text returns an equal spec.
  std::string ToString() const;

  friend bool operator==(const CodecSpec&, const CodecSpec&) = default;
};

// Parses "NAME" or "NAME:option=value,option=value".
// InvalidArgument: the text has another form, or a name or option is unknown (the message gives the
// nearest valid one).
[[nodiscard]] absl::StatusOr<CodecSpec> ParseCodecSpec(std::string_view text);

// The kind of layer that a tensor belongs to; some codecs treat kinds differently. The values equal
// wire::LayerKind's.
enum class LayerKind : uint8_t {
  kOther = 0,
  kConvolution = 1,
  kDense = 2,
  kRecurrent = 3,
  kEmbedding = 4,
  kNormalisation = 5,
};

// How a server combines the workers' decoded payloads. It is a property of a key and is set with
// the key's codec.
enum class Combine : uint8_t {
  kSum = 0,
  kMajority = 1,  // the sign of the sum, 0 for a tie
  // For auxiliary keys only (InitItem.auxiliary in proto/slimps.proto).
  kMaximum = 2,        // for each element the largest of zero and what workers sent
  kOrthogonalise = 3,  // the sum, whose rows are then made orthonormal
};

// Identifies a push. Random numbers and schedules depend on this and on the codec's options alone,
// so runs repeat bit for bit.
struct EncodeContext {
  KeyId key = 0;
  uint32_t partition = 0;
  uint64_t round = 0;  // from 1; 0 if unknown
  uint32_t worker = 0;
  LayerKind layer = LayerKind::kOther;

  // How the tensor's rows lie in the partition, for codecs that see a matrix. No elements: the
  // shape is unknown, and nothing is a matrix.
  RowGrid grid = {};
};

// Sums over all elements, gathered by the encoding's own passes. Squares are summed in fp32 within
// blocks of kBlockElements; a sum that exceeds fp32 is infinite.
struct EncodeStats {
  size_t payload_bytes = 0;
  size_t elements_sent = 0;  // elements that the payload carries; the others decode to 0
  double input_norm2 = 0;    // |x|^2
  double decoded_norm2 = 0;  // |decode(x)|^2
  double error_norm2 = 0;    // |x - decode(x)|^2, the new residual's norm if there is one

  // Returns |C(x)|^2 / |x|^2, or 1 for x = 0. Source: GraVAC, section 3.
  double compression_gain() const { return input_norm2 == 0 ? 1 : decoded_norm2 / input_norm2; }

  // Returns a bound of every |residual[i]| after the encoding.
  float ResidualBound() const;

  // A bound of every |momentum[i]| if the codec wants_momentum(); infinity if unknown.
  float momentum_bound = std::numeric_limits<float>::infinity();
};

// What a codec that compresses less has made of the same x, for multi-level compression (GraVAC,
// section IV-C): compressing it further reads few elements instead of all.
//
//   auto made = lower->Encode(input, bit_buf, workspace);
//   input.finer = {.codec = lower, .payload = bit_buf.first(made->payload_bytes), .stats = *made};
//   higher->Encode(input, other_buf, workspace);             // the same bytes as without `finer`
struct FinerPayload {
  const Codec* codec = nullptr;  // nullptr: there is none
  std::span<const std::byte> payload = {};
  EncodeStats stats = {};
};

struct EncodeInput {
  std::span<const float> gradient;

  // Updated in place; as long as `gradient`. Empty: no error feedback.
  std::span<float> residual;

  // The second state of codecs with wants_momentum(): updated in place, as long as `gradient`,
  // zeros at first.
  std::span<float> momentum = {};

  float grad_scale = 1.0f;  // the codec sees gradient * grad_scale + residual

  // Upper bounds of every |gradient[i]|, |residual[i]| and |momentum[i]|; infinity if unknown. If
  // they prove that every x can be encoded, Encode skips the pass over memory that looks for NaN,
  // infinity and overflow. RawKernels::copy_bounded returns the gradient's bound at no cost while
  // it copies a gradient. EncodeStats has the other two.
  float gradient_bound = std::numeric_limits<float>::infinity();
  float residual_bound = std::numeric_limits<float>::infinity();
  float momentum_bound = std::numeric_limits<float>::infinity();

  EncodeContext context = {};

  // A codec that can start from it does; the others, and encodings with a residual, ignore it. The
  // payload's bytes are the same either way. topk starts from another topk's fp32 values.
  // REQUIRES: made of this gradient and grad_scale without a residual.
  FinerPayload finer = {};
};

// Thread-safe: constant after construction.
class Codec {
 public:
  virtual ~Codec() = default;

  const CodecSpec& spec() const { return spec_; }

  // Returns the spec that it encodes by in late rounds: that of its last step if it has a warm-up,
  // else its own.
  virtual const CodecSpec& settled_spec() const { return spec_; }

  virtual PayloadFormat format() const = 0;

  // True if its options turn error feedback on.
  virtual bool wants_residual() const = 0;

  // Returns the rule of the momentum that the codec itself applies to a gradient times
  // `grad_scale`. nullopt: it applies none.
  virtual std::optional<MomentumRule> Momentum(float /*grad_scale*/) const { return std::nullopt; }
  bool wants_momentum() const { return Momentum(/*grad_scale=*/1).has_value(); }

  virtual Combine combine() const { return Combine::kSum; }

  // Returns the codec's phases, which live as long as the codec. nullptr: its exchange has none but
  // the push of payloads.
  virtual const PhasedCodec* phases() const { return nullptr; }

  // True if tensors of this shape can be encoded. Others travel as they would without the codec.
  virtual bool Takes(std::span<const int64_t> /*shape*/) const { return true; }

  // True if a server's optimizer must not apply momentum, because the codec already does.
  bool refuses_server_momentum() const { return wants_momentum(); }

  // Returns the most bytes that a payload of `elements` elements takes.
  virtual size_t MaxPayloadBytes(size_t elements) const = 0;

  // Applies one step of momentum to a gradient that is sent raw although this codec compresses the
  // job's other pushes: the tensor is small, or this round is sent raw to be measured. The step is
  // the one that an encoding would take. Writes to `out` what must be sent together with the
  // residual; masks and clips nothing. `out` may be the gradient's own memory.
  // REQUIRES: wants_momentum() and input.momentum is given.
  // Returns the momentum's bound after the step.
  // InvalidArgument: NaN, infinity, or more than fp32 holds. Nothing has changed.
  [[nodiscard]] absl::StatusOr<float> AdvanceMomentum(const EncodeInput& input,
                                                      std::span<float> out) const;

  // Returns a warning to show once to whoever chose this codec; empty if there is none.
  virtual std::string Warning() const { return ""; }

  // Writes the payload to the front of `payload`.
  // REQUIRES: payload.size() >= MaxPayloadBytes(gradient.size()).
  // InvalidArgument: the gradient has NaN or infinity, a value is too large for the codec (the
  // message names the element), or lengths disagree. The states are then unchanged.
  [[nodiscard]] absl::StatusOr<EncodeStats> Encode(const EncodeInput& input,
                                                   std::span<std::byte> payload,
                                                   EncodeWorkspace& workspace) const;

  // Encodes with a workspace of its own: for tests and rare encodings.
  [[nodiscard]] absl::StatusOr<EncodeStats> Encode(const EncodeInput& input,
                                                   std::span<std::byte> payload) const;

  // ---- The parts of Encode, for codecs that wrap others and callers that encode block by block
  // (block_codec.h).

  static constexpr size_t kEncodable = std::numeric_limits<size_t>::max();

  static size_t Blocks(size_t elements) { return (elements + kBlockElements - 1) / kBlockElements; }

  // Returns the largest |x| that encodes and decodes to a finite number.
  float limit() const { return limit_; }

  // True if the bounds alone prove that FindUnencodable would return kEncodable.
  bool KnownEncodable(const EncodeInput& input) const;

  // Returns the first element in blocks [first_block, last_block) that cannot be encoded;
  // kEncodable: there is none. Reads only.
  size_t FindUnencodable(const EncodeInput& input, size_t first_block, size_t last_block) const;

  // Returns an InvalidArgument that says why `element`, which FindUnencodable returned, cannot be
  // encoded.
  absl::Status DescribeUnencodable(const EncodeInput& input, size_t element) const;

  // Encodes what Encode has checked.
  // REQUIRES: lengths agree, and every element can be encoded.
  virtual EncodeStats EncodeValid(const EncodeInput& input, std::span<std::byte> payload,
                                  EncodeWorkspace& workspace) const = 0;

 protected:
  Codec(CodecSpec spec, const Kernels& kernels, float limit)
      : spec_(std::move(spec)), kernels_(kernels), limit_(limit) {}

  const Kernels& kernels() const { return kernels_; }

 private:
  // InvalidArgument: too many elements, lengths that disagree, a grad_scale that is not finite, or
  // a payload that is too small.
  [[nodiscard]] absl::Status CheckArguments(const EncodeInput& input, size_t payload_bytes) const;

  const CodecSpec spec_;
  const Kernels& kernels_;  // a constant of the program
  const float limit_;
};

// Makes the codec that `spec` describes, with the best kernels for this CPU.
// InvalidArgument: an unknown name or option (the message gives the nearest valid one), or a value
// out of its range (the message gives the range).
[[nodiscard]] absl::StatusOr<std::unique_ptr<Codec>> MakeCodec(const CodecSpec& spec);

// Makes the codec of ParseCodecSpec(text). Errors: of both.
[[nodiscard]] absl::StatusOr<std::unique_ptr<Codec>> MakeCodec(std::string_view text);

// Makes it with chosen kernels, for tests and benches. REQUIRES: `kernels` run on this CPU.
[[nodiscard]] absl::StatusOr<std::unique_ptr<Codec>> MakeCodec(const CodecSpec& spec,
                                                               const Kernels& kernels);

}  // namespace slimps

#endif  // SLIMPS_COMPRESS_CODEC_CODEC_H_
