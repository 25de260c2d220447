// SPDX-License-Identifier: Apache-2.0
#include "proto/base/key.h"

#include "proto/base/hash.h"

namespace slimps {

Key::Key(int64_t number) : typed_name_("i:" + std::to_string(number)), id_(HashText(typed_name_)) {}

Key::Key(std::string_view text)
    : typed_name_("s:" + std::string(text)), id_(HashText(typed_name_)) {}

Key Key::Auxiliary(std::string_view what, const Key& of) {
  Key key;
  key.typed_name_ = "#" + std::string(what) + ":" + of.typed_name_;
  key.id_ = HashText(key.typed_name_);
  return key;
}

}  // namespace slimps
