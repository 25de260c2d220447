// SPDX-License-Identifier: Apache-2.0
// A controller's state as words with a space between them, and back. Thread-compatible.
//
//   StateWriter state;
//   state.Add("accordion").Add(uint64_t{3}).Add(0.25);
//   StateReader reader("accordion", state.text());
//   reader.Word(); reader.Uint(); reader.Real();
//   if (absl::Status status = reader.Finish(); !status.ok()) ...   // no more words, all well read
#ifndef SLIMPS_COMPRESS_POLICY_CONTROLLERS_STATE_TEXT_H_
#define SLIMPS_COMPRESS_POLICY_CONTROLLERS_STATE_TEXT_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "proto/base/key.h"

namespace slimps {

class StateWriter final {
 public:
  // REQUIRES: `word` is not empty and has no space.
  StateWriter& Add(std::string_view word);
  StateWriter& Add(uint64_t number);
  StateWriter& Add(double number);  // exact
  StateWriter& Add(const std::map<KeyId, std::string>& codecs);
  StateWriter& Add(const std::map<KeyId, double>& numbers);

  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

// After the first word that is not what was asked for, every call returns 0 or nothing, and Finish
// says what was wrong.
class StateReader final {
 public:
  // The first word is the policy's name, which is checked at once. `text` outlives this.
  StateReader(std::string_view policy, std::string_view text);

  std::string Word();
  uint64_t Uint();
  double Real();  // finite
  std::map<KeyId, std::string> Codecs();
  std::map<KeyId, double> Reals();

  // False after a word that is not what was asked for.
  bool ok() const { return status_.ok(); }

  // InvalidArgument: a word was missing or malformed, or words are left. The message names it.
  [[nodiscard]] absl::Status Finish();

 private:
  std::string_view Next();
  void Fail(std::string_view expected, std::string_view got);

  const std::string policy_;
  std::string_view rest_;
  size_t words_ = 0;
  absl::Status status_;
};

}  // namespace slimps

#endif  // SLIMPS_COMPRESS_POLICY_CONTROLLERS_STATE_TEXT_H_
