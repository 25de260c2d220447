// SPDX-License-Identifier: Apache-2.0
// PulledForm: how the weights of a version travel to the workers that pull them.
#ifndef SLIMPS_WORKER_PULL_PULLED_FORM_H_
#define SLIMPS_WORKER_PULL_PULLED_FORM_H_

#include <string_view>

namespace slimps {

enum class PulledForm {
  kAsKept,  // whole, in the key's own type
  kF16,     // whole, in half precision
  kBf16,    // whole, in half precision
  kChange,  // encoded change from the version before
};

// Returns the form of a version that was made with `codec`, the spec of a pull codec; "" means
// "none". Pure; thread-safe.
inline PulledForm PulledFormOf(std::string_view codec) {
  if (codec.empty() || codec == "none") return PulledForm::kAsKept;
  if (codec == "fp16") return PulledForm::kF16;
  if (codec == "bf16") return PulledForm::kBf16;
  return PulledForm::kChange;
}

}  // namespace slimps

#endif  // SLIMPS_WORKER_PULL_PULLED_FORM_H_
