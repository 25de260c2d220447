// SPDX-License-Identifier: Apache-2.0
// The settings that a codec is measured with: its usual options, and data as after many rounds.
#ifndef SLIMPS_TOOLS_BENCH_CODEC_CODEC_SETTINGS_H_
#define SLIMPS_TOOLS_BENCH_CODEC_CODEC_SETTINGS_H_

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "compress/codec/codec.h"

namespace slimps {

// The residual when measuring begins.
enum class ResidualStart : uint8_t {
  kZero,  // zeros, then a few rounds
  // For a codec that sends one element in a hundred. A sum then waits for about 100 rounds, until
  // it is ten times as large as what one gradient adds, so sums are distributed as a triangle from
  // -10 to 10 standard deviations.
  kAged,
};

// kKnown: encode_ef knows bounds of gradient and residual, as in a worker.
// kChecked: encode_ef looks for NaN and overflow first.
enum class Bounds : uint8_t { kKnown, kChecked };

struct CodecSetting {
  std::string label;  // the row's name; the codec's name alone means its usual setting
  std::string spec;   // for ParseCodecSpec
  ResidualStart residual = ResidualStart::kZero;
  Bounds bounds = Bounds::kKnown;
};

// Returns a setting of every registered codec, and the variants that have a row of their own.
std::vector<CodecSetting> AllCodecSettings();

// Returns the settings that `list` names: labels of AllCodecSettings, or specs ("topk:k=0.001"),
// separated by commas. Empty: all.
// InvalidArgument: a name is unknown; the message has the nearest valid one.
[[nodiscard]] absl::StatusOr<std::vector<CodecSetting>> ChooseCodecSettings(
    const std::string& list);

// True if the codec's exchange has phases. Encode then makes the payload of a tensor that travels
// without them.
bool HasPhases(const CodecSetting& setting);

// True if the codec is topk with a ratio, which sends 2 and 4 times as much at lower levels.
bool HasLevels(const CodecSetting& setting);

// Returns the setting that sends `times` times as much. REQUIRES: HasLevels(setting).
CodecSetting LowerLevel(const CodecSetting& setting, int times);

[[nodiscard]] absl::StatusOr<std::unique_ptr<Codec>> MakeCodec(const CodecSetting& setting,
                                                               const Kernels& kernels);

}  // namespace slimps

#endif  // SLIMPS_TOOLS_BENCH_CODEC_CODEC_SETTINGS_H_
