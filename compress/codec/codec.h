// A codec turns a gradient into a payload: who selects or quantises. The payload's layout belongs to a format
// (compress/format), which is all that a server knows.
//
//   auto spec = ParseCodecSpec("1bit:scaling=l1");
//   auto codec = MakeCodec(*spec);
//   AlignedBuffer bit_buf((*codec)->MaxPayloadBytes(n));
//   auto result = (*codec)->Encode({.gradient = g, .residual = e}, bit_buf.bytes());
//
// Error feedback (x = g + e; e = x - decode(encode(x))) happens inside Encode's one pass over memory when a residual
// is given. That holds for every codec: "none" with a residual sends g + e and leaves zeros, which is how a raw push
// clears a residual. Thread-safe: a codec holds options only.
#ifndef SLIMPS_COMPRESS_CODEC_CODEC_H_
#define SLIMPS_COMPRESS_CODEC_CODEC_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "compress/format/format.h"

namespace slimps {

class BlockCodec;  // compress/codec/block_codec.h
struct Kernels;    // compress/format/kernels.h

struct CodecSpec {
  std::string name;                            // "none", "fp16", "bf16", "1bit", "2bit"
  std::map<std::string, std::string> options;  // as written

  // "1bit:scaling=l1"; parses back to an equal spec.
  std::string ToString() const;
  friend bool operator==(const CodecSpec&, const CodecSpec&) = default;
};

// "NAME" or "NAME:option=value,option=value". InvalidArgument on anything else; unknown names and options are refused
// with the nearest valid one.
[[nodiscard]] absl::StatusOr<CodecSpec> ParseCodecSpec(std::string_view text);

struct EncodeInput {
  std::span<const float> gradient;
  std::span<float>
      residual;             // empty: no error feedback; else as long as gradient, updated in place
  float grad_scale = 1.0f;  // the codec sees gradient * grad_scale + residual
};

struct EncodeStats {
  size_t payload_bytes = 0;
};

class Codec {
 public:
  virtual ~Codec() = default;
  virtual const CodecSpec& spec() const = 0;
  virtual PayloadFormat format() const = 0;
  // Whether error feedback is on by default for this codec.
  virtual bool wants_residual() const = 0;
  virtual size_t MaxPayloadBytes(size_t elements) const = 0;
  // Writes the payload to the front of `payload`. REQUIRES: payload.size() >= MaxPayloadBytes(gradient.size()).
  // InvalidArgument: NaN or infinity in the gradient, or a value too large for the codec (says at which element);
  // lengths that disagree. The residual is then unchanged.
  [[nodiscard]] virtual absl::StatusOr<EncodeStats> Encode(const EncodeInput& input,
                                                           std::span<std::byte> payload) const = 0;
  // This codec as one that encodes blocks independently, for parallel encoding; nullptr: it cannot.
  virtual const BlockCodec* AsBlockCodec() const { return nullptr; }
  // What whoever chose this codec should be told once; empty: nothing.
  virtual std::string Warning() const { return ""; }
};

// InvalidArgument: unknown name or option (says the nearest valid one), value out of its range (says the range).
[[nodiscard]] absl::StatusOr<std::unique_ptr<Codec>> MakeCodec(const CodecSpec& spec);
// With kernels chosen by name, for tests. The kernels must run on this CPU.
[[nodiscard]] absl::StatusOr<std::unique_ptr<Codec>> MakeCodec(const CodecSpec& spec,
                                                               const Kernels& kernels);

}  // namespace slimps

#endif  // SLIMPS_COMPRESS_CODEC_CODEC_H_
