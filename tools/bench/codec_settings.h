// Which settings a codec is measured with: its usual ones, and data such as it meets after many rounds.
#ifndef SLIMPS_TOOLS_BENCH_CODEC_SETTINGS_H_
#define SLIMPS_TOOLS_BENCH_CODEC_SETTINGS_H_

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "compress/codec/codec.h"

namespace slimps {

// What the residual is when measuring begins.
enum class ResidualStart : uint8_t {
  kZero,  // what a few rounds make of zeros
  // Of a codec that sends one element in a hundred: a sum waits for about 100 rounds, until it is ten times what one
  // gradient adds, so sums lie in a triangle from -10 to 10 standard deviations.
  kAged,
};

// Whether encode_ef knows bounds of gradient and residual, as a worker does, or looks for NaN and overflow first.
enum class Bounds : uint8_t { kKnown, kChecked };

struct CodecSetting {
  std::string label;  // what a row is called: the codec's name alone stands for its usual setting
  std::string spec;   // as ParseCodecSpec takes it
  ResidualStart residual = ResidualStart::kZero;
  Bounds bounds = Bounds::kKnown;
};

// Every registered codec, and the variants worth a row of their own.
std::vector<CodecSetting> AllCodecSettings();

// Those that `list` names: labels of AllCodecSettings, or specs ("topk:k=0.001"), separated by commas. Empty: all.
// InvalidArgument: an unknown one, with the nearest valid one.
[[nodiscard]] absl::StatusOr<std::vector<CodecSetting>> ChooseCodecSettings(
    const std::string& list);

[[nodiscard]] absl::StatusOr<std::unique_ptr<Codec>> MakeCodec(const CodecSetting& setting,
                                                               const Kernels& kernels);

}  // namespace slimps

#endif  // SLIMPS_TOOLS_BENCH_CODEC_SETTINGS_H_
