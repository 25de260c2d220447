// SPDX-License-Identifier: Apache-2.0
#include "worker/capi/c_api_support.h"

#include <cstdlib>
#include <iterator>
#include <new>
#include <stdexcept>
#include <string>
#include <system_error>

#include "absl/strings/numbers.h"
#include "proto/base/plain_keys.h"

namespace slimps {
namespace {

constexpr char kOutOfMemory[] = "out of memory";
// `shown` points into `message` or at a literal.
struct LastError {
  std::string message;
  const char* shown = "";
};

thread_local LastError last_error;

void Keep(const char* function, std::string_view message) noexcept {
  try {
    last_error.message = absl::StrCat(function, ": ", WithPlainKeys(message));
    last_error.shown = last_error.message.c_str();
  } catch (...) {
    last_error.shown = kOutOfMemory;
  }
}

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

slimps_status Report(const char* function, const absl::Status& status) noexcept {
  if (status.ok()) return SLIMPS_OK;
  Keep(function, {status.message().data(), status.message().size()});
  return static_cast<slimps_status>(status.code());
}

slimps_status ReportException(const char* function) noexcept {
  try {
    throw;
  } catch (const StatusError& error) {
    return Report(function, error.status);
  } catch (const std::bad_alloc&) {
    Keep(function, kOutOfMemory);
    return SLIMPS_RESOURCE_EXHAUSTED;
  } catch (const std::length_error& error) {
    Keep(function, error.what());
    return SLIMPS_RESOURCE_EXHAUSTED;
  } catch (const std::system_error& error) {  // no thread can be started
    Keep(function, error.what());
    return error.code() == std::errc::resource_unavailable_try_again ? SLIMPS_RESOURCE_EXHAUSTED
                                                                     : SLIMPS_INTERNAL;
  } catch (const std::exception& error) {
    Keep(function, error.what());
    return SLIMPS_INTERNAL;
  } catch (...) {
    Keep(function, "an exception of unknown type");
    return SLIMPS_INTERNAL;
  }
}

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

}  // namespace slimps

extern "C" {

int32_t slimps_api_version(void) { return SLIMPS_C_API_VERSION; }

const char* slimps_status_name(slimps_status status) {
  static constexpr const char* kNames[] = {"OK",
                                           "CANCELLED",
                                           "UNKNOWN",
                                           "INVALID_ARGUMENT",
                                           "DEADLINE_EXCEEDED",
                                           "NOT_FOUND",
                                           "ALREADY_EXISTS",
                                           "PERMISSION_DENIED",
                                           "RESOURCE_EXHAUSTED",
                                           "FAILED_PRECONDITION",
                                           "ABORTED",
                                           "OUT_OF_RANGE",
                                           "UNIMPLEMENTED",
                                           "INTERNAL",
                                           "UNAVAILABLE",
                                           "DATA_LOSS",
                                           "UNAUTHENTICATED"};
  const bool known = status >= 0 && static_cast<size_t>(status) < std::size(kNames);
  return kNames[known ? status : SLIMPS_UNKNOWN];
}

const char* slimps_last_error(void) { return slimps::last_error.shown; }

void slimps_free(void* memory) { std::free(memory); }

}  // extern "C"
