// SPDX-License-Identifier: Apache-2.0
#include "worker/capi/c_api_support.h"

#include <string>

#include "absl/strings/numbers.h"
#include "proto/base/status_macros.h"
#include "worker/device/cuda/cuda_driver.h"

namespace slimps {
namespace {

constexpr int32_t kByAddress = -1;  // of slimps_place.device

// Returns the length in bytes of the character at the front of `text`; 0 if it is not UTF-8.
size_t Utf8Length(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(0);
  if (first < 0x80) return 1;
  const size_t length = first < 0xc2   ? 0
                        : first < 0xe0 ? 2
                        : first < 0xf0 ? 3
                        : first < 0xf5 ? 4
                                       : 0;
  if (length == 0 || text.size() < length) return 0;
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
  }
  // Overlong, half of a surrogate pair, or beyond U+10FFFF.
  if ((first == 0xe0 && byte(1) < 0xa0) || (first == 0xed && byte(1) >= 0xa0) ||
      (first == 0xf0 && byte(1) < 0x90) || (first == 0xf4 && byte(1) >= 0x90)) {
    return 0;
  }
  return length;
}

}  // namespace

absl::Status CheckPointer(const char* what, const void* pointer) {
  if (pointer != nullptr) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(what, ": expected a pointer, got NULL"));
}

absl::Status CheckText(const char* what, const char* text) {
  if (text == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat(what, ": expected text, got NULL"));
  }
  const std::string_view all = text;
  for (size_t at = 0; at < all.size();) {
    const size_t length = Utf8Length(all.substr(at));
    if (length == 0) {
      return absl::InvalidArgumentError(absl::StrCat(what, ": expected UTF-8, got byte 0x",
                                                     absl::Hex(static_cast<unsigned char>(all[at])),
                                                     " at ", at));
    }
    at += length;
  }
  return absl::OkStatus();
}

absl::StatusOr<Key> ToKey(const slimps_key& key) {
  if (key.kind == SLIMPS_KEY_INT) return Key(key.number);
  if (key.kind != SLIMPS_KEY_TEXT) {
    return absl::InvalidArgumentError(absl::StrCat(
        "key: expected kind SLIMPS_KEY_INT (1) or SLIMPS_KEY_TEXT (2), got ", key.kind));
  }
  const absl::Status text = CheckText("key", key.text);
  if (!text.ok()) return text;
  return Key(key.text);
}

slimps_key FromKey(const Key& key) {
  const char* name = key.typed_name().c_str() + 2;  // after "i:" or "s:"
  if (!key.is_number()) return slimps_text_key(name);
  int64_t number = 0;
  (void)absl::SimpleAtoi(name, &number);  // cannot fail: Key wrote the number
  return slimps_int_key(number);
}

absl::Status CheckChoice(const std::string& what, int32_t got, int32_t most) {
  if (got >= 0 && got <= most) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(what, ": expected 0 to ", most, ", got ", got));
}

absl::StatusOr<Place> ToPlace(const char* what, const slimps_place& given, int32_t last_kind,
                              const float* array) {
  SLIMPS_RETURN_IF_ERROR(CheckChoice(absl::StrCat(what, ".kind"), given.kind, last_kind));
  if (given.kind == SLIMPS_HOST || given.kind == SLIMPS_LENT) return Place();
  if (given.device < kByAddress) {
    return absl::InvalidArgumentError(
        absl::StrCat(what, ".device: expected a GPU's number or -1, got ", given.device));
  }
  Place place = {.gpu = given.device, .stream = given.stream};
  // Memory of the host is refused later, as by a place that names GPU 0.
  if (given.device == kByAddress) place.gpu = GpuOfAddress(array).value_or(0);
  if (given.kind == SLIMPS_CUDA_FLOAT16) place.type = ElementType::kFloat16;
  if (given.kind == SLIMPS_CUDA_BFLOAT16) place.type = ElementType::kBfloat16;
  return place;
}

Place PlaceOf(const float* array) {
  return {.gpu = GpuOfAddress(array).value_or(Place::kHost), .stream = nullptr};
}

absl::StatusOr<Place> SaidOrFoundPlace(const std::string& what, const slimps_place* said,
                                       const float* array) {
  if (said == nullptr) return PlaceOf(array);
  return ToPlace(what.c_str(), *said, SLIMPS_CUDA, array);
}

absl::StatusOr<Shape> ToShape(const std::string& what, const int64_t* shape, size_t dimensions) {
  SLIMPS_ASSIGN_OR_RETURN(const std::span<const int64_t> extents,
                          ToSpan((what + ".shape").c_str(), shape, dimensions));
  Shape made{.extents = {extents.begin(), extents.end()}};
  for (const int64_t extent : extents) {
    const auto size = static_cast<size_t>(extent);
    if (extent < 1 || made.elements > PTRDIFF_MAX / sizeof(float) / size) {
      return absl::InvalidArgumentError(
          absl::StrCat(what, ".shape: expected extents from 1 that fit into memory, got ", extent));
    }
    made.elements *= size;
  }
  return made;
}

absl::StatusOr<wire::LayerKind> ToLayer(const std::string& what, int32_t layer,
                                        const Shape& shape) {
  static_assert(SLIMPS_LAYER_NORMALISATION == static_cast<int>(wire::NORMALISATION));
  SLIMPS_RETURN_IF_ERROR(CheckChoice(what + ".layer", layer, SLIMPS_LAYER_OTHER));
  if (layer == SLIMPS_LAYER_BY_SHAPE) return LayerByShape(shape.extents);
  if (layer == SLIMPS_LAYER_OTHER) return wire::OTHER;
  return static_cast<wire::LayerKind>(layer);
}

}  // namespace slimps
