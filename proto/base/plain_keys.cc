// SPDX-License-Identifier: Apache-2.0
#include "proto/base/plain_keys.h"

#include <initializer_list>

namespace slimps {
namespace {

bool IntroducesKey(std::string_view before) {
  for (const std::string_view word : {"key ", "tensor "}) {
    if (!before.ends_with(word)) continue;
    // True only for a whole word, not for the end of a longer one.
    return before.size() == word.size() || before[before.size() - word.size() - 1] == ' ';
  }
  return false;
}

}  // namespace

std::string WithPlainKeys(std::string_view message) {
  std::string plain;
  plain.reserve(message.size());
  for (size_t i = 0; i < message.size(); ++i) {
    const std::string_view here = message.substr(i);
    if ((here.starts_with("s:") || here.starts_with("i:")) && IntroducesKey(message.substr(0, i))) {
      ++i;
    } else {
      plain += message[i];
    }
  }
  return plain;
}

}  // namespace slimps
