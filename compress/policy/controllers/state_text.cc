// SPDX-License-Identifier: Apache-2.0
#include "compress/policy/controllers/state_text.h"

#include <charconv>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace slimps {
namespace {

template <typename T>
bool ParseWhole(std::string_view text, T* value) {
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, *value);
  return !text.empty() && error == std::errc() && stop == end;
}

}  // namespace

StateWriter& StateWriter::Add(std::string_view word) {
  if (!text_.empty()) text_ += ' ';
  text_ += word;
  return *this;
}

StateWriter& StateWriter::Add(uint64_t number) { return Add(absl::StrCat(number)); }

StateWriter& StateWriter::Add(double number) { return Add(absl::StrFormat("%.17g", number)); }

StateWriter& StateWriter::Add(const std::map<KeyId, std::string>& codecs) {
  Add(uint64_t{codecs.size()});
  for (const auto& [key, codec] : codecs) Add(uint64_t{key}).Add(codec);
  return *this;
}

StateWriter& StateWriter::Add(const std::map<KeyId, double>& numbers) {
  Add(uint64_t{numbers.size()});
  for (const auto& [key, number] : numbers) Add(uint64_t{key}).Add(number);
  return *this;
}

StateReader::StateReader(std::string_view policy, std::string_view text)
    : policy_(policy), rest_(text) {
  if (const std::string_view name = Next(); name != policy) Fail(policy, name);
}

std::string_view StateReader::Next() {
  const size_t space = rest_.find(' ');
  const std::string_view word = rest_.substr(0, space);
  rest_ = space == std::string_view::npos ? std::string_view() : rest_.substr(space + 1);
  ++words_;
  return word;
}

void StateReader::Fail(std::string_view expected, std::string_view got) {
  if (!status_.ok()) return;
  status_ = absl::InvalidArgumentError(absl::StrCat("state of policy ", policy_, ", word ", words_,
                                                    ": expected ", std::string(expected), ", got '",
                                                    std::string(got.substr(0, 64)), "'"));
}

std::string StateReader::Word() {
  const std::string_view word = Next();
  if (word.empty()) Fail("a word", word);
  return std::string(status_.ok() ? word : "");
}

uint64_t StateReader::Uint() {
  const std::string_view word = Next();
  uint64_t value = 0;
  if (!ParseWhole(word, &value)) Fail("a whole number", word);
  return status_.ok() ? value : 0;
}

double StateReader::Real() {
  const std::string_view word = Next();
  double value = 0;
  if (!ParseWhole(word, &value) || !std::isfinite(value)) Fail("a finite number", word);
  return status_.ok() ? value : 0;
}

std::map<KeyId, std::string> StateReader::Codecs() {
  std::map<KeyId, std::string> codecs;
  for (uint64_t left = Uint(); left > 0 && status_.ok(); --left) {
    const KeyId key = Uint();
    codecs[key] = Word();
  }
  return codecs;
}

std::map<KeyId, double> StateReader::Reals() {
  std::map<KeyId, double> numbers;
  for (uint64_t left = Uint(); left > 0 && status_.ok(); --left) {
    const KeyId key = Uint();
    numbers[key] = Real();
  }
  return numbers;
}

absl::Status StateReader::Finish() {
  if (!rest_.empty()) Fail("nothing more", rest_);
  return status_;
}

}  // namespace slimps
