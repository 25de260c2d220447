// SPDX-License-Identifier: Apache-2.0
// A tensor's name: an int or a text, never both for the same tensor. On the wire it is a KeyId, the
// XXH3 of the typed name ("i:5", "s:conv1.weight"). The scheduler refuses two names with the same
// id.
//
//   Key bias(5), weight("conv1.weight");     // bias.typed_name() is "i:5"
#ifndef SLIMPS_PROTO_BASE_KEY_H_
#define SLIMPS_PROTO_BASE_KEY_H_

#include <compare>
#include <cstdint>
#include <string>
#include <string_view>

namespace slimps {

using KeyId = uint64_t;

// Thread-compatible.
class Key final {
 public:
  Key(int64_t number);                                    // NOLINT: a key literal reads as itself
  Key(std::string_view text);                             // NOLINT
  Key(const char* text) : Key(std::string_view(text)) {}  // NOLINT
  Key(const std::string& text) : Key(std::string_view(text)) {}  // NOLINT
  Key(int number) : Key(static_cast<int64_t>(number)) {}         // NOLINT

  // Returns the name of an auxiliary key of the tensor `of`: "#p:s:conv1.weight". No tensor's name
  // begins like that.
  static Key Auxiliary(std::string_view what, const Key& of);

  // True if a typed name is that of an auxiliary key.
  static bool IsAuxiliary(std::string_view typed_name) { return typed_name.starts_with('#'); }

  KeyId id() const { return id_; }
  // Returns the name with its type: "i:5" or "s:conv1.weight".
  const std::string& typed_name() const { return typed_name_; }
  bool is_number() const { return typed_name_[0] == 'i'; }

  friend bool operator==(const Key& a, const Key& b) { return a.typed_name_ == b.typed_name_; }
  friend auto operator<=>(const Key& a, const Key& b) { return a.typed_name_ <=> b.typed_name_; }

 private:
  Key() = default;

  std::string typed_name_;
  KeyId id_ = 0;
};

}  // namespace slimps

#endif  // SLIMPS_PROTO_BASE_KEY_H_
