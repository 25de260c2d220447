// SPDX-License-Identifier: Apache-2.0
#include "worker/capi/c_api_outcome.h"

#include <new>
#include <stdexcept>
#include <string_view>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "proto/base/plain_keys.h"

namespace slimps {
namespace {

constexpr char kOutOfMemory[] = "out of memory";

thread_local Outcome last_error;

Outcome Error(slimps_status status, const char* function, std::string_view message) noexcept {
  try {
    return {.status = status, .message = absl::StrCat(function, ": ", WithPlainKeys(message))};
  } catch (...) {
    return {.status = status, .literal = kOutOfMemory};
  }
}

}  // namespace

Outcome OutcomeOf(const char* function, const absl::Status& status) noexcept {
  if (status.ok()) return {};
  return Error(static_cast<slimps_status>(status.code()), function,
               {status.message().data(), status.message().size()});
}

Outcome OutcomeOfException(const char* function) noexcept {
  try {
    throw;
  } catch (const StatusError& error) {
    return OutcomeOf(function, error.status);
  } catch (const std::bad_alloc&) {
    return Error(SLIMPS_RESOURCE_EXHAUSTED, function, kOutOfMemory);
  } catch (const std::length_error& error) {
    return Error(SLIMPS_RESOURCE_EXHAUSTED, function, error.what());
  } catch (const std::system_error& error) {  // no thread can be started
    const bool exhausted = error.code() == std::errc::resource_unavailable_try_again;
    return Error(exhausted ? SLIMPS_RESOURCE_EXHAUSTED : SLIMPS_INTERNAL, function, error.what());
  } catch (const std::exception& error) {
    return Error(SLIMPS_INTERNAL, function, error.what());
  } catch (...) {
    return Error(SLIMPS_INTERNAL, function, "an exception of unknown type");
  }
}

slimps_status Report(Outcome outcome) noexcept {
  const slimps_status status = outcome.status;
  if (status != SLIMPS_OK) last_error = std::move(outcome);
  return status;
}

const char* LastError() noexcept { return last_error.shown(); }

}  // namespace slimps
