// SPDX-License-Identifier: Apache-2.0
#include "compress/spec/names.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"

namespace slimps {

size_t EditDistance(std::string_view a, std::string_view b) {
  // One row of the table at a time: row[j] is the distance from the first i characters of `a` to
  // the first j of `b`.
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({replaced, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row[b.size()];
}

absl::Status UnknownName(const std::string& what, std::string_view got,
                         std::span<const std::string_view> valid) {
  got = got.substr(0, kLongestShown);
  std::string message = absl::StrCat("unknown ", what, " '", std::string(got), "'");
  if (valid.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(message, ": it takes none"));
  }
  const auto nearest = std::min_element(valid.begin(), valid.end(), [&](auto a, auto b) {
    return EditDistance(got, a) < EditDistance(got, b);
  });
  absl::StrAppend(&message, ": did you mean '", std::string(*nearest), "'? Valid are");
  for (const std::string_view& name : valid) {
    absl::StrAppend(&message, &name == valid.data() ? " " : ", ", std::string(name));
  }
  return absl::InvalidArgumentError(message);
}

}  // namespace slimps
