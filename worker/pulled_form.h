// How the weights of a version travel to who pulls them.
#ifndef SLIMPS_WORKER_PULLED_FORM_H_
#define SLIMPS_WORKER_PULLED_FORM_H_

#include <string_view>

namespace slimps {

enum class PulledForm {
  kAsKept,  // whole, in the key's type
  kF16,     // whole
  kBf16,
  kChange,  // from the version before, encoded
};

// Of a version that was made with `codec`, the spec of a pull codec; "" is "none".
inline PulledForm PulledFormOf(std::string_view codec) {
  if (codec.empty() || codec == "none") return PulledForm::kAsKept;
  if (codec == "fp16") return PulledForm::kF16;
  if (codec == "bf16") return PulledForm::kBf16;
  return PulledForm::kChange;
}

}  // namespace slimps

#endif  // SLIMPS_WORKER_PULLED_FORM_H_
