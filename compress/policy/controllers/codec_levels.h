// SPDX-License-Identifier: Apache-2.0
// The levels of codecs that can be stronger or weaker by one option, as policies see them. A policy
// sees no codec, only its name and options. Thread-safe: all functions are pure.
//
//   codec      level   levels about one setting (L-GreCo, section 5.1: from D / 2 to 2 D, for
//                      sparse codecs from D / 10 to 10 D)
//   qsgd       bits    2, 4, 8 as far as they lie in [D / 2, 2 D]
//   topk       ratio   eight a decade in [D / 10, 10 D], at most 1. The paper has steps of D / 10,
//                      which are a hundred levels: too many to measure online, and the fewest of
//                      them where they count, at strong compression
//   powersgd   rank    every rank in [D / 2, 2 D]. Only for matrices whose factors take at most
//                      half as many numbers: others travel as they are
#ifndef SLIMPS_COMPRESS_POLICY_CONTROLLERS_CODEC_LEVELS_H_
#define SLIMPS_COMPRESS_POLICY_CONTROLLERS_CODEC_LEVELS_H_

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "compress/policy/controllers/report.h"
#include "compress/spec/spec_text.h"

namespace slimps {

// Parses a codec as it is written inside a policy, with ; between its options: "topk:ratio=0.01"
// or "topk:ratio=0.01;value=fp16". Whether such a codec exists is not looked up. `owner` ("policy
// lgreco, option codec") names it in errors.
// InvalidArgument: the text has another form.
[[nodiscard]] absl::StatusOr<SpecText> ParseInnerCodec(const std::string& owner,
                                                       std::string_view text);

// Returns the text of a codec inside a policy.
std::string ToInnerCodec(const SpecText& codec);

// Returns the codec as a codec spec.
inline std::string ToCodecSpec(const SpecText& codec) {
  return ToSpecText(codec.name, codec.options);
}

// False if the codec is a low-rank one (powersgd, atomo) and the tensor is no matrix. Or, with
// powersgd, one that has less than twice as many elements as its factors.
bool SuitsTensor(const SpecText& codec, const TensorInfo& tensor);

// The levels about one setting, or about and between two settings of the same codec.
// Thread-compatible.
class CodecLevels final {
 public:
  // `owner`: whose codecs they are, for errors.
  // InvalidArgument: the codec has no levels here (the message lists those that have), the two
  // differ in more than their level, or a level is out of its range.
  [[nodiscard]] static absl::StatusOr<CodecLevels> About(const std::string& owner,
                                                         const SpecText& first,
                                                         const SpecText& second);

  // Returns the codec specs that make sense for the tensor, from the most to the least compressed.
  // Empty: none does, and the tensor is sent raw.
  std::vector<std::string> For(const TensorInfo& tensor) const;

  // Returns the codec spec of the first setting, or of the second, for the tensor: its level, or
  // the nearest one that makes sense for the tensor. "none": there is none.
  std::string First(const TensorInfo& tensor) const { return Nearest(tensor, first_); }
  std::string Second(const TensorInfo& tensor) const { return Nearest(tensor, second_); }

  // InvalidArgument: the second setting does not compress more than the first.
  [[nodiscard]] absl::Status CheckSecondIsStronger(const std::string& owner) const;

  // Returns the range in words: "topk with ratio from 0.001 to 0.1".
  std::string ToString() const;

 private:
  struct Level {
    double value = 0;
    std::string text;  // the value as an option
  };

  CodecLevels() = default;
  bool Suits(const TensorInfo& tensor, const Level& level) const;
  std::string SpecAt(const Level& level) const;
  std::string Nearest(const TensorInfo& tensor, const Level& wanted) const;

  SpecText codec_;             // its options without the level
  std::string option_;         // the level's name
  std::vector<Level> levels_;  // rising, so from the most to the least compressed
  Level first_, second_;
};

}  // namespace slimps

#endif  // SLIMPS_COMPRESS_POLICY_CONTROLLERS_CODEC_LEVELS_H_
