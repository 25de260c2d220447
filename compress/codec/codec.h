// A codec turns a gradient into a payload: who selects or quantises. The payload's layout belongs to a format
// (compress/format), which is all that a server knows.
//
//   auto spec = ParseCodecSpec("1bit:scaling=l1");
//   auto codec = MakeCodec(*spec);
//   AlignedBuffer bit_buf((*codec)->MaxPayloadBytes(n));
//   EncodeWorkspace workspace;                                   // kept for the next encoding
//   auto stats = (*codec)->Encode({.gradient = g, .residual = e}, bit_buf.bytes(), workspace);
//
// Error feedback (x = g + e; e = x - decode(encode(x))) happens inside the encoding's own passes over memory when a
// residual is given. That holds for every codec: "none" with a residual sends g + e and leaves zeros, which is how a raw
// push clears a residual. Thread-safe: a codec holds options only; what one encoding needs is in its EncodeRun.
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
#include "compress/kernels/momentum.h"
#include "proto/base/key.h"

namespace slimps {

class EncodeRun;        // compress/codec/encode_run.h
class EncodeWorkspace;  // compress/codec/encode_run.h
struct Kernels;         // compress/kernels/kernels.h

struct CodecSpec {
  std::string name;                            // "none", "1bit", "topk", ...: registry.h lists them
  std::map<std::string, std::string> options;  // as written

  // "1bit:scaling=l1"; parses back to an equal spec.
  std::string ToString() const;
  friend bool operator==(const CodecSpec&, const CodecSpec&) = default;
};

// "NAME" or "NAME:option=value,option=value". InvalidArgument on anything else; unknown names and options are refused
// with the nearest valid one.
[[nodiscard]] absl::StatusOr<CodecSpec> ParseCodecSpec(std::string_view text);

// What kind of layer a tensor belongs to, for codecs that treat them differently. Values equal wire::LayerKind's.
enum class LayerKind : uint8_t {
  kOther = 0,
  kConvolution = 1,
  kDense = 2,
  kRecurrent = 3,
  kEmbedding = 4,
  kNormalisation = 5,
};

// What a server makes of the workers' decoded payloads: a property of a key, set with its codec.
enum class Combine : uint8_t {
  kSum = 0,
  kMajority = 1,  // the sign of the sum, 0 for a tie
};

// Which push this is: what random numbers and schedules depend on, so that runs repeat bit for bit.
struct EncodeContext {
  KeyId key = 0;
  uint32_t partition = 0;
  uint64_t round = 0;  // from 1; 0: unknown
  uint32_t worker = 0;
  LayerKind layer = LayerKind::kOther;
};

struct EncodeInput {
  std::span<const float> gradient;
  // Empty: no error feedback; else as long as gradient, updated in place.
  std::span<float> residual;
  // The second state of codecs with wants_momentum(): as long as gradient, zeros at first, updated in place.
  std::span<float> momentum = {};
  float grad_scale = 1.0f;  // the codec sees gradient * grad_scale + residual
  // Known bounds of every |gradient[i]|, |residual[i]| and |momentum[i]|; infinity: not known. Where they show that every
  // x can be encoded, the pass over memory that looks for NaN, infinity and overflow is left out.
  // RawKernels::copy_bounded gives the first for free while a gradient is copied, EncodeStats the others.
  float gradient_bound = std::numeric_limits<float>::infinity();
  float residual_bound = std::numeric_limits<float>::infinity();
  float momentum_bound = std::numeric_limits<float>::infinity();
  EncodeContext context = {};
};

// Sums over all elements, gathered by the encoding's own passes. Squares are summed in fp32 within blocks of
// kBlockElements: infinite where they exceed that.
struct EncodeStats {
  size_t payload_bytes = 0;
  size_t elements_sent = 0;  // that the payload carries; the others decode to 0
  double input_norm2 = 0;    // |x|^2
  double decoded_norm2 = 0;  // |decode(x)|^2
  double error_norm2 = 0;    // |x - decode(x)|^2: of the new residual, where there is one

  // |C(x)|^2 / |x|^2, 1 for x = 0. Source: GraVAC, section 3.
  double compression_gain() const { return input_norm2 == 0 ? 1 : decoded_norm2 / input_norm2; }
  // No |residual[i]| is over this after the encoding.
  float ResidualBound() const;
  // No |momentum[i]| is, where the codec wants_momentum(); infinity: not known.
  float momentum_bound = std::numeric_limits<float>::infinity();
};

class Codec {
 public:
  virtual ~Codec() = default;
  const CodecSpec& spec() const { return spec_; }
  // What it encodes as in late rounds, after its warm-up: the spec of another codec, or its own.
  virtual const CodecSpec& settled_spec() const { return spec_; }
  virtual PayloadFormat format() const = 0;
  // Whether error feedback is on for this codec, as its options have it.
  virtual bool wants_residual() const = 0;
  // The momentum that it applies itself, to a gradient times `grad_scale`; nullopt: none.
  virtual std::optional<MomentumRule> Momentum(float /*grad_scale*/) const { return std::nullopt; }
  bool wants_momentum() const { return Momentum(/*grad_scale=*/1).has_value(); }
  virtual Combine combine() const { return Combine::kSum; }
  // A server's optimizer must not apply momentum again.
  bool refuses_server_momentum() const { return wants_momentum(); }
  virtual size_t MaxPayloadBytes(size_t elements) const = 0;
  // For a gradient that goes raw in a job that this codec compresses for (the tensor is small, or this round goes raw to
  // be measured): takes the step of momentum that encoding it would, and leaves in `out` what is to be sent together with
  // the residual. Nothing is masked or clipped. `out` may be the gradient's own memory. REQUIRES: wants_momentum() and
  // input.momentum is given.
  // Returns the momentum's bound afterwards. InvalidArgument, and nothing has changed: NaN, infinity, or more than fp32
  // holds.
  [[nodiscard]] absl::StatusOr<float> AdvanceMomentum(const EncodeInput& input,
                                                      std::span<float> out) const;
  // What whoever chose this codec should be told once; empty: nothing.
  virtual std::string Warning() const { return ""; }

  // Writes the payload to the front of `payload`. REQUIRES: payload.size() >= MaxPayloadBytes(gradient.size()).
  // InvalidArgument: NaN or infinity in the gradient, or a value too large for the codec (says at which element);
  // lengths that disagree. The states are then unchanged.
  [[nodiscard]] absl::StatusOr<EncodeStats> Encode(const EncodeInput& input,
                                                   std::span<std::byte> payload,
                                                   EncodeWorkspace& workspace) const;
  // With a workspace of its own: for tests and rare encodings.
  [[nodiscard]] absl::StatusOr<EncodeStats> Encode(const EncodeInput& input,
                                                   std::span<std::byte> payload) const;

  // ---- Encode's stages, for those who run them on several threads (parallel_encode.h).
  static constexpr size_t kEncodable = std::numeric_limits<size_t>::max();
  static size_t Blocks(size_t elements) { return (elements + kBlockElements - 1) / kBlockElements; }

  [[nodiscard]] absl::Status CheckArguments(const EncodeInput& input, size_t payload_bytes) const;
  // The largest |x| that encodes and decodes to a finite number.
  float limit() const { return limit_; }
  // Whether the bounds alone show that FindUnencodable would find nothing.
  bool KnownEncodable(const EncodeInput& input) const;
  // The first element in [first_block, last_block) that cannot be encoded; kEncodable: none. Reads only.
  size_t FindUnencodable(const EncodeInput& input, size_t first_block, size_t last_block) const;
  // Why `element`, found by the function above, cannot be encoded.
  absl::Status DescribeUnencodable(const EncodeInput& input, size_t element) const;
  // One encoding. `input`'s spans, `payload` and `workspace` outlive it. REQUIRES: the checks above were OK.
  virtual std::unique_ptr<EncodeRun> Begin(const EncodeInput& input, std::span<std::byte> payload,
                                           EncodeWorkspace& workspace) const = 0;

 protected:
  Codec(CodecSpec spec, const Kernels& kernels, float limit)
      : spec_(std::move(spec)), kernels_(kernels), limit_(limit) {}

  const Kernels& kernels() const { return kernels_; }

 private:
  const CodecSpec spec_;
  const Kernels& kernels_;  // a constant of the program
  const float limit_;
};

// InvalidArgument: unknown name or option (says the nearest valid one), value out of its range (says the range).
[[nodiscard]] absl::StatusOr<std::unique_ptr<Codec>> MakeCodec(const CodecSpec& spec);
// With kernels chosen by name, for tests and benches. The kernels must run on this CPU.
[[nodiscard]] absl::StatusOr<std::unique_ptr<Codec>> MakeCodec(const CodecSpec& spec,
                                                               const Kernels& kernels);

}  // namespace slimps

#endif  // SLIMPS_COMPRESS_CODEC_CODEC_H_
